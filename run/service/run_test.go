package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/logtest"
	"understudy/internal/redistest"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/webhook"
	"understudy/storage/sqlite"
	"understudy/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withCluster{m}, redistest.Dialing) }

// script is a graph that does what a test says. Only Stream is used.
type script struct {
	graph.Graph
	stream func(ctx context.Context, inv graph.Invocation, emit func(name, data string)) error
	events []graph.Event // in place of stream
}

func (s script) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		for _, e := range s.events {
			yield(e, nil)
		}
		if s.stream == nil {
			return
		}
		err := s.stream(ctx, inv, func(name, data string) { yield(graph.Event{Name: name, Data: json.RawMessage(data)}, nil) })
		if err != nil {
			yield(graph.Event{}, err)
		}
	}
}

type wire struct{}

func (wire) Run(r *run.Run) json.RawMessage { return compat.AppendRun(nil, r, nil) }
func (wire) Request(payload json.RawMessage, stateless bool) (run.Request, error) {
	return compat.NewRun(payload, compat.RunForm{Stateless: stateless})
}

// world is a service at work on a database of its own.
type world struct {
	t       testing.TB
	dir     string
	options service.Options
	graphs  *graph.Registry
	rows    *sqlite.Store
	bridge  *bridge.Memory
	runs    *service.Service
	wrap    func(run.Store) run.Store            // of the next start; nil: the rows themselves
	overlay func(*sqlite.Store) *overlay.Overlay // of the next start; nil: that of the options
	stop    func()                               // ends the service and waits; idempotent
}

// newWorld serves the graphs. change may set options.
func newWorld(t testing.TB, graphs map[string]script, change func(*service.Options)) *world {
	t.Helper()
	return newWorldOn(t, nil, graphs, change)
}

// newWorldOn is newWorld with a storage that a function makes of the rows.
func newWorldOn(t testing.TB, wrap func(run.Store) run.Store, graphs map[string]script, change func(*service.Options)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), graphs: graph.NewRegistry(), wrap: wrap}
	for name, g := range graphs {
		require.NoError(t, w.graphs.Add(name, "", g))
	}
	w.options = service.Options{Jobs: 4, Grace: 5 * time.Second, Wire: wire{}, Webhooks: &webhook.Policy{AllowLoopback: true}}
	if os.Getenv("VERBOSE") != "" {
		w.options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&w.options)
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start opens the database and lets the service work, as a new process would.
func (w *world) start() {
	t := w.t
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	w.rows, err = sqlite.Open(ctx, sqlite.Options{Dir: w.dir})
	require.NoError(t, err)
	w.bridge = bridge.NewMemory(bridge.Options{})
	o := w.options
	o.Store, o.Bridge, o.Graphs = w.rows.Runs(), w.bridge, w.graphs
	if w.wrap != nil {
		o.Store = w.wrap(o.Store)
	}
	o.Snapshots = checkpointer.NewSnapshots(w.rows.Threads(), nil)
	if w.overlay != nil {
		o.Overlay = w.overlay(w.rows)
	}
	w.runs = service.New(o)
	require.NoError(t, assistant.NewService(w.rows.Assistants(), w.graphs, nil).EnsureDefaults(ctx, nil))
	busy, err := w.rows.Threads().Threads(ctx, thread.Query{Status: thread.Busy})
	require.NoError(t, err)
	var ids []id.Thread
	for _, b := range busy {
		ids = append(ids, b.ID)
	}
	require.NoError(t, w.runs.Recover(ctx, ids))
	ended := make(chan error, 1)
	go func() { ended <- w.runs.Run(ctx) }()
	var once sync.Once
	rows, br := w.rows, w.bridge
	w.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-ended)
			require.NoError(t, br.Close())
			require.NoError(t, rows.Close())
		})
	}
}

func (w *world) thread() id.Thread {
	w.t.Helper()
	now := time.Now()
	row := &thread.Thread{ID: id.NewThread(), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle}
	require.NoError(w.t, w.rows.Threads().Write(w.t.Context(), func(tx thread.Tx) error { return tx.InsertThread(row) }))
	return row.ID
}

func request(graph string) run.Request {
	req := run.Request{AssistantID: graph, Strategy: run.Enqueue, IfNotExists: "reject", OnDisconnect: "continue", OnCompletion: "delete"}
	req.Input, req.Modes, req.Durability = json.RawMessage(`{"n":1}`), []string{"values"}, "async"
	return req
}

