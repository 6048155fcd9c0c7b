package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonplus"
	"understudy/run"
	"understudy/run/service"
	"understudy/storage/sqlite"
)

// speaker is a graph that answers word by word, in several steps. Before each event it asks whether to go on.
type speaker struct {
	graph.Graph
	modes  func() bool // tuples rather than whole messages
	before func(ctx context.Context, inv graph.Invocation, event int) error
	n      atomic.Int32 // of answers
}

const answerWords = 5

func (g *speaker) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		events := 0
		k := &talk{inv: inv, ctx: ctx, emit: func(e graph.Event) { yield(e, nil) }}
		fail := func() error {
			events++
			return g.before(ctx, inv, events)
		}
		said, step := "", 1
		if head, err := inv.Saver.Load(ctx, head(inv)); err == nil && head != nil {
			said, step = spokenAt(head), int(gjson.GetBytes(head.Metadata, "step").Int())+1
		}
		if len(inv.Input) > 0 {
			said = strings.TrimSpace(said + " h" + fmt.Sprint(step))
			k.values(k.save(said), said)
			step++
		}
		for range 2 {
			mid, text := fmt.Sprintf("a%d-%d", step, g.n.Add(1)), ""
			for i := range answerWords {
				if err := fail(); err != nil {
					yield(graph.Event{}, err)
					return
				}
				word := fmt.Sprintf("%s.%d ", mid, i)
				text += word
				if i == 1 { // what a subgraph says is no answer of the run
					g.inner(k, mid, step)
				}
				where := fmt.Sprintf(`{"langgraph_step":%d,"langgraph_checkpoint_ns":"model:1"}`, step)
				switch {
				case g.modes():
					k.token("messages", fmt.Sprintf(`{"type":"AIMessageChunk","id":%q,"content":%q}`, mid, word), where)
				case i == 0:
					k.emit(graph.Event{Name: "messages/metadata", Data: json.RawMessage(fmt.Sprintf(`{%q:{"metadata":%s}}`, mid, where))})
					fallthrough
				default:
					k.emit(graph.Event{Name: "messages/partial", Data: json.RawMessage(fmt.Sprintf(`[{"type":"ai","id":%q,"content":%q}]`, mid, text))})
				}
			}
			if err := fail(); err != nil {
				yield(graph.Event{}, err)
				return
			}
			said += " " + mid
			k.values(k.save(said), said)
			step++
		}
	}
}

// innerPrefix begins the ids of messages that a subgraph streams and that no checkpoint of the root has.
const innerPrefix = "inner-"

func (g *speaker) inner(k *talk, mid string, step int) {
	mid = innerPrefix + mid
	where := fmt.Sprintf(`{"langgraph_step":%d,"langgraph_checkpoint_ns":"tools:1|model:2"}`, step)
	if g.modes() {
		k.token("messages", fmt.Sprintf(`{"type":"AIMessageChunk","id":%q,"content":"inner"}`, mid), where)
		return
	}
	k.emit(graph.Event{Name: "messages/metadata", Data: json.RawMessage(fmt.Sprintf(`{%q:{"metadata":%s}}`, mid, where))})
	k.emit(graph.Event{Name: "messages/partial", Data: json.RawMessage(fmt.Sprintf(`[{"type":"ai","id":%q,"content":"inner"}]`, mid))})
}

func head(inv graph.Invocation) checkpointer.Key {
	return checkpointer.Key{Thread: inv.Thread, ID: inv.At.ID}
}

// spokenAt are the ids of the messages of a checkpoint.
func spokenAt(t *checkpointer.Tuple) string {
	var ids []string
	for _, b := range t.Blobs {
		text, err := jsonplus.AppendJSON(nil, b.Type, b.Data)
		if err != nil {
			panic(err)
		}
		for _, m := range gjson.ParseBytes(text).Array() {
			ids = append(ids, m.Get("id").String())
		}
	}
	return strings.Join(ids, " ")
}

// line is a message of a transcript: its id, and whether it is partial.
type line struct {
	id, text string
	partial  bool
}

