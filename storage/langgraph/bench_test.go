package langgraph_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/storage/langgraph"
	"understudy/transfer"
)

// BenchmarkMove moves 20 threads of 200 messages, each with a checkpoint of its own and one below
// it: out, and in again.
func BenchmarkMove(b *testing.B) {
	const threads, steps = 20, 200
	a := newWorld(b)
	rng := rand.New(rand.NewPCG(1, 2))
	for range threads {
		a.conversation(b, id.Thread(uuid.NewString()), steps, rng)
	}
	run := func(name string, open func(i int) (transfer.Sink, func() transfer.Source)) {
		i := 0
		b.Run("export/"+name, func(b *testing.B) {
			for b.Loop() {
				i++
				to, _ := open(i)
				require.Empty(b, a.export(b, to).Problems)
				require.NoError(b, to.Close())
			}
			b.ReportMetric(float64(2*threads*steps*b.N)/b.Elapsed().Seconds(), "checkpoints/s")
		})
		for kind, newWorld := range kinds {
			b.Run("import/"+name+"/into/"+kind, func(b *testing.B) {
				to, source := open(0)
				a.export(b, to)
				require.NoError(b, to.Close())
				for b.Loop() {
					from := source()
					r, err := newWorld(b).importer().Run(b.Context(), from)
					require.NoError(b, err)
					require.Empty(b, r.Problems)
					require.NoError(b, from.Close())
				}
				b.ReportMetric(float64(2*threads*steps*b.N)/b.Elapsed().Seconds(), "checkpoints/s")
			})
		}
	}
	b.Run("export/sqlite/from/postgres", func(b *testing.B) {
		w := databaseWorld(b)
		_, err := w.importer().Run(b.Context(), a.source())
		require.NoError(b, err)
		for b.Loop() {
			to, err := langgraph.OpenSQLiteSink(b.Context(), filepath.Join(b.TempDir(), "x"))
			require.NoError(b, err)
			require.Empty(b, w.export(b, to).Problems)
			require.NoError(b, to.Close())
		}
		b.ReportMetric(float64(2*threads*steps*b.N)/b.Elapsed().Seconds(), "checkpoints/s")
	})
	dir := b.TempDir()
	run("sqlite", func(i int) (transfer.Sink, func() transfer.Source) {
		path := filepath.Join(dir, fmt.Sprint(i))
		to, err := langgraph.OpenSQLiteSink(b.Context(), path)
		require.NoError(b, err)
		return to, func() transfer.Source {
			s, err := langgraph.OpenSQLite(b.Context(), path)
			require.NoError(b, err)
			return s
		}
	})
	run("postgres", func(int) (transfer.Sink, func() transfer.Source) {
		dsn := postgrestest.Database(b)
		to, err := langgraph.OpenPostgresSink(b.Context(), dsn)
		require.NoError(b, err)
		return to, func() transfer.Source {
			s, err := langgraph.OpenPostgres(b.Context(), dsn)
			require.NoError(b, err)
			return s
		}
	})
}