// events reads a follower to its end.
func (w *world) events(f run.Follower) (out []string) {
	w.t.Helper()
	for _, r := range w.records(f) {
		out = append(out, r.Event+" "+string(r.Data))
	}
	return out
}

// records reads to the end.
func (w *world) records(f run.Follower) (out []*bridge.Record) {
	w.t.Helper()
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		records, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(w.t, err)
		out = append(out, records...)
	}
}

func (w *world) status(t id.Thread, r id.Run) run.Status {
	w.t.Helper()
	row, err := w.runs.Get(w.t.Context(), t, r)
	require.NoError(w.t, err)
	return row.Status
}

func (w *world) row(t id.Thread) *thread.Thread {
	w.t.Helper()
	row, err := w.rows.Threads().Thread(w.t.Context(), t)
	require.NoError(w.t, err)
	return row
}

// wait joins a run until its end.
func (w *world) wait(t id.Thread, r id.Run) run.Result {
	w.t.Helper()
	f, err := w.runs.Join(w.t.Context(), t, r)
	require.NoError(w.t, err)
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	res, err := f.Result(ctx)
	require.NoError(w.t, err)
	return res
}

var echo = script{stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
	emit("values", `{"n":1}`)
	emit("values", `{"n":2}`)
	return nil
}}

// hang waits until it is cancelled; started gets a value each time it begins.
func hang(started chan<- id.Run) script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", `{"at":"hang"}`)
		started <- inv.Run
		<-ctx.Done()
		return context.Cause(ctx)
	}}
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
	for _, tt := range []struct {
		strategy run.Strategy
		first    run.Status // "": gone
	}{{run.Interrupt, run.Interrupted}, {run.Rollback, ""}} {
		t.Run(string(tt.strategy), func(t *testing.T) {
			t.Parallel()
			started := make(chan id.Run, 1)
			w := newWorld(t, map[string]script{"echo": echo, "hang": hang(started)}, nil)
			th := w.thread()
			first, err := w.runs.Create(t.Context(), th, request("hang"))
			require.NoError(t, err)
			<-started
			queued, err := w.runs.Create(t.Context(), th, request("echo"))
			require.NoError(t, err)

			req := request("echo")
			req.Strategy = run.Reject
			_, err = w.runs.Create(t.Context(), th, req)
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

func TestCancel(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	refused := make(chan error, 1)
	w := newWorld(t, map[string]script{"hang": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		started <- inv.Run
		<-ctx.Done()
		// What a cancelled run still wants to write is refused: the cancel is true at once.
		refused <- inv.Saver.Save(context.WithoutCancel(ctx), graph.Save{At: checkpointer.Key{Thread: inv.Thread, ID: "c"}})
		return context.Cause(ctx)
	}}}, nil)
	th := w.thread()
	r, f, err := w.runs.Start(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
	require.ErrorIs(t, <-refused, graph.ErrFenced)
	require.Equal(t, run.Interrupted, w.status(th, r.ID))
	require.Contains(t, string(w.row(th).Error), "UserInterrupt")
	require.Len(t, w.events(f), 1, "the stream just ends")

	err = w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true)
	require.True(t, fault.Is(err, fault.NotFound) && strings.HasPrefix(err.Error(), "No matching runs to cancel."))
	err = w.runs.Cancel(t.Context(), th, []id.Run{id.NewRun()}, run.CancelInterrupt, true)
	require.EqualError(t, err, "No runs found to cancel.")
}

func TestCancelOfAllRunsFindsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	req := request("echo")
	req.After = time.Hour
	for _, status := range []string{"pending", "all"} {
		_, _, err := w.runs.Start(t.Context(), w.thread(), req)
		require.NoError(t, err)
		require.EqualError(t, w.runs.CancelAll(t.Context(), "running", run.CancelInterrupt), "No runs found to cancel.")
		require.NoError(t, w.runs.CancelAll(t.Context(), status, run.CancelInterrupt))
		err = w.runs.CancelAll(t.Context(), status, run.CancelInterrupt)
		require.EqualError(t, err, "No runs found to cancel.")
		require.True(t, fault.Is(err, fault.NotFound))
	}
}

