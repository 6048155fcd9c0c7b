package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/run/service"
	"understudy/thread"
)

// allEvents selects every event.
var allEvents = protocol.Filter{Channels: protocol.Channels}

// started is what run.start makes of a request.
func started(graph string) run.Request {
	req := request(graph)
	req.Resumable, req.Subgraphs, req.EventStreaming, req.IfNotExists = true, true, true, "create"
	req.Modes = []string{"values", "updates", "messages-tuple", "tools", "custom", "tasks"}
	return req
}

// eventful is a graph that calls a tool and says some words.
var eventful = script{stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
	emit("values", `{"n":1}`)
	emit("tools", `{"event":"tool-started","tool_call_id":"c","tool_name":"t","input":{}}`)
	for i := range 20 {
		emit("messages", fmt.Sprintf(`[{"type":"AIMessageChunk","id":"m","content":"w%d"},{"langgraph_node":"n"}]`, i))
	}
	emit("values", `{"n":2}`)
	return nil
}}

// ofEventful is how many events a run of eventful has: its begin and end, values, the call, and a message with its start, its block, and their ends.
const ofEventful = 2 + 2 + 1 + 20 + 4

// terminal matches the end of a run.
var terminal = regexp.MustCompile(`"namespace":\[\],"timestamp":\d+,"data":\{"event":"(completed|failed|interrupted)"`)

// framesUntil reads frames of events until some runs have ended.
func framesUntil(t *testing.T, f run.Follower, ends int) (frames []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ends > 0 {
		records, err := f.Next(ctx)
		require.NoError(t, err, "after %d events", len(frames))
		for _, r := range records {
			frames = append(frames, string(r.Frame))
			if terminal.Match(r.Frame) {
				ends--
			}
		}
	}
	return frames
}

func (w *world) follow(t id.Thread, filter protocol.Filter) run.Follower {
	w.t.Helper()
	f, err := w.runs.StreamEvents(w.t.Context(), t, filter)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { f.Close(false) })
	return f
}

// A stream may be opened before its thread exists, and does not end with a run. Every stream of the thread has the same events, also one that is opened
// later, and one of a server that was started anew.
func TestEventsOfAThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": eventful}, nil)
	th := id.NewThread()
	live := w.follow(th, allEvents)
	for range 3 {
		r, err := w.runs.StartOrResume(t.Context(), th, started("g"))
		require.NoError(t, err)
		w.wait(th, r.ID)
	}
	frames := framesUntil(t, live, 3)
	require.Len(t, frames, 3*ofEventful)
	require.Equal(t, 3, strings.Count(strings.Join(frames, ""), `"event":"running","graph_name":"g"`))
	require.Equal(t, frames, framesUntil(t, w.follow(th, allEvents), 3))
	w.stop()
	w.start()
	require.Equal(t, frames, framesUntil(t, w.follow(th, allEvents), 3))

	again := w.follow(th, allEvents)
	framesUntil(t, again, 3)
	r, err := w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	more := framesUntil(t, again, 1)
	require.Contains(t, more[0], string(r.ID))
	require.Equal(t, append(frames, more...), framesUntil(t, w.follow(th, allEvents), 4))
}

// A client that widens its filter closes one stream after it has opened another. The first one, of a run that has just begun, sends nothing by then: its
// events would come before earlier ones of the second.
func TestEventsOfARunThatHasJustBegun(t *testing.T) {
	t.Parallel()
	begun, gone := make(chan id.Run, 1), make(chan struct{})
	w := newWorld(t, map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", `{"n":1}`)
		begun <- inv.Run
		select {
		case <-gone:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	}}}, nil)
	th := id.NewThread()
	_, err := w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	next(t, begun)
	opened := time.Now()
	narrow := w.follow(th, protocol.Filter{Channels: []string{"values"}})
	// waits reports whether the stream waits at first. A machine that is too slow to tell ends the test.
	waits := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := narrow.Next(ctx)
		if time.Since(opened) > 90*time.Millisecond {
			t.Log("this machine is too slow to tell")
			return false
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return true
	}
	defer func() {
		select {
		case <-gone:
		default:
			close(gone)
		}
	}()
	if !waits() {
		return
	}
	records, err := narrow.Next(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(records[0].Frame), `{"n":1}`)
	require.GreaterOrEqual(t, time.Since(opened), 100*time.Millisecond)
	close(gone)

	// Of two streams the wider one sends first, however long it takes until it is opened.
	_, err = w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	next(t, begun)
	narrow = w.follow(th, protocol.Filter{Channels: []string{"values"}})
	opened = time.Now()
	if !waits() {
		return
	}
	wide := w.follow(th, allEvents)
	again := time.Now()
	if again.Sub(opened) > 90*time.Millisecond {
		return // the machine is too slow to tell
	}
	_, err = wide.Next(t.Context())
	require.NoError(t, err)
	_, err = narrow.Next(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(again), 99*time.Millisecond)
}

