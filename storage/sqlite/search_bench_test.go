package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/thread/search"
)

// BenchmarkFindWords looks for words in 100,000 threads with four messages each.
func BenchmarkFindWords(b *testing.B) {
	s, err := Open(b.Context(), Options{Dir: b.TempDir(), Synchronous: "normal"})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	fillWords(b, s, 100_000)
	filter, err := access.ParseFilter([]byte(`{"owner":"u7"}`))
	require.NoError(b, err)
	for _, query := range []string{"w0", "w30", "w300", "w30 w900 ", "w44444 ", "missing"} {
		terms, err := search.Parse(query)
		require.NoError(b, err)
		for name, ctx := range map[string]context.Context{"all": b.Context(), "reach": access.Narrow(b.Context(), access.Threads, filter)} {
			b.Run(strings.ReplaceAll(query, " ", "_")+"/"+name, func(b *testing.B) {
				found := 0
				for b.Loop() {
					page, _, err := search.NewService(s, nil).Search(ctx, search.Query{Terms: terms}, 20)
					require.NoError(b, err)
					found = len(page)
				}
				b.ReportMetric(float64(found), "found")
			})
		}
	}
}

// fillWords makes threads with four messages of thirty words, of which few are common and many rare.
func fillWords(b *testing.B, s *Store, threads int) {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, 1.2, 3, 60_000)
	for from := 0; from < threads; from += 1000 {
		require.NoError(b, s.write(b.Context(), func(tx *Tx) error {
			for n := from; n < from+1000; n++ {
				if err := tx.exec("INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, metadata, status, touched) VALUES (?, 0, 0, 0, ?, 'idle', 1)",
					fmt.Sprintf("t%08d", n), []byte(fmt.Sprintf(`{"owner":"u%d"}`, n%1000))); err != nil {
					return err
				}
				for i := range 4 {
					words := make([]string, 30)
					for j := range words {
						words[j] = fmt.Sprint("w", zipf.Uint64())
					}
					text := strings.Join(words, " ")
					if err := tx.exec(insertBody, []byte(`{"type":"human","content":"`+text+`"}`)); err != nil {
						return err
					}
					body := tx.conn.LastInsertRowID()
					if err := tx.exec("INSERT INTO events (thread_id, seq, type, category, body, created_at) VALUES (?, ?, 'llm.human.input', 'message', ?, 0)", fmt.Sprintf("t%08d", n), i+1, body); err != nil {
						return err
					}
					if err := tx.exec(putWords, body, strings.Join(search.Words(text), " ")); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	}
}