func TestCancelOfADelayedRun(t *testing.T) {
	t.Parallel()
	for _, action := range []run.Action{run.CancelInterrupt, run.CancelRollback} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]script{"echo": echo}, nil)
			th := w.thread()
			req := request("echo")
			req.After = time.Hour
			r, f, err := w.runs.Start(t.Context(), th, req)
			require.NoError(t, err)
			require.Equal(t, thread.Busy, w.row(th).Status)
			require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, action, false))
			require.Empty(t, w.events(f), "whoever follows it is told")
			require.Equal(t, thread.Idle, w.row(th).Status)
			if action == run.CancelInterrupt {
				require.Equal(t, run.Interrupted, w.status(th, r.ID))
			} else {
				_, err := w.runs.Get(t.Context(), th, r.ID)
				require.True(t, fault.Is(err, fault.NotFound))
			}
		})
	}
}

func TestADelayedRunLetsOthersPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	req := request("echo")
	req.After = 300 * time.Millisecond
	late, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	now, err := w.runs.Create(t.Context(), th, request("echo"))
	require.NoError(t, err)
	w.wait(th, now.ID)
	require.Equal(t, run.Pending, w.status(th, late.ID))
	require.Equal(t, thread.Busy, w.row(th).Status)
	w.wait(th, late.ID)
	require.Equal(t, run.Success, w.status(th, late.ID))
}

func TestAReaderWhoLeavesCancels(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(started)}, nil)
	th := w.thread()
	req := request("hang")
	req.OnDisconnect = "cancel"
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	<-started
	f.Close(true)
	w.wait(th, r.ID)
	require.Equal(t, run.Interrupted, w.status(th, r.ID))
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) { o.Timeout = 50 * time.Millisecond })
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	require.Equal(t, run.Timeout, w.status(th, r.ID))
}

func TestAWorkerThatDies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		deaths int32
		want   run.Status
	}{{1, run.Success}, {2, run.Success}, {3, run.Error}} {
		t.Run(fmt.Sprint(tt.deaths), func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			var isolated []bool
			w := newWorld(t, map[string]script{"dies": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
				isolated = append(isolated, inv.Isolated)
				if n.Add(1) <= tt.deaths {
					return graph.ErrWorkerDied
				}
				emit("values", `{"ok":true}`)
				return nil
			}}}, nil)
			th := w.thread()
			r, f, err := w.runs.Start(t.Context(), th, request("dies"))
			require.NoError(t, err)
			events := w.events(f)
			require.Equal(t, tt.want, w.status(th, r.ID))
			require.Contains(t, events[1], `"attempt":2`)
			require.Equal(t, []bool{false, true}, isolated[:2], "the second attempt must not take neighbours along")
		})
	}
}

// What is known of the death of a worker is in the log, and in the error of a run that ends with it.
func TestDeathsHaveACause(t *testing.T) {
	t.Parallel()
	death := &graph.Death{Cause: "it left with exit code 4", At: "in or after node act", Fix: "look for os._exit"}
	log := &logtest.Buffer{}
	w := newWorld(t, map[string]script{"dies": {stream: func(context.Context, graph.Invocation, func(string, string)) error { return death }}}, func(o *service.Options) {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("dies"))
	require.NoError(t, err)
	row := w.wait(th, r.ID)
	const why = `"the process running the graph died: it left with exit code 4, in or after node act" {"reason":"worker_died","attempt":`
	require.Equal(t, []string{"run.start trace", "run.retry trace", "run.retry trace", "run.error error"}, w.life(th, r.ID))
	require.Equal(t, []string{why + "1}", why + "2}"}, w.retries(th, r.ID))
	w.stop() // what is logged after the end is there then
	require.JSONEq(t, `{"error":"WorkerDied","message":"The process running the graph died 3 times in a row. The last time: it left with exit code 4, in or after node act. Next step: look for os._exit."}`, string(row.Error))
	for _, line := range []string{"level=WARN .*deaths=1 of=3 cause=\"it left with exit code 4, in or after node act\" fix=", "level=WARN .*deaths=2", "level=ERROR .*the run ends.*deaths=3"} {
		require.Regexp(t, line, log.String())
	}
}

// Values wait until their checkpoint is saved, and are not shown when it could not be.
func TestValuesOfLostCheckpoints(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	lost := func(is bool) func() bool { return func() bool { <-hold; return is } }
	w := newWorld(t, map[string]script{"held": {events: []graph.Event{
		{Name: "values", Data: json.RawMessage(`{"n":1}`), Hold: hold, Lost: lost(false)},
		{Name: "values", Data: json.RawMessage(`{"n":2}`), Hold: hold, Lost: lost(true)},
	}}}, nil)
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("held"))
	require.NoError(t, err)
	f, err := w.runs.Join(t.Context(), th, r.ID)
	require.NoError(t, err)
	defer f.Close(false)
	close(hold) // not before: of a run that has ended the thread has the values, and this graph saves none
	res, err := f.Result(t.Context())
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(res.Values))
}

func TestLaterAttemptsGoOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	var inputs []string
	w := newWorld(t, map[string]script{"dies": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		inputs = append(inputs, string(inv.Input))
		if len(inputs) == 2 {
			err := inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: inv.Thread, ID: "1ef00000-0000-6000-8000-000000000001"}, Run: inv.Run,
				Data: json.RawMessage(`{"v":4,"id":"1ef00000-0000-6000-8000-000000000001","channel_values":{},"channel_versions":{},"versions_seen":{},"ts":"2026-01-01T00:00:00+00:00"}`), Metadata: json.RawMessage(`{"source":"input","step":-1}`),
			}}})
			if err != nil {
				return err
			}
		}
		if len(inputs) < 3 {
			return graph.ErrWorkerDied
		}
		return nil
	}}}, nil)
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("dies"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	require.Equal(t, []string{`{"n":1}`, `{"n":1}`, ""}, inputs)
}

func TestShutdownHandsBackAndTheNextServerGoesOn(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 4)
	var second atomic.Bool
	w := newWorld(t, map[string]script{"hang": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		if second.Load() {
			emit("values", `{"attempt":"second"}`)
			return nil
		}
		emit("values", `{"attempt":"first"}`)
		started <- inv.Run
		<-ctx.Done()
		return context.Cause(ctx)
	}}}, func(o *service.Options) { o.Grace = 20 * time.Millisecond })
	th := w.thread()
	req := request("hang")
	req.Resumable = true
	r, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	queued, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	<-started
	w.stop()

	second.Store(true)
	w.start()
	w.wait(th, queued.ID)
	require.Equal(t, run.Success, w.status(th, r.ID))
	require.Equal(t, thread.Idle, w.row(th).Status)
	// What the first server streamed is still there to be replayed, and its ids come first.
	f, err := w.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	require.Equal(t, []string{
		`metadata {"run_id":"` + string(r.ID) + `","attempt":1}`, `values {"attempt":"first"}`,
		`metadata {"run_id":"` + string(r.ID) + `","attempt":2}`, `values {"attempt":"second"}`,
	}, w.events(f))
}

// paused is a storage whose next write of a run returns only when it may.
type paused struct {
	run.Store
	armed   atomic.Bool
	written chan struct{}
	resume  func() // may be called again
	resumed <-chan struct{}
}

func newPaused(t *testing.T) *paused {
	resumed, resume := context.WithCancel(t.Context()) // a test that fails must not hang
	return &paused{written: make(chan struct{}), resume: resume, resumed: resumed.Done()}
}

func (p *paused) Write(ctx context.Context, fn func(run.Tx) error) error {
	var wrote bool
	err := p.Store.Write(ctx, func(tx run.Tx) error {
		wrote = false
		return fn(runWrites{tx, &wrote})
	})
	if wrote && p.armed.Swap(false) {
		close(p.written)
		<-p.resumed
	}
	return err
}

// runWrites notes whether a transaction writes a run.
type runWrites struct {
	run.Tx
	wrote *bool
}

func (tx runWrites) InsertRun(r *run.Run) error {
	*tx.wrote = true
	return tx.Tx.InsertRun(r)
}

func (tx runWrites) UpdateRun(r *run.Run) error {
	*tx.wrote = true
	return tx.Tx.UpdateRun(r)
}

