package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/webhook"
	"understudy/thread"
)

func (wire) Run(r *run.Run) json.RawMessage { return compat.AppendRun(nil, r, nil) }

func (wire) Request(payload json.RawMessage, stateless bool) (run.Request, error) {
	return compat.NewRun(payload, compat.RunForm{Stateless: stateless})
}

func TestStreamOfARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, request("echo"))
	require.NoError(t, err)
	require.Equal(t, run.Pending, r.Status, "as it was created")
	require.Equal(t, []string{`metadata {"run_id":"` + string(r.ID) + `","attempt":1}`, `values {"n":1}`, `values {"n":2}`}, w.events(f))
	require.Equal(t, run.Success, w.status(th, r.ID))
	row := w.row(th)
	require.Equal(t, thread.Idle, row.Status)
	require.True(t, row.Touched)
}

func TestErrorIsShownAndKept(t *testing.T) {
	t.Parallel()
	for message, shown := range map[string]string{"boom": "boom", "b\x00m\x00": "b\uFFFDm\uFFFD"} {
		w := newWorld(t, map[string]script{"bad": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
			return &graph.Failure{Type: "ValueError", Message: message}
		}}}, nil)
		th := w.thread()
		r, f, err := w.runs.Start(t.Context(), th, request("bad"))
		require.NoError(t, err)
		require.Equal(t, `error {"error":"ValueError","message":"`+shown+`"}`, w.events(f)[1])
		require.Equal(t, run.Error, w.status(th, r.ID))
		row := w.row(th)
		require.Equal(t, thread.Errored, row.Status)
		require.JSONEq(t, `{"error":"ValueError","message":"`+shown+`"}`, string(row.Error))
		require.JSONEq(t, string(row.Error), string(w.wait(th, r.ID).Error))
	}
}

func TestPanicOfAGraphIsItsRunsError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"bad": {stream: func(context.Context, graph.Invocation, func(string, string)) error { panic("oh") }}}, nil)
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("bad"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	require.Equal(t, run.Error, w.status(th, r.ID))
}

func TestUnknownThingsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	for _, tt := range []struct {
		name   string
		thread id.Thread
		change func(*run.Request)
		kind   fault.Kind
	}{
		{"graph", th, func(r *run.Request) { r.AssistantID = "nope" }, fault.Unprocessable},
		{"assistant", th, func(r *run.Request) { r.AssistantID = string(id.NewAssistant()) }, fault.NotFound},
		{"thread", id.NewThread(), func(*run.Request) {}, fault.NotFound},
		{"resume without a thread", "", func(r *run.Request) { r.Command = json.RawMessage(`{"resume":1}`) }, fault.Invalid},
		{"context and configurable", th, func(r *run.Request) {
			r.Context, r.Config = json.RawMessage(`{"a":1}`), json.RawMessage(`{"configurable":{"b":1}}`)
		}, fault.Invalid},
		{"webhook", th, func(r *run.Request) { r.Webhook = "http://169.254.169.254/latest" }, fault.Unprocessable},
		{"push notification", th, func(r *run.Request) { r.Push = []webhook.Push{{URL: "http://169.254.169.254/latest"}} }, fault.Unprocessable},
		{"push notifications", th, func(r *run.Request) { r.Push = make([]webhook.Push, 11) }, fault.Unprocessable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := request("echo")
			tt.change(&req)
			_, err := w.runs.Create(t.Context(), tt.thread, req)
			require.Equal(t, tt.kind, fault.KindOf(err), "%v", err)
		})
	}
	require.Equal(t, thread.Idle, w.row(th).Status, "nothing was half-written")
}

