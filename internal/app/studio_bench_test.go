package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/store"
	"understudy/thread"
)

// BenchmarkStudioLists asks for the lists that the pages of the studio show, in front of 100,000 threads with a run each: of 100 threads one asks something, one failed,
// and one has a run that waits. The goal is 30 ms for each. The time counts that half of the requests stay below.
func BenchmarkStudioLists(b *testing.B) {
	const total = 100_000
	for _, backend := range []string{"SQLite", "Postgres"} {
		b.Run(backend, func(b *testing.B) {
			flags := map[string]string{"port": "0", "data": b.TempDir(), "synchronous": "normal"}
			if backend == "Postgres" {
				flags["database-url"] = postgrestest.Database(b)
			}
			settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
			require.NoError(b, err)
			s, err := New(b.Context(), Config{Settings: settings, Log: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			require.NoError(b, s.Register("talk", "", repeats{}))
			for from := 0; from < total; from += 1000 {
				require.NoError(b, s.rows.Runs().Write(b.Context(), func(tx run.Tx) error {
					for n := from; n < from+1000; n++ {
						t, r := listedThread(n)
						if err := tx.InsertThread(t); err != nil {
							return err
						}
						if err := tx.InsertRun(r); err != nil {
							return err
						}
						if n%100 == 0 {
							if err := tx.InsertCron(listedCron(n)); err != nil {
								return err
							}
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
			for n := range 5_000 {
				require.NoError(b, s.items.Put(b.Context(), store.Item{Namespace: []string{"users", fmt.Sprintf("u%d", n%500)}, Key: fmt.Sprint(n), Value: json.RawMessage(`{"likes":"pasta"}`)}))
			}
			conn, err := net.Dial("tcp", s.Addr().String())
			require.NoError(b, err)
			c := plainClient{conn, bufio.NewReader(conn)}
			some, _ := listedThread(total / 2)
			listed := `"limit":50,"sort_by":"updated_at","sort_order":"desc","select":["thread_id","created_at","updated_at","metadata","status","interrupts"],"extract":{"title":"values.title","first":"values.messages[0].content"}`
			for _, of := range []struct{ name, method, path, body string }{
				{"threads", "POST", "/threads/search", "{" + listed + `,"offset":0}`},
				{"threads, page 20", "POST", "/threads/search", "{" + listed + `,"offset":950}`},
				{"threads that ask", "POST", "/threads/search", "{" + listed + `,"offset":0,"status":"interrupted"}`},
				{"threads of a graph", "POST", "/threads/search", "{" + listed + `,"offset":0,"metadata":{"graph_id":"talk"}}`},
				{"threads of an owner", "POST", "/threads/search", "{" + listed + `,"offset":0,"metadata":{"owner":"u7"}}`},
				{"threads to change", "POST", "/threads/count", `{"metadata":{"owner":"u7"}}`},
				{"all threads to change", "POST", "/threads/count", `{}`},
				{"messages by their words", "GET", "/understudy/threads/search?text=pasta&limit=20", ""},
				{"runs", "GET", "/understudy/runs?limit=50", ""},
				{"failed runs", "GET", "/understudy/runs?limit=50&status=error", ""},
				{"pending runs of a graph", "GET", "/understudy/runs?limit=50&status=pending&graph_id=talk", ""},
				{"running runs, none", "GET", "/understudy/runs?limit=50&status=running", ""},
				{"runs to cancel", "GET", "/understudy/runs/count?status=pending", ""},
				{"runs of a thread", "GET", "/threads/" + string(some.ID) + "/runs?limit=100", ""},
				{"tree", "GET", "/understudy/threads/" + string(some.ID) + "/tree", ""},
				{"crons", "POST", "/runs/crons/search", `{"limit":50,"offset":0,"sort_by":"next_run_date","sort_order":"asc"}`},
				{"items", "POST", "/store/items/search", `{"namespace_prefix":[],"limit":50,"offset":0}`},
				{"namespaces", "POST", "/store/namespaces", `{"prefix":["users"],"max_depth":2,"limit":1000}`},
				{"assistants", "POST", "/assistants/search", `{"limit":1000}`},
				{"usage", "GET", "/understudy/usage?days=30", ""},
				{"servers", "GET", "/understudy/servers", ""},
				{"timeline", "GET", "/understudy/timeline?limit=50", ""},
			} {
				b.Run(of.name, func(b *testing.B) {
					var times []time.Duration
					for b.Loop() {
						began := time.Now()
						_, err := c.send(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", of.method, of.path, len(of.body), of.body))
						require.NoError(b, err)
						times = append(times, time.Since(began))
					}
					slices.Sort(times)
					b.ReportMetric(times[len(times)/2].Seconds()*1000, "ms-p50")
					b.ReportMetric(times[len(times)*95/100].Seconds()*1000, "ms-p95")
				})
			}
			require.NoError(b, conn.Close())
			stop()
			require.NoError(b, <-ended)
		})
	}
}

// listedThread is a thread and its run. Their IDs ascend with time, as those of servers do.
func listedThread(n int) (*thread.Thread, *run.Run) {
	at := time.UnixMicro(1_700_000_000_000_000 + int64(n)*1_000_000).UTC()
	name := fmt.Sprintf("%08x-%04x-7000-8000-%012d", (at.UnixMilli()>>16)&0xffffffff, at.UnixMilli()&0xffff, n)
	t := &thread.Thread{
		ID: id.Thread(name), CreatedAt: at, UpdatedAt: at, StateUpdatedAt: at, Metadata: json.RawMessage(fmt.Sprintf(`{"graph_id":"talk","assistant_id":%q,"title":"Question %d","owner":"u%d"}`, id.DefaultAssistant("talk"), n, n%500)),
		Config: json.RawMessage(`{}`), Status: thread.Idle,
	}
	r := &run.Run{ID: id.Run(name), Thread: t.ID, Assistant: id.DefaultAssistant("talk"), Graph: "talk", Metadata: json.RawMessage(`{}`), Status: run.Success, Strategy: run.Enqueue, CreatedAt: at, UpdatedAt: at}
	switch n % 100 {
	case 1:
		t.Status = thread.Interrupted
		t.Interrupts = json.RawMessage(`{"t1":[{"id":"i1","value":"May I?"}]}`)
	case 2:
		t.Status, r.Status = thread.Errored, run.Error
	case 3:
		t.Status, r.Status = thread.Busy, run.Pending
		r.CreatedAt = time.Now().Add(24 * time.Hour) // it waits for its time
		r.Kwargs = run.Arguments{Arguments: graph.Arguments{Modes: []string{"values"}, Durability: "async"}}
	}
	return t, r
}

func listedCron(n int) *run.Cron {
	at := time.UnixMicro(1_700_000_000_000_000).UTC()
	next := time.Now().Add(time.Duration(n+1) * time.Hour)
	return &run.Cron{ID: id.NewCron(), Assistant: id.DefaultAssistant("talk"), Schedule: "0 9 * * *", Next: &next, Metadata: json.RawMessage(`{}`), Payload: json.RawMessage(`{"input":{}}`), Enabled: true, CreatedAt: at, UpdatedAt: at}
}