// Streams that are open when another run is started send what they replay before it begins, or a client would take it for the new run's.
func TestReplayBeforeAnotherRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
		emit("values", `{"n":1}`)
		return nil
	}}}, nil)
	watch := protocol.Filter{Channels: []string{"lifecycle", "input"}}
	var replayed [][]*bridge.Record
	for i := range 20 { // until the machine was fast enough: each stream but the last is released by a command
		th := id.NewThread()
		_, err := w.runs.StartOrResume(t.Context(), th, started("g"))
		require.NoError(t, err)
		framesUntil(t, w.follow(th, allEvents), 1)
		opened := time.Now()
		early := w.follow(th, watch)
		got := make(chan []*bridge.Record, 1)
		go func() {
			records, _ := early.Next(t.Context())
			got <- records
		}()
		_, err = w.runs.StartOrResume(t.Context(), th, started("g"))
		require.NoError(t, err)
		replayed = append(replayed, next(t, got))
		require.Contains(t, string(replayed[i][0].Frame), `"running"`)
		if time.Since(opened) < 80*time.Millisecond {
			return
		}
	}
	t.Fatal("a stream that was opened before a run was started waited each time")
}

// Clients of both wires share a thread: each sees runs of the other in its own form.
func TestBothWiresOnOneThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": eventful}, nil)
	th := w.thread()
	events := w.follow(th, allEvents)
	whole, err := w.runs.StreamThread(t.Context(), th, nil, nil)
	require.NoError(t, err)
	defer whole.Close(false)

	v2, err := w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	w.wait(th, v2.ID)
	v1 := request("g")
	v1.Modes = []string{"values", "messages-tuple"}
	r, err := w.runs.Create(t.Context(), th, v1)
	require.NoError(t, err)
	w.wait(th, r.ID)

	frames := strings.Join(framesUntil(t, events, 2), "")
	require.Equal(t, 2, strings.Count(frames, `"event":"running"`))
	require.Equal(t, 2, strings.Count(frames, `"event":"completed"`))
	require.Equal(t, 2*20, strings.Count(frames, `"event":"content-block-delta"`))
	require.Equal(t, 4, strings.Count(frames, `event: values`))

	joined, err := w.runs.JoinStream(t.Context(), th, v2.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	got := w.events(joined)
	require.Len(t, got, 1+2+20, "metadata, values and messages, but no calls of tools, which v1 does not know")
	require.Equal(t, []string{`values {"n":1}`, `messages [{"type":"AIMessageChunk","id":"m","content":"w0"},{"langgraph_node":"n"}]`}, got[1:3])
	shown, _ := readSome(t, whole, 2*(1+2+20+1))
	require.NotContains(t, strings.Join(shown, ""), "tool-started")
	require.NotContains(t, strings.Join(shown, ""), `"type":"event"`)
}

// Of a run that is rolled back the stream reports the end, and later streams know nothing of it.
func TestEventsOfARollback(t *testing.T) {
	t.Parallel()
	begun := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(begun), "g": eventful}, nil)
	th := w.thread()
	live := w.follow(th, protocol.Filter{Channels: []string{"lifecycle"}})
	first, err := w.runs.StartOrResume(t.Context(), th, started("hang"))
	require.NoError(t, err)
	next(t, begun)
	req := started("g")
	req.Strategy = run.Rollback
	second, err := w.runs.StartOrResume(t.Context(), th, req)
	require.NoError(t, err)
	frames := framesUntil(t, live, 2)
	require.Len(t, frames, 4)
	require.Contains(t, frames[1], `"event":"interrupted","graph_name":"hang"`)
	require.Contains(t, frames[3], `"event":"completed"`)
	w.wait(th, second.ID)
	later := framesUntil(t, w.follow(th, protocol.Filter{Channels: []string{"lifecycle"}}), 1)
	require.NotContains(t, strings.Join(later, ""), string(first.ID))
	require.Equal(t, frames[2:], later)
}

