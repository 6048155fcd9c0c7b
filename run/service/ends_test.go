package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/logtest"
	"understudy/run"
	"understudy/run/service"
	"understudy/storage/sqlite"
	"understudy/thread"
)

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
	require.JSONEq(t, `{"error":"WorkerDied","message":"The process running the graph died 3 times without a checkpoint in between. The last time: it left with exit code 4, in or after node act. Next step: look for os._exit."}`, string(row.Error))
	for _, line := range []string{"level=WARN .*deaths_since_checkpoint=1 of=3 cause=\"it left with exit code 4, in or after node act\" fix=", "level=WARN .*deaths_since_checkpoint=2", "level=ERROR .*the run ends.*deaths_since_checkpoint=3"} {
		require.Regexp(t, line, log.String())
	}
}

// Why a run failed is in the log once, whether the graph said much or little about it.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"a text":      &graph.Failure{Type: "UpstreamError", Message: "it is away"},
		"a fix":       &graph.Failure{Type: "E", Message: "nothing was presented", Fix: "present it"},
		"a traceback": &graph.Failure{Type: "E", Message: graph.Masked, Detail: "E: it broke\nline 1"},
		"unknown":     errors.New("disk is gone"),
	} {
		log := &logtest.Buffer{}
		w := newWorld(t, map[string]script{"fails": {stream: func(context.Context, graph.Invocation, func(string, string)) error { return err }}}, func(o *service.Options) {
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		th := w.thread()
		r, made := w.runs.Create(t.Context(), th, request("fails"))
		require.NoError(t, made)
		w.wait(th, r.ID)
		require.Equal(t, run.Error, w.status(th, r.ID))
		w.stop()
		want := map[string]string{"a text": "UpstreamError: it is away", "a fix": `error="E: nothing was presented".*fix="present it"`, "a traceback": "E: it broke", "unknown": "disk is gone"}[name]
		require.Regexp(t, want, log.String(), name)
		require.Len(t, regexp.MustCompile("graph raised|running a graph failed").FindAllString(log.String(), -1), 1, name)
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

// A cancel while a checkpoint is being saved: its values are not shown, because the save is refused from then on.
func TestValuesOfACheckpointThatACancelOvertakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"held": {events: []graph.Event{
		{Name: "custom", Data: json.RawMessage(`1`)},
		{Name: "values", Data: json.RawMessage(`{"n":1}`), Hold: make(chan struct{})},
	}}}, nil)
	th := w.thread()
	req := request("held")
	req.Modes = []string{"custom", "values"}
	r, f, err := w.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	for { // until the graph is at the values
		records, err := f.Next(t.Context())
		require.NoError(t, err)
		if slices.ContainsFunc(records, func(rec *bridge.Record) bool { return rec.Event == "custom" }) {
			break
		}
	}
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
	require.NotContains(t, strings.Join(w.events(f), " "), "values")
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

// restartDuring starts a run of stream, stops the server and starts it again, and returns the run and its thread. What the server logs goes to log.
func restartDuring(t *testing.T, log *said, grace time.Duration, stream func(ctx context.Context) error) (*world, id.Thread, *run.Run) {
	t.Helper()
	began := make(chan struct{}, 2)
	w := newWorld(t, map[string]script{"long": {stream: func(ctx context.Context, _ graph.Invocation, _ func(string, string)) error {
		began <- struct{}{}
		return stream(ctx)
	}}}, func(o *service.Options) {
		o.Grace = grace
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	th := w.thread()
	r, err := w.runs.Create(t.Context(), th, request("long"))
	require.NoError(t, err)
	<-began
	w.stop()
	w.start()
	return w, th, r
}

// A stop that waits for a run says so, long before the grace period is over.
func TestShutdownSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	log := &said{text: "waiting for runs to end", heard: make(chan struct{})}
	w, th, r := restartDuring(t, log, time.Minute, func(ctx context.Context) error {
		select {
		case <-log.heard:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	require.Equal(t, run.Success, w.status(th, r.ID))
	require.Regexp(t, `runs=1 busiest_graph=long for=\d+s`, log.String())
}

// So does one whose grace period ends before its runs do: they may take their time to stop.
func TestShutdownSaysWhenItStopsRuns(t *testing.T) {
	t.Parallel()
	log := &said{text: "the grace period is over", heard: make(chan struct{})}
	w, th, r := restartDuring(t, log, time.Millisecond, func(ctx context.Context) error {
		<-log.heard
		return context.Cause(ctx)
	})
	w.wait(th, r.ID)
	require.Equal(t, run.Success, w.status(th, r.ID))
	require.Regexp(t, `the grace period is over: .* runs=1 busiest_graph=long`, log.String())
}

// said is a log in which a text is waited for.
type said struct {
	logtest.Buffer
	text  string
	heard chan struct{} // closed when the text is there
	once  sync.Once
}

func (s *said) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(string(p), s.text) {
		s.once.Do(func() { close(s.heard) })
	}
	return n, err
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
