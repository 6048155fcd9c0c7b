package eventstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/storage/sqlite"
	"understudy/thread"
)

// database is a storage that talks are played into.
type database struct {
	*sqlite.Store
	t testing.TB
}

func open(t testing.TB) database {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return database{s, t}
}

var textChannel = map[style]string{summaryText: "summary_text", howTo: "summary"}

// put is a moment as a graph saves it.
func (m *moment) put(t *talk, thread id.Thread, foreign bool) *checkpointer.Put {
	versions, values := map[string]string{"messages": m.version, "other": "o" + m.id}, map[string]string{}
	if m.version == "" {
		delete(versions, "messages")
	}
	if m.textVersion != "" {
		versions[textChannel[t.style]], values[textChannel[t.style]] = m.textVersion, m.text
	}
	at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(m.step) * time.Second)
	metadata := map[string]any{"source": m.source, "step": m.step}
	p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Key: checkpointer.Key{Thread: thread, ID: id.Checkpoint(m.id)}, Parent: id.Checkpoint(m.parent), Run: id.Run(m.run),
	}}
	if foreign { // no column names the run
		metadata["run_id"], p.Run = m.run, ""
	}
	p.Data = marshal(map[string]any{"v": 4, "ts": at.Format(time.RFC3339Nano), "id": m.id, "channel_versions": versions, "channel_values": values})
	p.Metadata = marshal(metadata)
	if m.version == "v"+m.id {
		list := make([]message, len(m.list))
		for i, s := range m.list {
			list[i] = s.message
		}
		p.Blobs = []checkpointer.Blob{{Channel: "messages", Version: m.version, Type: "msgpack", Data: pack(list...)}}
	}
	return p
}

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// how is the way a talk gets into a database: which checkpoints are recorded when they are saved, whether it has runs and paths of tasks, and
// after how many checkpoints the thread is copied and continues as the copy (0: it is not).
type how struct {
	recordFrom int
	foreign    bool
	copyAt     int
}

// play puts a talk into a thread, and returns the thread that has it in the end.
func (d database) play(t *talk, thread id.Thread, h how) id.Thread {
	d.t.Helper()
	was := thread
	for from := 0; from < len(t.steps); {
		to := min(from+1+t.r.IntN(20), len(t.steps))
		if from < h.copyAt {
			to = min(to, h.copyAt)
		}
		if from > 0 && from == h.copyAt {
			thread = was + "-copy"
			d.copy(was, thread)
		}
		require.NoError(d.t, d.Runs().Write(context.Background(), func(tx run.Tx) error {
			for i, m := range t.steps[from:to] {
				if err := save(tx, t, m, thread, h.foreign, from+i >= h.recordFrom); err != nil {
					return err
				}
			}
			return nil
		}))
		from = to
	}
	return thread
}

// copy copies what there is of a thread, which has no row otherwise.
func (d database) copy(from, to id.Thread) {
	d.t.Helper()
	ctx := context.Background()
	require.NoError(d.t, d.Threads().Write(ctx, func(tx thread.Tx) error {
		return tx.InsertThread(&thread.Thread{ID: from, Status: thread.Idle})
	}))
	require.NoError(d.t, d.CopyThread(ctx, from, to, nil, func(thread.Tx, *thread.Thread) error { return nil }))
}

func save(tx run.Tx, t *talk, m *moment, thread id.Thread, foreign, record bool) error {
	if (m.input != "" || m.command != "") && !foreign {
		r := &run.Run{ID: id.Run(string(thread) + m.run), Thread: thread, Status: run.Success, Strategy: run.Enqueue}
		r.Kwargs.Input, r.Kwargs.Command = json.RawMessage(m.input), json.RawMessage(m.command)
		if err := tx.InsertRun(r); err != nil {
			return err
		}
	}
	if m.writes != nil {
		w := checkpointer.Write{TaskID: "00000000-0000-0000-0000-000000000000", Channel: "messages", Type: "msgpack", Data: pack(m.writes...)}
		if m.writesPath != "" {
			w.TaskID, w.Path = "start"+m.id, m.writesPath
		}
		if foreign {
			w.Path = "" // as langgraph-checkpoint-sqlite
		}
		if err := tx.PutWrites(checkpointer.Key{Thread: thread, ID: id.Checkpoint(m.parent)}, []checkpointer.Write{w}); err != nil {
			return err
		}
	}
	p := m.put(t, thread, foreign)
	if p.Run != "" {
		p.Run = id.Run(thread) + p.Run
	}
	if err := tx.PutCheckpoint(p); err != nil || !record {
		return err
	}
	f := eventstore.FactsOf(p)
	f.Deleted = m.deleted
	return eventstore.Record(tx, f)
}

// crashing is an Archive that fails now and then: before its transaction, in it, or after it was committed.
type crashing struct {
	eventstore.Archive
	r *rand.Rand
}

var errCrash = errors.New("crash")