// On another server, and from a live stream that had to drop records, come the same events.
func TestEventsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	require.NoError(t, c.bridge.Close())
	c.bridge = bridge.NewMemory(bridge.Options{Records: 16})
	a, b := c.start(map[string]script{"g": eventful}, nil), c.start(map[string]script{"g": eventful}, nil)
	th := a.newThread()
	live := []run.Follower{a.follow(th, allEvents), b.follow(th, allEvents)}
	for range 5 {
		r, err := b.runs.StartOrResume(t.Context(), th, started("g"))
		require.NoError(t, err)
		a.wait(th, r.ID)
	}
	frames := framesUntil(t, live[0], 5)
	require.Len(t, frames, 5*ofEventful)
	require.Equal(t, frames, framesUntil(t, live[1], 5))
	for _, in := range []*instance{a, b, c.start(map[string]script{"g": eventful}, nil)} {
		require.Equal(t, frames, framesUntil(t, in.follow(th, allEvents), 5))
	}
}

// What the live stream loses comes from the database, where it belongs, and what it has twice comes once: numbers do not move.
func TestEventsOfALossyStream(t *testing.T) {
	t.Parallel()
	for name, carry := range map[string]func(bridge.Bridge) bridge.Bridge{
		"the first": func(b bridge.Bridge) bridge.Bridge {
			return &leaky{Bridge: b, lose: func(r *bridge.Record) bool { return r.Index == 1 }}
		},
		"some": func(b bridge.Bridge) bridge.Bridge {
			return &leaky{Bridge: b, lose: func(r *bridge.Record) bool { return r.Index%5 > 2 }}
		},
		"twice": func(b bridge.Bridge) bridge.Bridge { return doubling{b} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.carry = carry
			in := c.start(map[string]script{"g": eventful}, nil)
			th := in.newThread()
			live := in.follow(th, allEvents)
			var frames []string
			for range 3 { // the first is replayed, for the follower begins to read after it
				r, err := in.runs.StartOrResume(t.Context(), th, started("g"))
				require.NoError(t, err)
				in.wait(th, r.ID)
				frames = append(frames, framesUntil(t, live, 1)...)
			}
			require.Len(t, frames, 3*ofEventful)
			require.Equal(t, frames, framesUntil(t, in.follow(th, allEvents), 3))
		})
	}
}

// The server that executes a run may share no stream with the one that is asked: the events of the run come from the database, after its end.
func TestEventsOfUnseenRuns(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, worker := pair(t, way, eventful)
			th := api.newThread()
			live := api.follow(th, allEvents)
			r, err := api.runs.StartOrResume(t.Context(), th, started("g"))
			require.NoError(t, err)
			frames := framesUntil(t, live, 1)
			require.Len(t, frames, ofEventful)
			api.wait(th, r.ID)
			require.Equal(t, frames, framesUntil(t, worker.follow(th, allEvents), 1))
		})
	}
}

// A run whose end was never recorded ends for who follows it.
func TestEventsOfAnUnrecordedEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": eventful}, nil)
	th := w.thread()
	r, err := w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	frames := framesUntil(t, w.follow(th, allEvents), 1)
	w.stop()
	w.wrap = func(s run.Store) run.Store { return endless{s} }
	w.start()
	got := framesUntil(t, w.follow(th, allEvents), 1)
	require.Equal(t, frames, got)
}

// endless is a storage without the records of ends.
type endless struct{ run.Store }

func (e endless) Records(ctx context.Context, t id.Thread, after bridge.Offset, limit int) ([]*bridge.Record, error) {
	records, err := e.Store.Records(ctx, t, after, limit)
	kept := records[:0]
	for _, rec := range records {
		if rec.Kind != bridge.Terminal {
			kept = append(kept, rec)
		}
	}
	return kept, err
}

