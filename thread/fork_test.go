package thread_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/seedtest"
	"understudy/storage/postgres/migratedtest"
	"understudy/thread"
)

// talk is the model of a thread: what it showed and what the graph knew behind each of its events.
type talk struct {
	id   id.Thread
	at   []moment // in order of seq
	head moment
}

// moment is a conversation behind an event.
type moment struct {
	seq        eventstore.Seq
	shown      []string
	list       []string      // of the graph: without answers that were not saved
	checkpoint id.Checkpoint // "" before the first
	inside     bool          // a step that continues
}

// talks are threads that are forked and continued at random.
type talks struct {
	t      *testing.T
	r      rows
	random *rand.Rand
	s      *thread.Service
	log    *thread.Log
	clock  int
	all    []*talk
}

func (w *talks) name(kind string) string {
	w.clock++
	return fmt.Sprintf("%s%07d", kind, w.clock)
}

func (w *talks) write(fn func(tx thread.Tx) error) {
	w.t.Helper()
	require.NoError(w.t, w.r.Threads().Write(w.t.Context(), fn))
}

// add notes that a transaction appended events, up to this seq.
func (k *talk) add(upTo eventstore.Seq, now moment) {
	for seq := k.head.seq + 1; seq <= upTo; seq++ {
		now.seq, now.inside = seq, seq < upTo && now.inside
		k.at = append(k.at, moment{seq, now.shown, now.list, now.checkpoint, seq < upTo})
	}
	now.seq, now.inside = upTo, false
	k.head = now
}

// trace appends an event of no checkpoint.
func (w *talks) trace(k *talk, r id.Run) {
	w.write(func(tx thread.Tx) error {
		return tx.AppendEvents(k.id, []*eventstore.Event{{Run: r, Type: "run.start", Category: eventstore.CategoryTrace, Content: []byte(`{}`), Metadata: []byte(`{}`), CreatedAt: base}})
	})
	k.add(k.head.seq+1, k.head)
}

// step saves a checkpoint with some more messages, and a checkpoint of a subgraph.
func (w *talks) step(k *talk, r id.Run, more int) {
	now := k.head
	now.checkpoint = id.Checkpoint(w.name("c"))
	for range more {
		m := w.name("m")
		now.shown, now.list = append(slices.Clip(now.shown), m), append(slices.Clip(now.list), m)
	}
	list := msgp.AppendArrayHeader(nil, uint32(len(now.list)))
	for _, m := range now.list {
		list = msgp.AppendMapHeader(list, 3)
		for _, pair := range [][2]string{{"type", "human"}, {"id", m}, {"content", "said " + m}} {
			list = msgp.AppendString(msgp.AppendString(list, pair[0]), pair[1])
		}
	}
	version := fmt.Sprintf("%07d", w.clock)
	data := fmt.Sprintf(`{"id":%q,"channel_versions":{"messages":%q,"own":%q},"channel_values":{}}`, now.checkpoint, version, version)
	metadata := fmt.Sprintf(`{"source":"loop","step":1,"run_id":%q}`, r)
	own := msgp.AppendString(nil, "of "+string(k.id))
	root := &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{Key: checkpointer.Key{Thread: k.id, ID: now.checkpoint}, Parent: k.head.checkpoint, Run: r, Data: json.RawMessage(data), Metadata: json.RawMessage(metadata)},
		Blobs:      []checkpointer.Blob{{Channel: "messages", Version: version, Type: "msgpack", Data: list}, {Channel: "own", Version: version, Type: "msgpack", Data: own}},
	}
	w.write(func(tx thread.Tx) error {
		if err := errors.Join(tx.PutCheckpoint(root), eventstore.Record(tx, eventstore.FactsOf(root))); err != nil {
			return err
		}
		return tx.PutWrites(root.Key, []checkpointer.Write{{TaskID: "t", Channel: "x", Type: "msgpack", Data: own}, {TaskID: "t", Index: -3, Channel: "__interrupt__", Type: "msgpack", Data: own}})
	})
	k.add(k.head.seq+eventstore.Seq(more), now)
}

// partial appends an answer that was not saved.
func (w *talks) partial(k *talk, r id.Run) {
	if k.head.checkpoint == "" {
		return
	}
	m := w.name("p")
	w.write(func(tx thread.Tx) error {
		_, err := eventstore.RecordPartial(tx, k.id, k.head.checkpoint, r, base, []eventstore.Partial{{ID: m, Message: []byte(`{"type":"ai","id":"` + m + `","content":"x"}`)}})
		return err
	})
	now := k.head
	now.shown = append(slices.Clip(now.shown), m)
	k.add(k.head.seq+1, now)
}

// talk continues a thread by a run.
func (w *talks) run(k *talk) {
	r := id.Run(w.name("r"))
	w.trace(k, r)
	for range 1 + w.random.IntN(3) {
		w.step(k, r, w.random.IntN(3))
		if w.random.IntN(4) == 0 {
			w.trace(k, r)
		}
	}
	if w.random.IntN(4) == 0 {
		w.partial(k, r)
	}
	w.trace(k, r)
}

// fork forks a thread at an event, and returns the fork; nil when it was refused, as it has to be.
func (w *talks) fork(k *talk, n int) *talk {
	w.t.Helper()
	at := k.at[n]
	v, err := w.s.ForkAt(w.t.Context(), k.id, thread.Fork{Seq: at.seq, Without: []string{"own"}})
	if at.inside {
		require.True(w.t, fault.Is(err, fault.Unprocessable), "event %d of %s: %v", at.seq, k.id, err)
		return nil
	}
	require.NoError(w.t, err, "event %d of %s", at.seq, k.id)
	f := &talk{id: v.ID, at: slices.Clone(k.at[:n+1]), head: at}
	f.head.checkpoint = v.Head
	f.add(at.seq+1, f.head) // thread.fork
	return f
}