func (w *world) feed(t id.Thread) (out []line) {
	w.t.Helper()
	page, err := w.rows.MessagePage(w.t.Context(), eventstore.PageQuery{Thread: t, Limit: 1000})
	require.NoError(w.t, err)
	for _, e := range page.Rows {
		out = append(out, line{e.MessageID, gjson.GetBytes(e.Content, "content").String(), gjson.GetBytes(e.Metadata, "partial").Bool()})
	}
	return out
}

func linesIDs(lines []line) string {
	var out []string
	for _, l := range lines {
		if l.partial {
			l.id += "*"
		}
		out = append(out, l.id)
	}
	return strings.Join(out, " ")
}

// speaking is a world with a speaker that, in each run, goes on until its turn comes at the event that at names; 0: to the end. What happens
// then is what stop says; nil: it waits until it is stopped.
func speaking(t *testing.T, stop func(context.Context) error, change func(*service.Options)) (w *world, g *speaker, at *atomic.Int32, reached chan id.Run) {
	t.Helper()
	at, reached = &atomic.Int32{}, make(chan id.Run, 10)
	g = &speaker{modes: func() bool { return true }}
	g.before = func(ctx context.Context, inv graph.Invocation, event int) error {
		if event != int(at.Load()) {
			return nil
		}
		reached <- inv.Run
		if stop != nil {
			return stop(ctx)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	w = newWorld(t, nil, change)
	require.NoError(t, w.graphs.Add("g", "", g))
	w.again(func(s *overlay.Settings) {})
	return w, g, at, reached
}

// spoken is a speaking world with a run that has streamed two pieces of an answer and waits; its server ends without grace.
func spoken(t *testing.T, resumable bool) (*world, id.Thread, *run.Run) {
	t.Helper()
	w, _, at, reached := speaking(t, nil, func(o *service.Options) { o.Grace = time.Millisecond })
	th := w.thread()
	at.Store(3)
	req := request("g")
	req.Resumable = resumable
	req.Modes = []string{"values", "messages-tuple"}
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	f.Close(false)
	<-reached
	return w, th, r
}

// again starts the world anew, as another process would.
func (w *world) again(change func(*overlay.Settings)) {
	w.stop()
	settings := overlay.Defaults()
	change(&settings)
	w.overlay = func(rows *sqlite.Store) *overlay.Overlay {
		return overlay.New(rows, overlay.Config{Settings: settings})
	}
	w.start()
}

// saw reads a stream to its end: what a client has of each message, in the order in which it met them.
func saw(t *testing.T, f run.Follower) (ids []string, texts map[string]string) {
	t.Helper()
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	texts = map[string]string{}
	meet := func(mid string) {
		if _, known := texts[mid]; !known && !strings.HasPrefix(mid, innerPrefix) {
			ids = append(ids, mid)
		}
	}
	for {
		records, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return ids, texts
		}
		require.NoError(t, err)
		for _, r := range records {
			m := gjson.GetBytes(r.Data, "0")
			mid, text := m.Get("id").String(), m.Get("content").String()
			switch r.Event {
			case "messages":
				meet(mid)
				texts[mid] += text
			case "messages/partial":
				meet(mid)
				texts[mid] = text
			case "values":
				for _, m := range gjson.GetBytes(r.Data, "messages").Array() {
					mid := m.Get("id").String()
					meet(mid)
					if _, streamed := texts[mid]; !streamed {
						texts[mid] = m.Get("content").String()
					}
				}
			}
		}
	}
}

// Whenever a run is cancelled, what is shown afterwards is what its client saw in the stream, and the conversation goes on after it.
func TestWhateverWasStreamedStays(t *testing.T) {
	t.Parallel()
	w, g, at, reached := speaking(t, nil, nil)
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 4))
		tuples := seed%2 == 0
		g.modes = func() bool { return tuples }
		th := w.thread()
		var before []string
		for turn := range 4 {
			req := request("g")
			req.Modes = []string{"values", map[bool]string{true: "messages-tuple", false: "messages"}[tuples]}
			at.Store(1 + rng.Int32N(2*(answerWords+1)))
			if turn == 2 {
				at.Store(0) // to its end
			}
			r, f, err := w.runs.Start(t.Context(), th, req)
			require.NoError(t, err)
			if at.Load() > 0 {
				<-reached
				require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
			}
			ids, texts := saw(t, f)
			if len(before) > 0 {
				require.Equal(t, before, ids[:len(before)], "the stream begins with what was shown")
			}
			feed := w.feed(th)
			require.Len(t, feed, len(ids), "seed %d turn %d: %v, seen %v", seed, turn, feed, ids)
			for i, l := range feed {
				require.Equal(t, ids[i], l.id)
				if strings.HasPrefix(texts[l.id], l.id+".0") { // else it came with values
					if l.partial {
						require.Equal(t, texts[l.id], l.text, "seed %d turn %d", seed, turn)
					} else {
						require.Equal(t, "text of "+l.id, l.text)
					}
				}
			}
			before = ids
		}
	}
}

