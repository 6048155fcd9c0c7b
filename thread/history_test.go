package thread_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/postgres/migratedtest"
	"understudy/thread"
)

// oneMemory is the memory of one reader, while others use some of it.
type oneMemory struct {
	t           *testing.T
	limit, used int64
	others      func() int64 // what others use now; during a wait they go
	waits       int
}

func (r *oneMemory) Take(n int64) bool {
	if others := r.others(); r.used+others > 0 && r.used+others+n > r.limit {
		return false
	}
	r.used += n
	return true
}

func (r *oneMemory) Wait(_ context.Context, n int64) error {
	require.Zero(r.t, r.used, "it waits while it holds memory that others wait for")
	r.waits++
	r.used = n
	return nil
}

func (r *oneMemory) Hold(n int64) { r.used += n }

func (r *oneMemory) Give(n int64) {
	r.used -= n
	require.GreaterOrEqual(r.t, r.used, int64(0))
}

// A history of entries of any sizes is the same however little memory there is. What a reader holds is reserved, what it reserves is little more than
// what it needs, and it holds nothing while it waits.
func TestHistoriesShareMemory(t *testing.T) {
	t.Parallel()
	for engine, where := range map[string]string{"sqlite": t.TempDir(), "postgres": migratedtest.Database(t)} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			r := open(t, where)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			const largest = 3 << 20
			require.NoError(t, r.Threads().Write(t.Context(), func(tx thread.Tx) error {
				rng := rand.New(rand.NewPCG(1, 2))
				if err := tx.InsertThread(&thread.Thread{
					ID: "t", CreatedAt: base, UpdatedAt: base, StateUpdatedAt: base, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle,
				}); err != nil {
					return err
				}
				for n := range 40 {
					size := 100
					if rng.IntN(4) == 0 {
						size = 1 + rng.IntN(largest)
					}
					if err := tx.PutCheckpoint(&checkpointer.Put{
						Checkpoint: checkpointer.Checkpoint{
							Key:      checkpointer.Key{Thread: "t", ID: id.Checkpoint(fmt.Sprintf("%03d", n))},
							Data:     fmt.Appendf(nil, `{"channel_versions":{"x":"%d"}}`, n),
							Metadata: json.RawMessage(`{"source":"loop"}`), Tasks: json.RawMessage(`[]`), Shape: "shape",
						},
						Blobs:     []checkpointer.Blob{{Channel: "x", Version: fmt.Sprint(n), Type: "msgpack", Data: msgp.AppendString(nil, strings.Repeat("x", size))}},
						ShapeJSON: json.RawMessage(`{"out":["x"],"channels":{"x":{"kind":"LastValue"}}}`),
					}); err != nil {
						return err
					}
				}
				return nil
			}))
			s := thread.NewService(thread.Options{Store: r.Threads(), Snapshots: checkpointer.NewSnapshots(r.Threads(), nil), Overlay: overlay.New(r.Threads().(eventstore.Reader), overlay.Config{})})
			want, err := s.History(t.Context(), thread.HistoryQuery{Thread: "t"})
			require.NoError(t, err)
			require.Len(t, want, 40)
			rng := rand.New(rand.NewPCG(3, 4))
			for _, limit := range []int64{1, 5 << 20, 20 << 20, 1 << 30} {
				memory := &oneMemory{t: t, limit: limit, others: func() int64 { return 0 }}
				h, err := s.ReadHistory(t.Context(), thread.HistoryQuery{Thread: "t", Memory: memory})
				require.NoError(t, err)
				memory.others = func() int64 { return rng.Int64N(2) * limit } // all of it or nothing
				for n := 0; ; n++ {
					snap, err := h.Next(t.Context())
					if errors.Is(err, io.EOF) {
						require.Equal(t, len(want), n)
						break
					}
					require.NoError(t, err)
					require.Equal(t, want[n].ID, snap.ID)
					require.Len(t, snap.Values, len(want[n].Values))
					require.GreaterOrEqual(t, memory.used, int64(len(snap.Values)))
					// The first of a page, what others add, one that is composed, and one that it is compared with.
					require.LessOrEqual(t, memory.used, int64(4*(largest+largest/4)+4<<20))
				}
				h.Close()
				require.Zero(t, memory.used)
				require.True(t, limit == 1<<30 || memory.waits > 0)
			}

			// A long one does not begin when there is no memory, a short one does.
			full := &oneMemory{t: t, limit: 10, used: 10, others: func() int64 { return 0 }}
			for _, snap := range want {
				h, err := s.ReadHistory(t.Context(), thread.HistoryQuery{Thread: "t", Before: snap.ID + "0", Limit: 1, Memory: full})
				if len(snap.Values) > 1<<20 {
					require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
				} else if len(snap.Values) < 100_000 {
					require.NoError(t, err)
				}
				if err == nil {
					h.Close()
				}
				require.EqualValues(t, 10, full.used)
			}
		})
	}
}