func (c crashing) Backfill(ctx context.Context, fn func(eventstore.BackfillTx) error) error {
	k := c.r.IntN(9)
	if k == 0 {
		return errCrash
	}
	err := c.Archive.Backfill(ctx, func(tx eventstore.BackfillTx) error {
		if err := fn(tx); err != nil || k != 1 {
			return err
		}
		return errCrash
	})
	if k == 2 && err == nil {
		err = errCrash
	}
	return err
}

// backfill ensures a thread with a new Backfiller after each crash, as a server that is started again.
func (d database) backfill(r *rand.Rand, thread id.Thread) {
	d.t.Helper()
	for {
		b := eventstore.NewBackfiller(crashing{d, r})
		eventstore.SetBatch(b, 1+r.IntN(20), 1+r.IntN(4000))
		err := b.Ensure(context.Background(), thread, "")
		if err == nil {
			return
		}
		require.ErrorIs(d.t, err, errCrash)
	}
}

// shown is what a person sees at a checkpoint, as lines of a moment say it.
func (d database) shown(thread id.Thread, c id.Checkpoint) []string {
	d.t.Helper()
	tr, err := eventstore.TranscriptAt(context.Background(), d, thread, c)
	require.NoError(d.t, err)
	require.NotNil(d.t, tr, "nothing was recorded for checkpoint %s of thread %s", c, thread)
	out := []string{}
	require.NoError(d.t, d.EachContent(context.Background(), thread, eventstore.Ranges(tr.Entries), func(e *eventstore.Event) error {
		var body struct {
			Content, Summary string
			ReplacedCount    int `json:"replaced_count"`
		}
		err := json.Unmarshal(e.Content, &body)
		if e.Type == eventstore.TypeSummarize {
			body.Content = fmt.Sprintf("[%d: %s]", body.ReplacedCount, body.Summary)
		}
		out = append(out, body.Content)
		return err
	}))
	return out
}

// log is the log of a thread without what names the thread.
func (d database) log(thread id.Thread) []*eventstore.Event {
	d.t.Helper()
	events, err := d.Events(context.Background(), thread, 0, 0)
	require.NoError(d.t, err)
	for i, e := range events {
		require.Equal(d.t, eventstore.Seq(i+1), e.Seq, "a gap in the log")
		e.Thread = ""
	}
	return events
}

// Live recording, backfilling afterwards, and what a person saw agree at every checkpoint, and so does the log of events, wherever
// backfilling was interrupted.
//
// What backfilling cannot know:
//   - messages that a run's input removed, where the run wrote one checkpoint only and its row is gone (a database of another program);
//   - condensed messages that a client deleted: the graph does not learn of that, so no checkpoint shows it.
func TestTalks(t *testing.T) {
	t.Parallel()
	const (
		talks, length = 40, 60
		enough        = 15 * time.Second // for slow machines and the race detector
	)
	live, own, foreign, partly := open(t), open(t), open(t), open(t)
	checkpoints, began := 0, time.Now()
	for seed := range seedtest.Seeds(talks) {
		if time.Since(began) > enough {
			t.Logf("the machine is slow: %d talks have to do", seed)
			break
		}
		ordered := seed%4 != 3
		talk := newTalk(seed, ordered)
		talk.play(length, ordered)
		checkpoints += len(talk.steps)
		copyAt := 0
		if seed%3 == 0 {
			copyAt = 1 + talk.r.IntN(length-1)
		}
		thread := id.Thread(fmt.Sprint("t", seed))
		type side struct {
			name   string
			d      database
			h      how
			thread id.Thread
		}
		sides := []side{
			{"live", live, how{copyAt: copyAt}, ""},
			{"backfilled", own, how{recordFrom: len(talk.steps), copyAt: copyAt}, ""},
			{"backfilled from a foreign database", foreign, how{recordFrom: len(talk.steps), foreign: true}, ""},
			{"partly recorded", partly, how{recordFrom: 1 + talk.r.IntN(len(talk.steps))}, ""},
		}
		for i := range sides {
			s := &sides[i]
			s.thread = s.d.play(talk, thread, s.h)
			if i > 0 {
				s.d.backfill(talk.r, s.thread)
			}
			for _, m := range talk.steps {
				if i > 0 && m.unknown || s.h.foreign && m.unstored {
					continue
				}
				want := []string{}
				for _, l := range m.shown {
					want = append(want, l.text)
				}
				if diff := cmp.Diff(want, s.d.shown(s.thread, id.Checkpoint(m.id))); diff != "" {
					t.Fatalf("seed %d, style %d, %s, checkpoint %s after %s (-seen +%s)\n%s", seed, talk.style, m.source, m.id, m.parent, s.name, diff)
				}
			}
		}
		if last := talk.steps[len(talk.steps)-1]; ordered && !talk.hides() && copyAt == 0 {
			if diff := cmp.Diff(live.log(thread), own.log(thread)); diff != "" {
				t.Fatalf("seed %d, checkpoint %s: the log (-live +backfilled)\n%s", seed, last.id, diff)
			}
		}
	}
	t.Logf("%d checkpoints", checkpoints)
}

// hides reports whether a talk has a change that no checkpoint shows.
func (t *talk) hides() bool {
	for _, m := range t.steps {
		if m.unknown {
			return true
		}
	}
	return false
}