func TestPartialAnswersByEnd(t *testing.T) {
	t.Parallel()
	boom := func(context.Context) error { return &graph.Failure{Type: "ValueError", Message: "boom"} }
	dies := func(context.Context) error { return graph.ErrWorkerDied }
	for _, tt := range []struct {
		name   string
		stop   func(context.Context) error
		change func(*service.Options)
		action run.Action
		status run.Status
		want   string
	}{
		{"interrupt", nil, nil, run.CancelInterrupt, run.Interrupted, "h1 a2-1*"},
		{"rollback", nil, nil, run.CancelRollback, "", ""},
		{"timeout", nil, func(o *service.Options) { o.Timeout = 300 * time.Millisecond }, "", run.Timeout, "h1 a2-1*"},
		{"error", boom, nil, "", run.Error, "h1 a2-1*"},
		{"worker died", dies, nil, "", run.Error, "h1 a2-3*"}, // the last attempt's
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, _, at, reached := speaking(t, tt.stop, tt.change)
			at.Store(4)
			th := w.thread()
			req := request("g")
			req.Modes = []string{"values", "messages-tuple"}
			r, f, err := w.runs.Start(t.Context(), th, req)
			require.NoError(t, err)
			<-reached
			if tt.action != "" {
				require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, tt.action, true))
			}
			w.records(f)
			require.Equal(t, tt.want, linesIDs(w.feed(th)))
			if tt.status == "" {
				return
			}
			require.Equal(t, tt.status, w.status(th, r.ID))
			require.Contains(t, *w.completion(th, r.ID).LastAI, ".2 ")

			// The next run shows it before its own question, in its stream and in its result.
			at.Store(0)
			next, f, err := w.runs.Start(t.Context(), th, req)
			require.NoError(t, err)
			ids, _ := saw(t, f)
			require.Equal(t, strings.Split(strings.ReplaceAll(tt.want, "*", ""), " "), ids[:2])
			require.True(t, strings.HasPrefix(shownIDs(w.wait(th, next.ID).Values), strings.ReplaceAll(tt.want, "*", "")+" h2 a3"))

			// Its run deleted, it is gone.
			require.NoError(t, w.runs.Delete(t.Context(), th, r.ID))
			require.NotContains(t, linesIDs(w.feed(th)), "*")
		})
	}
}

func TestStrategiesAndPartialAnswers(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[run.Strategy]string{run.Interrupt: "h1 a2-1* h2 a3-2 a4-3", run.Rollback: "h1 a2-2 a3-3"} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			w, _, at, reached := speaking(t, nil, nil)
			th := w.thread()
			at.Store(3)
			_, f, err := w.runs.Start(t.Context(), th, request("g"))
			require.NoError(t, err)
			<-reached
			at.Store(0)
			req := request("g")
			req.Strategy = strategy
			next, err := w.runs.Create(t.Context(), th, req)
			require.NoError(t, err)
			w.records(f)
			w.wait(th, next.ID)
			require.Equal(t, want, linesIDs(w.feed(th)))
		})
	}
}