// interruptedAt makes a thread wait at interrupts of a graph.
func (w *world) interruptedAt(t id.Thread, graph string, ids ...string) {
	w.t.Helper()
	asked := []string{}
	for _, i := range ids {
		asked = append(asked, `{"id":"`+i+`","value":1}`)
	}
	row := w.row(t)
	row.Status, row.Interrupts = thread.Interrupted, json.RawMessage(`{"task":[`+strings.Join(asked, ",")+`]}`)
	row.Metadata = json.RawMessage(`{"assistant_id":"` + string(id.DefaultAssistant(graph)) + `"}`)
	require.NoError(w.t, w.rows.Threads().Write(w.t.Context(), func(tx thread.Tx) error { return tx.UpdateThread(row) }))
}

// An interrupt is answered once, also when many answer at once.
func TestAnInterruptIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var resumed []string
	w := newWorld(t, map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, _ func(string, string)) error {
		mu.Lock()
		defer mu.Unlock()
		resumed = append(resumed, string(inv.Command))
		return nil
	}}}, func(o *service.Options) {})
	th := w.thread()
	respond := func(interrupts ...string) (*run.Run, error) {
		var answers []run.Response
		for _, i := range interrupts {
			answers = append(answers, run.Response{Interrupt: i, Value: json.RawMessage(`{"a":1}`)})
		}
		req := started("")
		req.Input, req.Command = nil, json.RawMessage(`{"goto":"n"}`)
		return w.runs.Respond(t.Context(), th, req, answers)
	}
	_, err := respond("x")
	require.ErrorIs(t, err, run.ErrNotInterrupted)
	w.interruptedAt(th, "g", "x", "y")
	var unknown *run.UnknownInterrupt
	_, err = respond("x", "z")
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "z", unknown.ID)

	const many = 8
	var accepted []id.Run
	var work sync.WaitGroup
	for range many {
		work.Go(func() {
			r, err := respond("x", "y")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted = append(accepted, r.ID)
			} else if !errors.As(err, new(*run.UnknownInterrupt)) {
				t.Errorf("respond: %v", err)
			}
		})
	}
	work.Wait()
	require.Len(t, accepted, 1)
	w.wait(th, accepted[0])
	require.Equal(t, []string{`{"goto":"n","resume":{"x":{"a":1},"y":{"a":1}}}`}, resumed)

	// An answer that was checked before the run of another one, and comes to create its own after that run's end.
	late := started("g")
	late.Answers = []run.Response{{Interrupt: "x"}}
	_, err = w.runs.Create(t.Context(), th, late)
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "x", unknown.ID)
}

// Who starts a run on a thread that waits answers it; with a checkpoint, or without input, it is another run.
func TestStartOnAnInterruptedThread(t *testing.T) {
	t.Parallel()
	calls := make(chan [2]string, 1)
	w := newWorld(t, map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, _ func(string, string)) error {
		calls <- [2]string{string(inv.Input), string(inv.Command)}
		return nil
	}}}, nil)
	for _, tt := range []struct {
		change func(*run.Request)
		want   [2]string
	}{
		{func(*run.Request) {}, [2]string{"", `{"resume":{"n":1}}`}},
		{func(r *run.Request) { r.Input = nil }, [2]string{"", ""}},
	} {
		th := w.thread()
		w.interruptedAt(th, "g", "x")
		req := started("g")
		tt.change(&req)
		_, err := w.runs.StartOrResume(t.Context(), th, req)
		require.NoError(t, err)
		require.Equal(t, tt.want, next(t, calls))
	}
	r, err := w.runs.StartOrResume(t.Context(), id.NewThread(), started("g"))
	require.NoError(t, err)
	next(t, calls)
	require.Contains(t, string(r.Kwargs.Config), `"`+run.EventStreamingKey+`":true`)
}

// endsMeanwhile is a storage in which something happens once between the read of a thread and its answer.
type endsMeanwhile struct {
	run.Store
	end atomic.Pointer[func()] // nil: nothing
}