// A run that is claimed while it is created, and not executed yet, when the server ends: it is handed back before the service returns.
func TestShutdownWaitsForRunsThatAreBeingCreated(t *testing.T) {
	t.Parallel()
	for _, stateless := range []bool{false, true} {
		started, ending := make(chan id.Run, 8), make(chan struct{})
		last := script{stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			started <- inv.Run
			<-ctx.Done()
			close(ending)
			return context.Cause(ctx)
		}}
		w := newWorld(t, map[string]script{"hang": hang(started), "last": last}, func(o *service.Options) { o.Grace = time.Millisecond })
		w.stop()
		storage := newPaused(t)
		w.wrap = func(s run.Store) run.Store {
			storage.Store = s
			return storage
		}
		w.start()
		th := id.Thread("")
		if !stateless {
			th = w.thread()
		}
		_, err := w.runs.Create(t.Context(), w.thread(), request("last"))
		require.NoError(t, err)
		next(t, started)
		req := request("hang")
		req.OnCompletion = "keep"
		created := make(chan *run.Run, 1)
		storage.armed.Store(true)
		go func() {
			r, err := w.runs.Create(t.Context(), th, req)
			if err != nil {
				t.Error(err)
			}
			created <- r
		}()
		next(t, storage.written)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			w.stop()
		}()
		next(t, ending) // the grace period is over
		require.Never(t, func() bool {
			select {
			case <-stopped:
				return true
			default:
				return false
			}
		}, 200*time.Millisecond, 10*time.Millisecond, "the service returned while a run was being created")
		storage.resume()
		next(t, stopped)
		r := next(t, created)
		rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: w.dir})
		require.NoError(t, err)
		row, err := rows.Runs().Run(t.Context(), r.Thread, r.ID)
		require.NoError(t, err)
		require.Equal(t, run.Pending, row.Status, "handed back")
		require.NoError(t, rows.Close())
	}
}

// A start finishes cancels that the last server did not, however many there are, before the service works.
func TestManyCancelsAtTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	w.stop()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: w.dir})
	require.NoError(t, err)
	var all []*run.Run
	now := time.Now()
	require.NoError(t, rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		for range 1100 {
			row := &thread.Thread{ID: id.NewThread(), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Busy}
			r := &run.Run{
				ID: id.NewRun(), Thread: row.ID, Assistant: id.DefaultAssistant("echo"), Graph: "echo", Metadata: json.RawMessage(`{}`), Status: run.Running, Strategy: run.Enqueue,
				CreatedAt: now, UpdatedAt: now, StartedAt: now, Attempt: 1, Owner: "another", Cancel: run.CancelInterrupt, Kwargs: run.Arguments{Config: json.RawMessage(`{}`)},
			}
			r.Kwargs.Resumable = true
			all = append(all, r)
			if err := errors.Join(tx.InsertThread(row), tx.InsertRun(r)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, rows.Close())
	w.start()
	for _, r := range all {
		require.Equal(t, run.Interrupted, w.status(r.Thread, r.ID))
	}
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
	threads := thread.NewService(thread.Options{Store: w.rows.Threads(), Graphs: w.graphs, Snapshots: checkpointer.NewSnapshots(w.rows.Threads(), nil), Deleted: w.runs.ThreadDeleted})
	require.NoError(t, threads.Delete(t.Context(), th))
	w.events(running)
	require.Empty(t, w.events(queued))
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	got := make(chan string, 8)
	var refuse atomic.Int32
	refuse.Store(1)
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if refuse.Add(-1) >= 0 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		body, _ := io.ReadAll(req.Body)
		got <- string(body)
	}))
	t.Cleanup(hook.Close)
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	th := w.thread()
	req := request("echo")
	req.Webhook = hook.URL + "/done"
	r, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	select {
	case body := <-got: // the second attempt
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &m))
		require.Equal(t, string(r.ID), m["run_id"])
		require.Equal(t, "success", m["status"])
		require.NotEmpty(t, m["webhook_sent_at"])
	case <-time.After(time.Minute):
		t.Fatal("the webhook did not come")
	}
}

