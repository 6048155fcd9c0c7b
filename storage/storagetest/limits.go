package storagetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/run"
)

var limitCases = map[string]func(*testing.T, Backend){
	"runs of identities": func(t *testing.T, b Backend) {
		t.Helper()
		insertThreads(t, b, newThread(1))
		of := func(identity string) (runs []id.Run) {
			t.Helper()
			write(t, b, func(tx run.Tx) (err error) { runs, err = tx.RunsOf(identity); return err })
			return runs
		}
		for n := range 4 {
			identity := []string{"ada", "bob \x00 😀"}[n%2]
			write(t, b, func(tx run.Tx) error {
				return errors.Join(tx.InsertRun(newRun(n, 1)), tx.AddRunOf(identity, runID(n)), tx.AddRunOf(identity, runID(n)))
			})
		}
		b = b.reopen(t)
		require.ElementsMatch(t, []id.Run{runID(0), runID(2)}, of("ada"))
		require.ElementsMatch(t, []id.Run{runID(1), runID(3)}, of("bob \x00 😀"))
		require.Empty(t, of("eve"))
		write(t, b, func(tx run.Tx) error {
			over := newRun(0, 1)
			over.Status = run.Success
			return errors.Join(tx.UpdateRun(over), tx.DeleteRun(threadID(1), runID(3)))
		})
		require.Equal(t, []id.Run{runID(2)}, of("ada"))
		require.Equal(t, []id.Run{runID(1)}, of("bob \x00 😀"))
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		require.Empty(t, of("ada"))
	},
	"runs of an identity are counted one after the other": func(t *testing.T, b Backend) {
		t.Helper()
		var made atomic.Int32
		var wg sync.WaitGroup
		errFull := errors.New("full")
		for n := range 12 {
			wg.Go(func() {
				err := b.Runs.Write(t.Context(), func(tx run.Tx) error {
					if err := tx.InsertThread(newThread(n + 1)); err != nil {
						return err
					}
					runs, err := tx.RunsOf("ada")
					if err != nil {
						return err
					}
					if len(runs) >= 5 {
						return errFull
					}
					return errors.Join(tx.InsertRun(newRun(n+1, n+1)), tx.AddRunOf("ada", runID(n+1)))
				})
				switch {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, errFull):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 5, made.Load())
	},
}