func (s *endsMeanwhile) Thread(ctx context.Context, t id.Thread) (*thread.Thread, error) {
	row, err := s.Store.Thread(ctx, t)
	if end := s.end.Swap(nil); end != nil {
		(*end)()
	}
	return row, err
}

// A run that has shown an interrupt may end, and its end be committed, between any two reads of a command: its input is the answer all the same.
func TestStartWhileTheInterruptedRunEnds(t *testing.T) {
	t.Parallel()
	storage := &endsMeanwhile{}
	calls, release := make(chan string, 2), make(chan struct{})
	w := newWorldOn(t, func(s run.Store) run.Store {
		storage.Store = s
		return storage
	}, map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		if calls <- string(inv.Command); inv.Command == nil {
			emit("values", `{"__interrupt__":[{"id":"x","value":1}]}`)
			<-release
		}
		return nil
	}}}, nil)
	th := w.thread()
	first, err := w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	require.Empty(t, next(t, calls))
	f := w.follow(th, protocol.Filter{Channels: []string{"input"}})
	records, err := f.Next(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(records[0].Frame), `"interrupt_id":"x"`)
	end := func() {
		close(release)
		w.wait(th, first.ID)
		w.interruptedAt(th, "g", "x") // the script has no state
	}
	storage.end.Store(&end)
	_, err = w.runs.StartOrResume(t.Context(), th, started("g"))
	require.NoError(t, err)
	require.JSONEq(t, `{"resume":{"n":1}}`, next(t, calls))
}

const resumeGap = `"error":"resume_gap"`

// firstSince returns what a reader sees first that resumes at a seq; "" if nothing is there.
func (w *world) firstSince(th id.Thread, since int64) string {
	w.t.Helper()
	f := w.follow(th, protocol.Filter{Channels: protocol.Channels, Since: since, Resume: true})
	ctx, cancel := context.WithTimeout(w.t.Context(), 300*time.Millisecond)
	defer cancel()
	records, err := f.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	require.NoError(w.t, err)
	return string(records[0].Frame)
}

// runWhole starts a run and waits for its end.
func (w *world) runWhole(th id.Thread, req run.Request) *run.Run {
	w.t.Helper()
	r, err := w.runs.StartOrResume(w.t.Context(), th, req)
	require.NoError(w.t, err)
	w.wait(th, r.ID)
	return r
}

// seqsOf returns the numbers of events.
func seqsOf(t *testing.T, frames []string) (all []int64) {
	t.Helper()
	for _, f := range frames {
		n, err := strconv.ParseInt(strings.TrimSpace(f[strings.LastIndex(f, "id: ")+4:]), 10, 64)
		require.NoError(t, err)
		all = append(all, n)
	}
	return all
}

// Who resumes at an event that is kept reads on without a hole. Where events are gone the first thing that the reader sees says so, and the rest follows.
func TestResumeGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": eventful}, func(o *service.Options) { o.ResumableTTL = time.Hour })
	th := w.thread()
	first := func(since int64) string { return w.firstSince(th, since) }
	one := func(req run.Request) *run.Run { return w.runWhole(th, req) }
	seqs := func(frames []string) []int64 { return seqsOf(t, frames) }
	one(started("g"))
	one(started("g"))
	frames := framesUntil(t, w.follow(th, allEvents), 2)
	all := seqs(frames)
	for i, seq := range all { // at every event
		want := ""
		if i+1 < len(frames) {
			want = frames[i+1]
		}
		if i%7 == 0 || want == "" {
			require.Equal(t, want, first(seq), "after event %d", i)
		}
	}
	require.Contains(t, first(all[0]-5), resumeGap, "a seq that no event had")
	require.Contains(t, first(all[3]+(all[len(all)-1]-all[3])*2), resumeGap)

	// A run that is not to be kept.
	v1 := request("g")
	v1.Modes = []string{"values"}
	one(v1)
	require.Contains(t, first(all[len(all)-1]), resumeGap)
	one(started("g"))
	last := seqs(framesUntil(t, w.follow(th, allEvents), 3))
	require.Equal(t, all, last[:len(all)], "numbers stay")
	require.Contains(t, first(all[len(all)-1]), resumeGap)
	require.NotContains(t, first(last[len(all)]), resumeGap, "after it")

	// Records that have expired: the rows of the runs stay.
	require.NoError(t, w.rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		_, err := tx.DeleteRecords(time.Now().Add(time.Hour))
		return err
	}))
	w.stop()
	w.start()
	require.Contains(t, first(last[len(last)-2]), resumeGap)
	require.Equal(t, "", first(last[len(last)-1]), "the last run was seen whole")
	require.Contains(t, first(all[len(all)-1]), resumeGap, "the last run was not seen")
	one(started("g"))
	got := framesUntil(t, w.follow(th, protocol.Filter{Channels: protocol.Channels, Since: last[len(last)-1], Resume: true}), 1)
	require.Len(t, got, ofEventful)
	require.Greater(t, seqs(got)[0], last[len(last)-1])
	require.Contains(t, first(all[0]), `"since":`+strconv.FormatInt(all[0], 10)+`,"min_available_seq":`+strconv.FormatInt(seqs(got)[0], 10)+"}")
}

