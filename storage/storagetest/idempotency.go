package storagetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/idempotency"
	"understudy/run"
	"understudy/thread"
)

var idempotencyCases = map[string]func(*testing.T, Backend){
	"a record counts until it is expired": func(t *testing.T, b Backend) {
		first := &idempotency.Record{ID: "k", Digest: []byte{1, 0}, At: at(10), Thread: string(threadID(1)), Runs: []string{string(runID(1)), string(runID(2))}}
		second := &idempotency.Record{ID: "k", Digest: []byte{2}, At: at(20)}
		insert := func(r *idempotency.Record, expired time.Time) (err error) {
			write(t, b, func(tx run.Tx) error {
				err = tx.InsertIdempotencyRecord(r, expired)
				return nil
			})
			return err
		}
		read := func(expired time.Time) (r *idempotency.Record) {
			require.NoError(t, b.Threads.Write(t.Context(), func(tx thread.Tx) (err error) {
				r, err = tx.IdempotencyRecord("k", expired)
				return err
			}))
			return r
		}
		require.Nil(t, read(at(0)))
		require.NoError(t, insert(first, at(0)))
		require.Equal(t, first, read(at(9)))
		require.Nil(t, read(at(10)))
		require.ErrorIs(t, insert(second, at(9)), idempotency.ErrRace)
		require.Equal(t, first, read(at(9)))
		require.NoError(t, insert(second, at(10)))
		got := read(at(10))
		require.Empty(t, got.Runs)
		got.Runs = nil
		require.Equal(t, second, got)
	},
	"records are deleted in parts": func(t *testing.T, b Backend) {
		write(t, b, func(tx run.Tx) error {
			for n := range 10 {
				if err := tx.InsertIdempotencyRecord(&idempotency.Record{ID: fmt.Sprint(n), Digest: []byte{1}, At: at(n)}, at(0)); err != nil {
					return err
				}
			}
			return nil
		})
		for _, want := range []int{3, 2, 0} {
			write(t, b, func(tx run.Tx) error {
				n, err := tx.DeleteIdempotencyRecords(at(4), 3)
				require.Equal(t, want, n)
				return err
			})
		}
		write(t, b, func(tx run.Tx) error {
			for n := range 10 {
				r, err := tx.IdempotencyRecord(fmt.Sprint(n), at(-1))
				if err != nil {
					return err
				}
				require.Equal(t, n > 4, r != nil)
			}
			return nil
		})
	},
	"of simultaneous records one is stored": func(t *testing.T, b Backend) {
		var stored, races atomic.Int32
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				err := b.Runs.Write(t.Context(), func(tx run.Tx) error {
					if err := tx.InsertThread(newThread(n + 1)); err != nil {
						return err
					}
					return tx.InsertIdempotencyRecord(&idempotency.Record{ID: "k", Digest: []byte{byte(n)}, At: at(n + 1)}, at(0))
				})
				switch {
				case err == nil:
					stored.Add(1)
				case errors.Is(err, idempotency.ErrRace):
					races.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, [2]int32{1, 7}, [2]int32{stored.Load(), races.Load()})
		threads, err := b.Threads.Threads(t.Context(), thread.Query{})
		require.NoError(t, err)
		require.Len(t, threads, 1, "what lost was rolled back")
	},
}