func TestAReaderWhoLeavesKeepsThePartialAnswer(t *testing.T) {
	t.Parallel()
	w, _, at, reached := speaking(t, nil, nil)
	th := w.thread()
	at.Store(3)
	req := request("g")
	req.OnDisconnect = "cancel"
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	<-reached
	f.Close(true)
	w.wait(th, r.ID)
	require.Equal(t, "h1 a2-1*", linesIDs(w.feed(th)))
}

// What a resumable run streamed is in the database: it outlives the server. Of others it does not.
func TestPartialAnswersOfAServerThatDied(t *testing.T) {
	t.Parallel()
	for resumable, want := range map[bool]string{true: "h1 a2-1*", false: "h1"} {
		t.Run(fmt.Sprint(resumable), func(t *testing.T) {
			t.Parallel()
			w, th, r := spoken(t, resumable)
			w.options.Jobs = -1 // the next server executes nothing: the run waits
			w.again(func(*overlay.Settings) {})
			require.Equal(t, run.Pending, w.status(th, r.ID))
			require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
			require.Equal(t, want, linesIDs(w.feed(th)))
		})
	}
}

// readStore notes where records of a run are read, and lets something happen between the reading and the transaction that needs it.
type readStore struct {
	run.Store
	between func(last bridge.Offset)
	inside  *atomic.Int32 // records that were read within transactions
}

func (s readStore) RunRecords(ctx context.Context, t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	last := after
	err := s.Store.RunRecords(ctx, t, r, after, func(rec *bridge.Record) error {
		last = rec.Offset
		return fn(rec)
	})
	if s.between != nil {
		s.between(last)
	}
	return err
}

func (s readStore) Write(ctx context.Context, fn func(run.Tx) error) error {
	return s.Store.Write(ctx, func(tx run.Tx) error { return fn(readTx{tx, s.inside}) })
}

type readTx struct {
	run.Tx
	inside *atomic.Int32
}

func (tx readTx) RunRecords(t id.Thread, r id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	return tx.Tx.RunRecords(t, r, after, func(rec *bridge.Record) error {
		tx.inside.Add(1)
		return fn(rec)
	})
}

// What a run streamed is read before the transaction that ends it, however it ends. Records that arrive in between count, and are all that the
// transaction reads.
func TestRecordsAreReadOutsideTransactions(t *testing.T) {
	t.Parallel()
	for _, late := range []int32{0, 1} {
		for _, by := range []string{"cancel", "strategy", "recovery"} {
			t.Run(fmt.Sprint(by, " ", late), func(t *testing.T) {
				t.Parallel()
				w, th, r := spoken(t, true)
				store := readStore{inside: &atomic.Int32{}}
				store.between = func(last bridge.Offset) {
					rec := &bridge.Record{
						Offset: bridge.Offset{MS: last.MS, N: last.N + 1}, Run: r.ID, Event: "messages", Kept: true,
						Data: []byte(`[{"type":"AIMessageChunk","id":"a2-1","content":"late"},{"langgraph_step":2,"langgraph_checkpoint_ns":"model:1"}]`),
					}
					if late == 1 {
						require.NoError(t, w.rows.Runs().KeepRecords(t.Context(), map[id.Thread][]*bridge.Record{th: {rec}}))
					}
				}
				w.wrap = func(s run.Store) run.Store {
					store.Store = s
					return store
				}
				w.options.Jobs = -1 // the next server executes nothing: the run waits
				w.again(func(*overlay.Settings) {})
				switch by {
				case "cancel":
					require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
				case "strategy":
					next := request("g")
					next.Strategy = run.Interrupt
					_, err := w.runs.Create(t.Context(), th, next)
					require.NoError(t, err)
				case "recovery": // of a run whose server was killed while it cancelled it
					require.NoError(t, w.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
						row, err := tx.Run(th, r.ID)
						if err == nil {
							row.Status, row.Owner, row.Cancel = run.Running, "gone", run.CancelInterrupt
							err = tx.UpdateRun(row)
						}
						return err
					}))
					require.NoError(t, w.runs.Recover(t.Context(), nil))
				}
				require.Equal(t, run.Interrupted, w.status(th, r.ID))
				feed := w.feed(th)
				require.Equal(t, "h1 a2-1*", linesIDs(feed))
				require.Equal(t, "a2-1.0 a2-1.1 "+strings.Repeat("late", int(late)), feed[1].text)
				require.Equal(t, late, store.inside.Load())
			})
		}
	}
}