// The rows of runs that were deleted or undone are gone too: the thread knows that events are missing.
func TestResumeGapOfDeletedRuns(t *testing.T) {
	t.Parallel()
	begun := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"g": eventful, "hang": hang(begun)}, func(o *service.Options) { o.ResumableTTL = time.Hour })
	th := w.thread()
	w.runWhole(th, started("g"))
	deleted := w.runWhole(th, started("g"))
	all := seqsOf(t, framesUntil(t, w.follow(th, allEvents), 2))
	before, within, end := all[ofEventful-1], all[len(all)-2], all[len(all)-1]
	require.NoError(t, w.runs.Delete(t.Context(), th, deleted.ID))
	seen := func() {
		t.Helper()
		require.Contains(t, w.firstSince(th, before), resumeGap)
		require.Contains(t, w.firstSince(th, within), resumeGap)
		require.NotContains(t, w.firstSince(th, end), resumeGap, "it was seen whole")
	}
	seen()
	require.Equal(t, "", w.firstSince(th, end))
	w.stop()
	w.start()
	seen()
	w.runWhole(th, started("g"))
	seen()
	last := seqsOf(t, framesUntil(t, w.follow(th, allEvents), 2))
	require.Equal(t, all[:ofEventful], last[:ofEventful], "numbers stay")

	// A run that is undone while its reader is away.
	live := w.follow(th, protocol.Filter{Channels: []string{"lifecycle"}, Since: last[len(last)-1], Resume: true})
	hanging, err := w.runs.StartOrResume(t.Context(), th, started("hang"))
	require.NoError(t, err)
	next(t, begun)
	records, err := live.Next(t.Context())
	require.NoError(t, err)
	saw := seqsOf(t, []string{string(records[0].Frame)})[0]
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{hanging.ID}, run.CancelRollback, true))
	require.Contains(t, w.firstSince(th, saw), resumeGap)
	require.Contains(t, w.firstSince(th, last[len(last)-1]), resumeGap, "nothing of it was seen")
}

// Whatever runs are made and deleted, in any order: a reader that resumes gets a gap if, and only if, an event is gone that came after the one it names.
func TestResumeGapAfterAnyDeletions(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, map[string]script{"g": eventful}, func(o *service.Options) { o.ResumableTTL = time.Hour })
	th := w.thread()
	var kept []*run.Run
	ends := map[int64]bool{} // the last event of each run that there ever was, and whether it is kept
	for range 8 {
		if i := random.IntN(len(kept) + 2); i < len(kept) {
			require.NoError(t, w.runs.Delete(t.Context(), th, kept[i].ID))
			kept = slices.Delete(kept, i, i+1)
		} else {
			kept = append(kept, w.runWhole(th, started("g")))
		}
		for end := range ends {
			ends[end] = false
		}
		if len(kept) > 0 {
			all := seqsOf(t, framesUntil(t, w.follow(th, allEvents), len(kept)))
			for i := ofEventful - 1; i < len(all); i += ofEventful {
				ends[all[i]] = true
			}
		}
		for since := range ends {
			lost := false
			for end, is := range ends {
				lost = lost || end > since && !is
			}
			require.Equal(t, lost, strings.Contains(w.firstSince(th, since), resumeGap), "since %d of %v", since, ends)
		}
	}
}