func TestStrategies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		strategy run.Strategy
		keep     bool
		first    run.Status // "": gone
	}{
		"interrupt":          {run.Interrupt, false, run.Interrupted},
		"rollback":           {run.Rollback, false, ""},
		"rollback, row kept": {run.Rollback, true, run.Error},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := make(chan id.Run, 1)
			w := newWorld(t, map[string]script{"echo": echo, "hang": hang(started)}, nil)
			th := w.thread()
			create := func(graph string) *run.Run {
				req := request(graph)
				req.KeepUndone = tt.keep
				r, err := w.runs.Create(t.Context(), th, req)
				require.NoError(t, err)
				return r
			}
			first := create("hang")
			<-started
			queued := create("echo")

			req := request("echo")
			req.Strategy = run.Reject
			_, err := w.runs.Create(t.Context(), th, req)
			require.True(t, fault.Is(err, fault.Conflict))

			req.Strategy = tt.strategy
			last, err := w.runs.Create(t.Context(), th, req)
			require.NoError(t, err)
			require.JSONEq(t, `{"n":2}`, string(w.wait(th, last.ID).Values))
			for _, r := range []id.Run{first.ID, queued.ID} {
				if tt.first == "" {
					_, err := w.runs.Get(t.Context(), th, r)
					require.True(t, fault.Is(err, fault.NotFound), "%v", err)
				} else {
					require.Equal(t, tt.first, w.status(th, r))
				}
			}
			require.Nil(t, w.row(th).Error)
			require.Equal(t, thread.Idle, w.row(th).Status)
			if tt.keep {
				list, err := w.runs.List(t.Context(), th, run.Query{Limit: 10})
				require.NoError(t, err)
				require.Len(t, list, 3)
				require.NoError(t, w.runs.Delete(t.Context(), th, first.ID))
				_, err = w.runs.Get(t.Context(), th, first.ID)
				require.True(t, fault.Is(err, fault.NotFound), "%v", err)
				running := create("hang")
				<-started
				require.NoError(t, w.runs.Delete(t.Context(), th, running.ID))
				_, err = w.runs.Get(t.Context(), th, running.ID)
				require.True(t, fault.Is(err, fault.NotFound), "%v", err)
			}
		})
	}
}

func TestEnqueuedRunsGoOneAtATimeInOrder(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []id.Run
	var at atomic.Int32
	w := newWorld(t, map[string]script{"step": {stream: func(_ context.Context, inv graph.Invocation, _ func(string, string)) error {
		if at.Add(1) > 1 {
			return &graph.Failure{Type: "Overlap", Message: "two at once"}
		}
		mu.Lock()
		order = append(order, inv.Run)
		mu.Unlock()
		at.Add(-1)
		return nil
	}}}, nil)
	th := w.thread()
	var want []id.Run
	for range 20 {
		r, err := w.runs.Create(t.Context(), th, request("step"))
		require.NoError(t, err)
		want = append(want, r.ID)
	}
	for _, r := range want {
		w.wait(th, r)
		require.Equal(t, run.Success, w.status(th, r))
	}
	require.Equal(t, want, order)
}

func TestJobsBoundWhatRunsAtOnce(t *testing.T) {
	t.Parallel()
	const jobs, threads = 3, 12
	var now, most atomic.Int32
	entered, release := make(chan struct{}, threads), make(chan struct{})
	w := newWorld(t, map[string]script{"busy": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		entered <- struct{}{}
		<-release
		now.Add(-1)
		return nil
	}}}, func(o *service.Options) { o.Jobs = jobs })
	type made struct {
		t id.Thread
		r id.Run
	}
	var all []made
	for range threads {
		th := w.thread()
		r, err := w.runs.Create(t.Context(), th, request("busy"))
		require.NoError(t, err)
		all = append(all, made{th, r.ID})
	}
	for range jobs {
		<-entered
	}
	close(release)
	for _, m := range all {
		w.wait(m.t, m.r)
	}
	require.EqualValues(t, jobs, most.Load())
}

func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	req := request("echo")
	req.Resumable = true
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	var offsets []bridge.Offset
	for {
		records, err := f.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for _, rec := range records {
			offsets = append(offsets, rec.Offset)
		}
	}
	f.Close(false)
	require.Len(t, offsets, 3)
	for i := range offsets {
		f, err := w.runs.JoinStream(t.Context(), th, r.ID, &offsets[i], nil, false)
		require.NoError(t, err)
		require.Len(t, w.events(f), 2-i)
	}
	f, err = w.runs.JoinStream(t.Context(), th, r.ID, nil, nil, false)
	require.NoError(t, err)
	require.Empty(t, w.events(f))
	f, err = w.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, []string{"updates"}, false)
	require.NoError(t, err)
	require.Empty(t, w.events(f))
}

func TestStatelessRunsLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	r, f, err := w.runs.Start(t.Context(), "", request("echo"))
	require.NoError(t, err)
	require.True(t, r.Kwargs.Temporary)
	res, err := f.Result(t.Context())
	require.NoError(t, err)
	f.Close(false)
	require.JSONEq(t, `{"n":2}`, string(res.Values))
	_, err = w.rows.Threads().Thread(t.Context(), r.Thread)
	require.True(t, fault.Is(err, fault.NotFound))

	batch, err := w.runs.CreateBatch(t.Context(), []run.Request{request("echo"), request("echo")})
	require.NoError(t, err)
	require.Len(t, batch, 2)
	bad := request("nope")
	_, err = w.runs.CreateBatch(t.Context(), []run.Request{request("echo"), bad})
	require.Error(t, err)
}

func TestDeletingTheThreadEndsItsRunsAndReaders(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(started), "echo": echo}, nil)
	th := w.thread()
	_, running, err := w.runs.Start(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	_, queued, err := w.runs.Start(t.Context(), th, request("echo"))
	require.NoError(t, err)
	threads := thread.NewService(thread.Options{Store: w.rows.Threads(), Graphs: w.graphs, Snapshots: checkpointer.NewSnapshots(w.rows.Threads(), nil), Deleted: func(t *thread.Thread) { w.runs.ThreadDeleted(t.ID) }})
	require.NoError(t, threads.Delete(t.Context(), th))
	w.events(running)
	require.Empty(t, w.events(queued))
}

func TestThreadStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	f, err := w.runs.StreamThread(t.Context(), th, nil, nil)
	require.NoError(t, err)
	defer f.Close(false)
	var want, got []string
	for range 2 {
		r, err := w.runs.Create(t.Context(), th, request("echo"))
		require.NoError(t, err)
		want = append(want, `{"run_id":"`+string(r.ID)+`","attempt":1}`, `{"n":1}`, `{"n":2}`, `{"status":"run_done","run_id":"`+string(r.ID)+`"}`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var offsets []bridge.Offset
	for len(got) < len(want) {
		records, err := f.Next(ctx)
		require.NoError(t, err)
		for _, r := range records {
			got = append(got, string(r.Data))
			offsets = append(offsets, r.Offset)
		}
	}
	require.Equal(t, want, got)
	require.True(t, slices.IsSortedFunc(offsets, func(a, b bridge.Offset) int {
		if a.MS != b.MS {
			return int(a.MS - b.MS)
		}
		return int(a.N - b.N)
	}))
}

func TestAStatelessRunIsRejoinedByItsIDAlone(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, map[string]script{"slow": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
		close(started)
		<-release
		emit("values", `{"n":2}`)
		return nil
	}}}, nil)
	r, err := w.runs.Create(t.Context(), "", request("slow"))
	require.NoError(t, err)
	<-started
	f, err := w.runs.JoinStream(t.Context(), "", r.ID, nil, nil, false)
	require.NoError(t, err)
	close(release)
	require.Equal(t, []string{`values {"n":2}`}, w.events(f))
	_, err = w.runs.JoinStream(t.Context(), "", r.ID, nil, nil, false)
	require.True(t, fault.Is(err, fault.NotFound), "its temporary thread is gone")
}

// TestWaitOutlivesAFlood: who waits for a result gets it, though it fell too far behind the events to be given them.
func TestWaitOutlivesAFlood(t *testing.T) {
	t.Parallel()
	emitted := make(chan struct{})
	release := make(chan struct{})
	w := newWorld(t, map[string]script{"flood": {stream: func(_ context.Context, _ graph.Invocation, emit func(name, data string)) error {
		emit("custom", `"`+strings.Repeat("x", 20<<20)+`"`)
		emit("custom", "1")
		emit("custom", "2")
		close(emitted)
		<-release
		return nil
	}}}, nil)
	th := w.thread()
	_, f, err := w.runs.Start(t.Context(), th, request("flood"))
	require.NoError(t, err)
	<-emitted
	time.AfterFunc(50*time.Millisecond, func() { close(release) }) // whether it ends before or after it is followed again
	_, err = f.Result(t.Context())
	require.NoError(t, err)
	f.Close(false)
}
