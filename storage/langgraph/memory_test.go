package langgraph_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/jsonplus"
	"understudy/store"
	"understudy/thread"
	"understudy/transfer"
)

// The large worlds are made of that many of everything, of that size.
const many, large = 18, 1 << 20

// text is a text that nothing compresses or shares.
func text(t testing.TB, size int) string {
	t.Helper()
	b := make([]byte, size*3/4)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(b)
}

// fillLarge puts as much of everything that moves as a page of the small may have: lists of
// messages that each step rewrites, writes, values of their own, items and threads.
func (w *world) fillLarge(t testing.TB) {
	t.Helper()
	name, parent := id.Thread(uuid.NewString()), id.Checkpoint("")
	for n := range many {
		p := &checkpointer.Put{}
		p.Thread, p.ID, p.Parent = name, id.Checkpoint(fmt.Sprintf("1f0%05d-0000-6000-8000-%012d", n, n)), parent
		list := msgp.AppendArrayHeader(nil, 4)
		for m := range 4 {
			list = append(list, message(t, "human", text(t, large/4), fmt.Sprintf("m%d-%d", n, m))...)
		}
		p.Blobs = []checkpointer.Blob{
			{Channel: "messages", Version: fmt.Sprintf("%032d.0.1", n), Type: jsonplus.TypeMsgpack, Data: list},
			{Channel: "file", Version: fmt.Sprintf("%032d.0.1", n), Type: jsonplus.TypeMsgpack, Data: msgp.AppendString(nil, text(t, large))},
		}
		p.Data = fmt.Appendf(nil, `{"v":4,"id":%q,"channel_values":{"note":%q},"channel_versions":{"messages":"%[3]s","file":"%[3]s","note":"%[3]s"},"versions_seen":{}}`,
			p.ID, text(t, large), fmt.Sprintf("%032d.0.1", n))
		p.Metadata = fmt.Appendf(nil, `{"source":"loop","step":%d,"graph_id":"agent","thread_id":%q}`, n, name)
		write := checkpointer.Write{TaskID: "t", Channel: "messages", Type: jsonplus.TypeMsgpack, Data: message(t, "ai", text(t, large), "w"), Path: "~__pregel_pull, model"}
		require.NoError(t, w.Threads().Write(t.Context(), func(tx thread.Tx) error {
			if n == 0 {
				if err := tx.InsertThread(&thread.Thread{
					ID: name, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(2, 0), StateUpdatedAt: time.Unix(2, 0),
					Metadata: []byte(`{"graph_id":"agent"}`), Config: []byte("{}"), Status: thread.Idle,
				}); err != nil {
					return err
				}
			}
			if err := tx.PutCheckpoint(p); err != nil {
				return err
			}
			return tx.PutWrites(p.Key, []checkpointer.Write{write})
		}))
		parent = p.ID
	}
	for n := range many {
		require.NoError(t, w.Threads().Write(t.Context(), func(tx thread.Tx) error {
			return tx.InsertThread(&thread.Thread{
				ID: id.Thread(uuid.NewString()), CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(2, 0), StateUpdatedAt: time.Unix(2, 0),
				Metadata: fmt.Appendf(nil, `{"pad":%q}`, text(t, large)), Config: []byte("{}"), Status: thread.Idle,
			})
		}))
		i := &store.Item{Namespace: []string{"a"}, Key: fmt.Sprint(n), Value: fmt.Appendf(nil, `{"pad":%q}`, text(t, large)), CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0)}
		require.NoError(t, w.Items().Apply(t.Context(), []*store.Item{i}))
	}
}

// most returns how much live memory fn had at once.
func most(fn func()) uint64 {
	// Garbage is collected at once, so that what is counted is what is held.
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, top := m.HeapAlloc, m.HeapAlloc
	over := make(chan struct{})
	go func() {
		defer close(over)
		fn()
	}()
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-over:
			return top - before
		case <-every.C:
			runtime.ReadMemStats(&m)
			top = max(top, m.HeapAlloc)
		}
	}
}

// Moving holds a few checkpoints, events, threads and items at a time, however large they are and
// wherever they come from.
func TestMemoryOfMoving(t *testing.T) {
	const limit = 80 * large // 16 checkpoints have 64, as many events and items 48
	moves := func(t *testing.T, name string, fn func() *transfer.Result) {
		t.Helper()
		var result *transfer.Result
		top := most(func() { result = fn() })
		require.Empty(t, result.Problems)
		t.Logf("%s: %d MB", name, top>>20)
		if top > limit {
			t.Errorf("%s held %d MB of memory", name, top>>20)
		}
	}
	into := func(t *testing.T, w *world, src transfer.Source) func() *transfer.Result {
		return func() *transfer.Result {
			r, err := w.importer().Run(t.Context(), src)
			require.NoError(t, err)
			return r
		}
	}
	for kind, newWorld := range kinds {
		t.Run(kind, func(t *testing.T) {
			a := newWorld(t)
			a.fillLarge(t)
			for _, s := range sinks {
				if s.name != kind {
					continue
				}
				sink, source := s.open(t)
				to := sink()
				moves(t, "export to "+s.name, func() *transfer.Result { return a.export(t, to) })
				require.NoError(t, to.Close())
				from := source()
				moves(t, "import from "+s.name, into(t, newWorld(t), from))
				require.NoError(t, from.Close())
			}
			from := a.open()
			moves(t, "import from "+kind+" of ours", into(t, newWorld(t), from))
			require.NoError(t, from.Close())
		})
	}
}