// Push notifications that are set while a run is executed are sent at its end, and shown with no run.
func TestPushNotifications(t *testing.T) {
	t.Parallel()
	got := make(chan string, 8)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- req.URL.Path + " " + gjson.GetBytes(body, "id").Str + " " + gjson.GetBytes(body, "status.state").Str
	}))
	t.Cleanup(hook.Close)
	begun, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, map[string]script{"held": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		close(begun)
		<-release
		return nil
	}}}, nil)
	th := w.thread()
	req := request("held")
	req.Push = []webhook.Push{{ID: "1", URL: hook.URL + "/one"}}
	r, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	<-begun
	add := func(p webhook.Push) error {
		return w.runs.SetPush(t.Context(), th, r.ID, func(list []webhook.Push) ([]webhook.Push, error) { return append(list, p), nil })
	}
	require.Equal(t, fault.Unprocessable, fault.KindOf(add(webhook.Push{URL: "nowhere"})))
	require.NoError(t, add(webhook.Push{ID: "2", URL: hook.URL + "/two", Task: "task"}))
	require.Equal(t, fault.NotFound, fault.KindOf(w.runs.SetPush(t.Context(), th, id.NewRun(), nil)))
	close(release)
	var all []string
	for range 2 {
		select {
		case one := <-got:
			all = append(all, one)
		case <-time.After(time.Minute):
			t.Fatal("a notification did not come")
		}
	}
	require.ElementsMatch(t, []string{"/one " + string(th) + ":" + string(r.ID) + " completed", "/two task completed"}, all)
}

func TestCronFiresOnceAndMovesOn(t *testing.T) {
	t.Parallel()
	var fired atomic.Int32
	done := make(chan struct{}, 8)
	var offset atomic.Int64
	w := newWorld(t, map[string]script{"echo": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		fired.Add(1)
		done <- struct{}{}
		return nil
	}}}, func(o *service.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	th := w.thread()
	c, err := w.runs.Crons().Create(t.Context(), run.NewCron{
		Thread: th, AssistantID: "echo", Schedule: "0 0 1 1 *", Enabled: true,
		Payload: map[string]json.RawMessage{"input": json.RawMessage(`{"n":1}`)},
	})
	require.NoError(t, err)
	// A year passes while the server is down.
	w.stop()
	offset.Store(int64(366 * 24 * time.Hour))
	w.start()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the cron did not fire")
	}
	again, err := w.runs.Crons().Get(t.Context(), c.ID)
	require.NoError(t, err)
	require.True(t, again.Next.After(*c.Next))
	rows, err := w.runs.List(t.Context(), th, run.Query{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Contains(t, string(rows[0].Kwargs.Config), string(c.ID))
	require.EqualValues(t, 1, fired.Load())
}

func TestCronErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"echo": echo}, nil)
	for _, tt := range []struct {
		n    run.NewCron
		kind fault.Kind
	}{
		{run.NewCron{AssistantID: "nope", Schedule: "* * * * *"}, fault.NotFound},
		{run.NewCron{AssistantID: "echo", Schedule: "every day"}, fault.Unprocessable},
		{run.NewCron{AssistantID: "echo", Schedule: "* * * * *", Timezone: "Mars/Base"}, fault.Unprocessable},
		{run.NewCron{AssistantID: "echo", Schedule: "* * * * *", Timezone: "Local"}, fault.Unprocessable},
		{run.NewCron{AssistantID: "echo", Schedule: "* * * * *", Thread: id.NewThread()}, fault.NotFound},
	} {
		_, err := w.runs.Crons().Create(t.Context(), tt.n)
		require.Equal(t, tt.kind, fault.KindOf(err), "%+v: %v", tt.n, err)
	}
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

// Deaths count only since the last checkpoint, and so does a worker of its own.
func TestACheckpointClearsDeaths(t *testing.T) {
	t.Parallel()
	attempts := 0
	w := newWorld(t, map[string]script{"dies": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		attempts++
		if attempts > 8 {
			return nil
		}
		if attempts%2 == 0 {
			at := fmt.Sprintf("1ef00000-0000-6000-8000-00000000000%d", attempts)
			err := inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: inv.Thread, ID: id.Checkpoint(at)}, Run: inv.Run, Metadata: json.RawMessage(`{"source":"loop","step":1}`),
				Data: json.RawMessage(`{"v":4,"id":"` + at + `","channel_values":{},"channel_versions":{},"versions_seen":{},"ts":"2026-01-01T00:00:00+00:00"}`),
			}}})
			if err != nil {
				return err
			}
		}
		return graph.ErrWorkerDied
	}}}, nil)
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("dies"))
	require.NoError(t, err)
	w.wait(th, r.ID)
	require.Equal(t, run.Success, w.status(th, r.ID))
	require.Equal(t, 9, attempts)
}
