package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/config"
	"understudy/internal/jsonobj"
	"understudy/internal/postgrestest"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// filtering accepts every user, whose filter is that of the search with the number that is their name.
type filtering []storagetest.FilteredSearch

func (filtering) Authenticate(_ context.Context, r *access.Request) (*access.Actor, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	return &access.Actor{Identity: name, DisplayName: name, Authenticated: true, Permissions: []string{}, User: json.RawMessage(`{"identity":"` + name + `"}`)}, nil
}

func (f filtering) Decide(_ context.Context, a *access.Actor, questions ...access.Question) ([]access.Decision, error) {
	n, err := strconv.Atoi(a.Identity)
	out := make([]access.Decision, len(questions))
	for i := range out {
		out[i].Filter = f[n].Text
	}
	return out, err
}

// BenchmarkFilteredSearches compares requests that search THREADS (10,000) threads with a filter of access control with the same ones without it, in turns. The goal is
// at most twice the time at 100,000. Of each the time counts that a tenth of them stay below: that of a machine that does little else.
func BenchmarkFilteredSearches(b *testing.B) {
	total := 10_000
	if text := os.Getenv("THREADS"); text != "" {
		var err error
		total, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	for _, backend := range []string{"SQLite", "Postgres"} {
		b.Run(backend, func(b *testing.B) {
			flags := map[string]string{"port": "0", "data": b.TempDir(), "synchronous": "normal"}
			if backend == "Postgres" {
				flags["database-url"] = postgrestest.Database(b)
			}
			settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
			require.NoError(b, err)
			searches := storagetest.FilteredSearches(b)
			s, err := New(b.Context(), Config{Settings: settings, Auth: filtering(searches), Log: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			require.NoError(b, s.Register("talk", "", repeats{}))
			for from := 0; from < total; from += 1000 {
				require.NoError(b, s.rows.Threads().Write(b.Context(), func(tx thread.Tx) error {
					for n := range min(1000, total-from) {
						if err := tx.InsertThread(storagetest.FilteredThread(from + n)); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			if url := flags["database-url"]; url != "" {
				conn, err := pgx.Connect(b.Context(), url)
				require.NoError(b, err)
				_, err = conn.Exec(b.Context(), "VACUUM ANALYZE")
				require.NoError(b, err)
				require.NoError(b, conn.Close(b.Context()))
			}
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			conn, err := net.Dial("tcp", s.Addr().String())
			require.NoError(b, err)
			c := plainClient{conn, bufio.NewReader(conn)}
			search := func(b *testing.B, n int, q thread.Query) time.Duration {
				b.Helper()
				o := jsonobj.Of(json.RawMessage(`{"limit":10}`))
				if q.Metadata != nil {
					o.Set("metadata", q.Metadata)
				}
				for name, value := range map[string]string{"status": string(q.Status), "sort_by": q.SortBy} {
					if value != "" {
						o.SetText(name, value)
					}
				}
				body := string(o.JSON())
				began := time.Now()
				_, err := c.send(fmt.Sprintf("POST /threads/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", n, len(body), body))
				require.NoError(b, err)
				return time.Since(began)
			}
			for n, of := range searches[1:] { // the first one has no filter
				b.Run(of.Name, func(b *testing.B) {
					var without, with []time.Duration
					for b.Loop() {
						without, with = append(without, search(b, 0, of.Query)), append(with, search(b, n+1, of.Query))
					}
					slices.Sort(without)
					slices.Sort(with)
					base, filtered := without[len(without)/10], with[len(with)/10]
					b.ReportMetric(base.Seconds()*1000, "ms-without")
					b.ReportMetric(filtered.Seconds()*1000, "ms-with")
					b.ReportMetric(float64(filtered)/float64(base), "ratio")
				})
			}
			require.NoError(b, conn.Close())
			stop()
			require.NoError(b, <-ended)
		})
	}
}