func TestPartialAnswersAreNotKept(t *testing.T) {
	t.Parallel()
	w, _, at, reached := speaking(t, nil, nil)
	cancelled := func(th id.Thread, change func(*run.Request)) string {
		at.Store(3)
		req := request("g")
		change(&req)
		r, f, err := w.runs.Start(t.Context(), th, req)
		require.NoError(t, err)
		<-reached
		require.NoError(t, w.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true))
		w.records(f)
		return linesIDs(w.feed(th))
	}
	// A run that continues an earlier checkpoint and saves nothing leaves the thread as it was.
	th := w.thread()
	at.Store(0)
	_, f, err := w.runs.Start(t.Context(), th, request("g"))
	require.NoError(t, err)
	w.records(f)
	whole := linesIDs(w.feed(th))
	require.Equal(t, whole, cancelled(th, func(r *run.Request) {
		r.Input, r.CheckpointID = nil, "1f000000-0000-6001-8000-000000000000"
	}))
	// One that continues the head adds to it.
	require.Equal(t, whole+" a4-4*", cancelled(th, func(r *run.Request) { r.Input = nil }))
	// The setting.
	w.again(func(s *overlay.Settings) { s.Partial = false })
	require.Equal(t, "h1", cancelled(w.thread(), func(*run.Request) {}))
}

// What a replay shows of a run whose answer was kept is what its stream showed.
func TestReplayOfACancelledRun(t *testing.T) {
	t.Parallel()
	w, _, at, reached := speaking(t, nil, nil)
	th := w.thread()
	at.Store(3)
	req := request("g")
	req.Resumable = true
	req.Modes = []string{"values", "messages-tuple"}
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	<-reached
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
	ids, texts := saw(t, f)
	f, err = w.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	again, _ := saw(t, f)
	require.Equal(t, ids, again)
	require.Equal(t, "a2-1.0 a2-1.1 ", texts["a2-1"])
}

// asker is a graph that streams an answer before the checkpoint that has the question is saved. Its input checkpoint is one step before that.
type asker struct {
	graph.Graph
	step     int // of the answer; the input checkpoint is -1
	streamed chan struct{}
}

func (g *asker) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		k := &talk{inv: inv, ctx: ctx, emit: func(e graph.Event) { yield(e, nil) }}
		k.metadata = `{"source":"input","step":-1}`
		k.save("h0")
		k.token("messages", `{"type":"AIMessageChunk","id":"a1","content":"word"}`, fmt.Sprintf(`{"langgraph_step":%d}`, g.step))
		close(g.streamed)
		<-ctx.Done()
		yield(graph.Event{}, context.Cause(ctx))
	}
}

// An answer is kept only with its question: the input checkpoint of most graphs has the question in a channel of its own.
func TestPartialAnswersWithoutTheirQuestion(t *testing.T) {
	t.Parallel()
	for step, want := range map[int]string{1: "h0", 0: "h0 a1*"} {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, nil)
			g := &asker{step: step, streamed: make(chan struct{})}
			require.NoError(t, w.graphs.Add("g", "", g))
			w.again(func(*overlay.Settings) {})
			th := w.thread()
			req := request("g")
			req.Modes = []string{"messages-tuple"}
			r, f, err := w.runs.Start(t.Context(), th, req)
			require.NoError(t, err)
			<-g.streamed
			require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
			w.records(f)
			require.Equal(t, want, linesIDs(w.feed(th)))
		})
	}
}
