package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"zombiezen.com/go/sqlite"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/storage/internal/relational"
	"understudy/thread"
)

// model is what a database must hold, kept as simply as can be: every value as it was written.
type model map[id.Thread]*modelThread

type modelThread struct {
	checkpoints map[modelKey]*modelCheckpoint
	blobs       map[modelBlob]checkpointer.Blob
	step        int
}

type (
	modelKey        struct{ ns, id string }
	modelBlob       struct{ ns, channel, version string }
	modelCheckpoint struct {
		run      id.Run
		versions map[string]string
	}
)

func (m model) clone() model {
	out := model{}
	for t, th := range m {
		out[t] = &modelThread{maps.Clone(th.checkpoints), maps.Clone(th.blobs), th.step}
	}
	return out
}

func (th *modelThread) drop(k modelKey) {
	c := th.checkpoints[k]
	delete(th.checkpoints, k)
	for channel, version := range c.versions {
		if !th.names(modelBlob{k.ns, channel, version}) {
			delete(th.blobs, modelBlob{k.ns, channel, version})
		}
	}
}

func (th *modelThread) names(b modelBlob) bool {
	for k, c := range th.checkpoints {
		if k.ns == b.ns && c.versions[b.channel] == b.version {
			return true
		}
	}
	return false
}

// head is the newest checkpoint of a namespace.
func (th *modelThread) head(ns string) (head string) {
	for k := range th.checkpoints {
		if k.ns == ns {
			head = max(head, k.id)
		}
	}
	return head
}

var modelNamespaces = []string{"", "", "", "sub:1", "sub:2"}

// randomList makes the value that follows another: mostly something is added.
func randomList(r *rand.Rand, before []byte) []byte {
	items, err := (&checkpointer.Blob{Data: before}).SplitList()
	if err != nil {
		items = nil
	}
	items = slices.Clone(items)
	text := func() []byte {
		size := []int{1, 20, 100, 200, 700, 6000}[r.IntN(6)]
		return msgp.AppendString(nil, fmt.Sprintf("%d %s", r.IntN(1000), bytes.Repeat([]byte{byte('a' + r.IntN(3))}, size)))
	}
	for range 1 + r.IntN(4) {
		switch n := len(items); r.IntN(14) {
		case 0: // one changes
			if n > 0 {
				items[r.IntN(n)] = text()
			}
		case 1: // the oldest go
			items = items[r.IntN(n+1):]
		case 2: // the list is turned round
			slices.Reverse(items)
		case 3:
			items = slices.Insert(items, r.IntN(n+1), text())
		case 4: // in no order: a value names chunks
			for range 150 {
				items = append(items, msgp.AppendString(nil, fmt.Sprintf("%0140d", r.IntN(2000))))
			}
			r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		default:
			for range r.IntN(12) {
				items = append(items, text())
			}
		}
	}
	if r.IntN(20) == 0 {
		return text() // no list at all
	}
	data := joined(items)
	if r.IntN(20) == 0 && len(items) > 15 && len(items) < 1<<16 { // a longer header than is needed
		data = append([]byte{0xdd, 0, 0}, data[1:]...)
	}
	return data
}