// check compares a thread with its model.
func (w *talks) check(k *talk) {
	w.t.Helper()
	ctx := w.t.Context()
	page, err := w.log.Messages(ctx, eventstore.PageQuery{Thread: k.id, Limit: 1000})
	require.NoError(w.t, err)
	shown := []string{}
	for {
		e, err := page.Next(ctx, 0)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(w.t, err)
		shown = append(shown, e.MessageID)
		require.NotEmpty(w.t, e.Content)
	}
	require.Equal(w.t, append([]string{}, k.head.shown...), shown, "messages of %s", k.id)
	snap, err := w.s.State(ctx, checkpointer.Key{Thread: k.id}, false)
	require.NoError(w.t, err)
	list := []string{}
	for _, m := range gjson.GetBytes(snap.Values, "messages").Array() {
		list = append(list, m.Get("id").Str)
	}
	require.Equal(w.t, append([]string{}, k.head.list...), list, "state of %s", k.id)
}

func newTalks(t *testing.T, r rows, seed uint64) *talks {
	log, ok := r.Threads().(thread.LogStore)
	require.True(t, ok)
	snapshots := checkpointer.NewSnapshots(r.Threads(), thread.Explainer{Store: r.Threads()})
	return &talks{
		t: t, r: r, random: rand.New(rand.NewPCG(seed, 1)), log: thread.NewLog(log, nil),
		s: thread.NewService(thread.Options{Store: r.Threads(), Snapshots: snapshots, Now: func() time.Time { return base }}),
	}
}

// Threads are forked at any of their events, and forks again, while all continue and some go. Each shows what its source did up to the fork, then its own, and the graph
// continues from the state of that time.
func TestForksKeepTheConversation(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		for seed := range seedtest.Seeds(12) {
			t.Run(fmt.Sprint(engine, seed), func(t *testing.T) {
				where := t.TempDir()
				if engine == "postgres" {
					where = migratedtest.Database(t)
				}
				r := open(t, where)
				t.Cleanup(func() { require.NoError(t, r.Close()) })
				w := newTalks(t, r, seed)
				v, err := w.s.Create(context.Background(), thread.New{})
				require.NoError(t, err)
				w.all = []*talk{{id: v.ID}}
				w.run(w.all[0])
				for range 40 {
					i := w.random.IntN(len(w.all))
					k := w.all[i]
					switch w.random.IntN(8) {
					case 0, 1, 2:
						w.run(k)
					case 3, 4, 5:
						if f := w.fork(k, w.random.IntN(len(k.at))); f != nil {
							w.check(f)
							w.all = append(w.all, f)
						}
					case 6:
						if len(w.all) > 1 {
							require.NoError(t, w.s.Delete(t.Context(), k.id))
							w.all = slices.Delete(w.all, i, i+1)
						}
					case 7:
						_, err := w.s.ForkAt(t.Context(), k.id, thread.Fork{Seq: k.head.seq + 1})
						require.True(t, fault.Is(err, fault.Unprocessable), "%v", err)
					}
				}
				for _, k := range w.all {
					w.check(k)
				}
			})
		}
	}
}

// A fork has no values of its own channels, and nothing of what followed the checkpoint that it continues from.
func TestForkLeavesOutWhatIsOfItsSourceAlone(t *testing.T) {
	t.Parallel()
	w := newTalks(t, open(t, t.TempDir()), 1)
	t.Cleanup(func() { require.NoError(t, w.r.Close()) })
	v, err := w.s.Create(t.Context(), thread.New{})
	require.NoError(t, err)
	k := &talk{id: v.ID}
	w.step(k, "r1", 1)
	w.step(k, "r2", 1)
	for n, writes := range []int{1, 2} { // the first continues: only its question is left
		f := w.fork(k, n)
		at, err := w.r.Threads().LoadCheckpoint(t.Context(), checkpointer.Key{Thread: f.id})
		require.NoError(t, err)
		require.Len(t, at.Writes, writes)
		require.Len(t, at.Blobs, 1)
		require.Equal(t, "messages", at.Blobs[0].Channel)
	}
	copied, err := w.s.Copy(t.Context(), k.id)
	require.NoError(t, err)
	require.Equal(t, 3, events(t, w.r, copied.ID))
}

// A fork of an early event takes as much room however long its source has become.
func TestForksAreAsSmallAsTheirPart(t *testing.T) {
	t.Parallel()
	w := newTalks(t, open(t, t.TempDir()), 1)
	t.Cleanup(func() { require.NoError(t, w.r.Close()) })
	v, err := w.s.Create(t.Context(), thread.New{})
	require.NoError(t, err)
	k := &talk{id: v.ID}
	var sizes []thread.Usage
	for range 3 {
		for range 20 {
			w.step(k, id.Run(w.name("r")), 1)
		}
		u, err := w.r.Threads().Usage(t.Context(), w.fork(k, 9).id)
		require.NoError(t, err)
		sizes = append(sizes, u)
	}
	require.Equal(t, sizes[0], sizes[1])
	require.Equal(t, sizes[0], sizes[2])
	require.Equal(t, 10, sizes[0].Checkpoints.Rows)
}