// put makes a checkpoint that follows the head of a namespace, in the model too.
func (m model) put(r *rand.Rand, t id.Thread) *checkpointer.Put {
	th := m[t]
	if th == nil {
		th = &modelThread{checkpoints: map[modelKey]*modelCheckpoint{}, blobs: map[modelBlob]checkpointer.Blob{}}
		m[t] = th
	}
	ns := modelNamespaces[r.IntN(len(modelNamespaces))]
	head := th.head(ns)
	versions := map[string]string{}
	if c := th.checkpoints[modelKey{ns, head}]; c != nil {
		versions = maps.Clone(c.versions)
	}
	th.step++
	k := modelKey{ns, fmt.Sprintf("%06d", th.step)}
	p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Key: checkpointer.Key{Thread: t, NS: ns, ID: id.Checkpoint(k.id)}, Parent: id.Checkpoint(head), Run: id.Run(fmt.Sprint("run", r.IntN(6))),
	}}
	for _, channel := range []string{"messages", "documents", "text"} {
		if r.IntN(3) == 0 {
			// A value of a version that exists stays out.
			if known, ok := th.blobs[modelBlob{ns, channel, versions[channel]}]; ok && r.IntN(4) == 0 {
				p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: channel, Version: known.Version, Type: "msgpack", Data: randomList(r, known.Data)})
			}
			continue
		}
		before := th.blobs[modelBlob{ns, channel, versions[channel]}].Data
		if ns != "" && before == nil {
			before = th.blobs[modelBlob{"", channel, ""}].Data
		}
		// A version may come again after a rollback, for another value.
		version := 1
		for th.names(modelBlob{ns, channel, fmt.Sprint(version)}) {
			version++
		}
		versions[channel] = fmt.Sprint(version)
		b := checkpointer.Blob{Channel: channel, Version: versions[channel], Type: "msgpack", Data: randomList(r, before)}
		p.Blobs = append(p.Blobs, b)
		th.blobs[modelBlob{ns, channel, b.Version}] = b
	}
	text, _ := json.Marshal(map[string]any{"channel_versions": versions})
	p.Data = text
	th.checkpoints[k] = &modelCheckpoint{p.Run, versions}
	return p
}

// requireSame compares a database with the model, and sees that it keeps no part of a list that
// nothing names.
func (m model) requireSame(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	for thread, th := range m {
		tuples, err := s.ListCheckpoints(ctx, checkpointer.List{Thread: thread})
		require.NoError(t, err)
		require.Len(t, tuples, len(th.checkpoints))
		for _, tuple := range tuples {
			one, err := s.LoadCheckpoint(ctx, tuple.Key)
			require.NoError(t, err)
			c := th.checkpoints[modelKey{tuple.NS, string(tuple.ID)}]
			require.NotNil(t, c)
			for _, got := range []*checkpointer.Tuple{tuple, one} {
				require.Len(t, got.Blobs, len(c.versions))
				for i := range got.Blobs {
					b := &got.Blobs[i]
					want := th.blobs[modelBlob{tuple.NS, b.Channel, c.versions[b.Channel]}]
					require.Equal(t, want.Type, b.Type)
					require.True(t, bytes.Equal(want.Data, b.Bytes()), "thread %s, checkpoint %s, channel %s", thread, tuple.ID, b.Channel)
				}
			}
		}
	}
	requireNoGarbage(t, s)
}

// requireNoGarbage sees that the parts of each thread are exactly those that its lists name.
func requireNoGarbage(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, s.snapshot(context.Background(), func(c *sqlite.Conn) error {
		owners := map[int64]id.Thread{}
		kept := map[int64]*compact.Set{}
		if err := query(c, "SELECT owner, thread_id FROM list_owners", func(st *sqlite.Stmt) error {
			owners[st.ColumnInt64(0)] = id.Thread(st.ColumnText(1))
			kept[st.ColumnInt64(0)] = &compact.Set{}
			return nil
		}); err != nil {
			return err
		}
		if err := query(c, "SELECT part FROM list_parts", func(st *sqlite.Stmt) error {
			part := st.ColumnInt64(0)
			require.Contains(t, kept, part>>partBits)
			kept[part>>partBits].Add([]compact.Run{{First: uint32(part & (1<<partBits - 1)), Count: 1}})
			return nil
		}); err != nil {
			return err
		}
		for owner, thread := range owners {
			var used compact.Set
			l := newLoader(c, thread)
			if err := query(c, relational.ListsOf.SQLite, func(st *sqlite.Stmt) error { return l.named(columnBytes(st, 3), &used) }, thread); err != nil {
				return err
			}
			require.Equal(t, used.Runs(), kept[owner].Runs(), "thread %s", thread)
		}
		lost, err := one(c, "SELECT 1 FROM checkpoint_blobs WHERE type = 'list' AND thread_id NOT IN (SELECT thread_id FROM list_owners)", nil)
		require.False(t, lost)
		return err
	}))
}

// Whatever is done to threads, what remains reads back byte for byte. STEPS=2000 asks for longer runs.
func TestListsProperty(t *testing.T) {
	t.Parallel()
	steps := 60
	if text := os.Getenv("STEPS"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runListsProperty(t, rand.New(rand.NewPCG(seed, 1)), steps)
		})
	}
}

var errUndone = errors.New("undone")

func runListsProperty(t *testing.T, r *rand.Rand, steps int) {
	ctx := context.Background()
	opts := Options{Dir: t.TempDir(), Synchronous: "normal"}
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	plans := r.IntN(2) == 0 // what deleting a run deletes is planned outside of its transaction
	m := model{}
	pick := func() id.Thread { return id.Thread(fmt.Sprint("thread", r.IntN(4))) }
	for n := range 4 {
		insertThread(t, s, id.Thread(fmt.Sprint("thread", n)))
	}
	for range steps {
		th := pick()
		next := m.clone()
		if plans {
			s.longThread = 1
		}
		var fn func(tx *Tx) error
		switch r.IntN(20) {
		case 0:
			run := id.Run(fmt.Sprint("run", r.IntN(6)))
			if known := next[th]; known != nil {
				for k, c := range known.checkpoints {
					if c.run == run {
						known.drop(k)
					}
				}
			}
			fn = func(tx *Tx) error { return tx.DeleteRunCheckpoints(th, run, false) }
		case 1:
			if known := next[th]; known != nil {
				for k := range known.checkpoints {
					if known.head(k.ns) != k.id {
						known.drop(k)
					}
				}
			}
			plan, err := s.PlanPrune(ctx, th, 1+r.IntN(5))
			require.NoError(t, err)
			for _, step := range plan.Steps {
				fn := func(tx *Tx) error { return tx.PruneStep(th, &step) }
				if r.IntN(6) == 0 { // it is undone, and taken again
					require.ErrorIs(t, s.write(ctx, func(tx *Tx) error { return errorOf(fn(tx), errUndone) }), errUndone)
				}
				require.NoError(t, s.write(ctx, fn))
				requireNoGarbage(t, s)
			}
			m = next
			continue
		case 2:
			delete(next, th)
			fn = func(tx *Tx) error { return tx.deleteCheckpoints(th) }
		case 3:
			to := pick()
			if next[th] == nil || to == th {
				continue
			}
			next[to] = &modelThread{maps.Clone(next[th].checkpoints), maps.Clone(next[th].blobs), next[th].step}
			require.NoError(t, s.write(ctx, func(tx *Tx) error { return tx.deleteCheckpoints(to) }))
			s.copyRows = 1 + r.IntN(20)
			require.NoError(t, s.CopyThread(ctx, th, to, nil, func(thread.Tx, *thread.Thread) error { return nil }))
			m = next
			continue
		case 4:
			require.NoError(t, s.Close())
			s, err = Open(ctx, opts)
			require.NoError(t, err)
			continue
		case 5:
			m.requireSame(t, crashed(t, opts.Dir))
			continue
		default:
			var puts []*checkpointer.Put
			for range 1 + r.IntN(4) {
				puts = append(puts, next.put(r, th))
			}
			fn = func(tx *Tx) error {
				for _, p := range puts {
					if err := tx.PutCheckpoint(p); err != nil {
						return err
					}
				}
				return nil
			}
		}
		if r.IntN(6) == 0 { // it is undone
			require.ErrorIs(t, s.write(ctx, func(tx *Tx) error { return errorOf(fn(tx), errUndone) }), errUndone)
			continue
		}
		require.NoError(t, s.write(ctx, fn))
		m = next
	}
	m.requireSame(t, s)
}

// crashed opens a copy of the files of a database that is open, as they are now.
func crashed(t *testing.T, dir string) *Store {
	t.Helper()
	to := t.TempDir()
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, fileName+suffix))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, fileName+suffix), data, 0o600))
	}
	s, err := Open(context.Background(), Options{Dir: to})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// joined returns a list of items as the msgpack array they are cut from.
func joined(items [][]byte) []byte {
	dst := msgp.AppendArrayHeader(nil, uint32(len(items)))
	for _, item := range items {
		dst = append(dst, item...)
	}
	return dst
}
