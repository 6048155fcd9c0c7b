package service_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/limits"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/webhook"
)

// result waits for the outcome.
func (w *world) result(f run.Follower) run.Result {
	w.t.Helper()
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	res, err := f.Result(ctx)
	require.NoError(w.t, err)
	return res
}

func (w *world) written(r *run.Run) bool {
	w.t.Helper()
	_, err := w.rows.Runs().Run(w.t.Context(), "", r.ID)
	if err != nil {
		require.True(w.t, fault.Is(err, fault.NotFound), "%v", err)
	}
	return err == nil
}

// gated ends when open is closed.
func gated(open <-chan struct{}) script {
	return script{stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
		select {
		case <-open:
			emit("values", `{"n":2}`)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

func TestDeferredRunsAreNotWritten(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	raises := script{stream: func(context.Context, graph.Invocation, func(string, string)) error {
		return &graph.Failure{Type: "ValueError", Message: "no"}
	}}
	w := newWorld(t, map[string]script{"gated": gated(open), "raises": raises}, nil)
	r, f, err := w.runs.Begin(t.Context(), "", request("gated"))
	require.NoError(t, err)
	require.Equal(t, run.Pending, r.Status)
	require.False(t, w.written(r))
	// A wait that was given up goes on where it was.
	short, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Result(short)
	require.ErrorIs(t, err, context.Canceled)
	close(open)
	require.JSONEq(t, `{"n":2}`, string(w.result(f).Values))
	require.False(t, w.written(r))
	require.NoError(t, f.EnsureDurable(t.Context())) // too late to matter
	require.False(t, w.written(r))

	_, f, err = w.runs.Begin(t.Context(), "", request("raises"))
	require.NoError(t, err)
	require.JSONEq(t, `{"error":"ValueError","message":"no"}`, string(w.result(f).Error))
}

func TestDeferredRunsThatMustBeWritten(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*run.Request){
		"kept": func(q *run.Request) { q.OnCompletion = "keep" },
		"told": func(q *run.Request) { q.Webhook = "http://127.0.0.1:1/" },
		"late": func(q *run.Request) { q.After = time.Hour },
		"seen": func(q *run.Request) { q.Resumable = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan struct{})
			w := newWorld(t, map[string]script{"gated": gated(open)}, nil)
			req := request("gated")
			change(&req)
			r, f, err := w.runs.Begin(t.Context(), "", req)
			require.NoError(t, err)
			defer f.Close(false)
			require.True(t, w.written(r))
			close(open)
		})
	}
	t.Run("no job is free", func(t *testing.T) {
		t.Parallel()
		open := make(chan struct{})
		w := newWorld(t, map[string]script{"gated": gated(open)}, func(o *service.Options) { o.Jobs = 1 })
		_, first, err := w.runs.Begin(t.Context(), "", request("gated"))
		require.NoError(t, err)
		r, second, err := w.runs.Begin(t.Context(), "", request("gated"))
		require.NoError(t, err)
		require.True(t, w.written(r))
		close(open)
		require.JSONEq(t, `{"n":2}`, string(w.result(first).Values))
		require.JSONEq(t, `{"n":2}`, string(w.result(second).Values))
	})
}

func TestSettledRunsAreAsOthers(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 1)
	w := newWorld(t, map[string]script{"hang": hang(started)}, nil)
	r, f, err := w.runs.Begin(t.Context(), "", request("hang"))
	require.NoError(t, err)
	<-started
	require.NoError(t, f.EnsureDurable(t.Context()))
	require.Equal(t, run.Running, w.status("", r.ID))
	require.NoError(t, w.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true))
	require.JSONEq(t, `{"at":"hang"}`, string(w.result(f).Values))
	require.False(t, w.written(r))
}

// A run that cannot be written is not run on, for its client is told that there is none.
func TestDeferredRunsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	started, ended := make(chan id.Run, 1), make(chan error, 1)
	inner := hang(started)
	w := newWorld(t, map[string]script{"hang": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		err := inner.stream(ctx, inv, emit)
		ended <- err
		return err
	}}}, nil)
	r, f, err := w.runs.Begin(t.Context(), "", request("hang"))
	require.NoError(t, err)
	<-started
	refused, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.EnsureDurable(refused), context.Canceled)
	require.ErrorContains(t, <-ended, "deleted")
	require.Empty(t, w.result(f).Error)
	require.False(t, w.written(r))
}

// The worker died: the run is put into the queue as any other, and the second attempt answers.
func TestDeferredRunsThatDie(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	w := newWorld(t, map[string]script{"dies": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		if n.Add(1) == 1 {
			return graph.ErrWorkerDied
		}
		emit("values", `{"ok":true}`)
		return nil
	}}}, nil)
	r, f, err := w.runs.Begin(t.Context(), "", request("dies"))
	require.NoError(t, err)
	require.JSONEq(t, `{"ok":true}`, string(w.result(f).Values))
	require.EqualValues(t, 2, n.Load())
	require.False(t, w.written(r))
}

// Settle does not wait for the end of the run, which is being written, longer than its client does.
func TestDeferredRunsThatAreWrittenSlowly(t *testing.T) {
	t.Parallel()
	storage := newPaused(t)
	first := make(chan struct{}, 1)
	first <- struct{}{}
	w := newWorldOn(t, func(s run.Store) run.Store {
		storage.Store = s
		return storage
	}, map[string]script{"dies": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		select {
		case <-first:
			storage.armed.Store(true)
			return graph.ErrWorkerDied
		default:
			return nil
		}
	}}}, nil)
	_, f, err := w.runs.Begin(t.Context(), "", request("dies"))
	require.NoError(t, err)
	next(t, storage.written)
	settled := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		settled <- f.EnsureDurable(ctx)
	}()
	require.ErrorIs(t, next(t, settled), context.DeadlineExceeded)
	storage.resume()
	require.NoError(t, f.EnsureDurable(t.Context()))
	require.Empty(t, w.result(f).Error)
}

// A server that ends hands such a run to the next one, as it does with all.
func TestDeferredRunsAtShutdown(t *testing.T) {
	t.Parallel()
	started := make(chan id.Run, 2)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) { o.Grace = time.Millisecond })
	r, f, err := w.runs.Begin(t.Context(), "", request("hang"))
	require.NoError(t, err)
	<-started
	w.stop()
	_, err = f.Result(t.Context())
	require.ErrorIs(t, err, bridge.ErrClosed)
	f.Close(false)
	w.start()
	require.Equal(t, r.ID, <-started)
}

// What a deferred run says is in the bridge from when others can know of it; its reader misses nothing of it and gets nothing twice.
func TestDeferredRunsAndTheBridge(t *testing.T) {
	t.Parallel()
	for name, settles := range map[string]bool{"not written": false, "written in the middle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, open := make(chan struct{}), make(chan struct{})
			w := newWorld(t, map[string]script{"talks": {stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
				emit("values", `{"n":1}`)
				close(said)
				select {
				case <-open:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				emit("values", `{"n":2}`)
				return nil
			}}}, nil)
			r, f, err := w.runs.Begin(t.Context(), "", request("talks"))
			require.NoError(t, err)
			defer f.Close(false)
			<-said
			others, err := w.bridge.Subscribe(t.Context(), r.Thread, nil)
			require.NoError(t, err)
			defer others.Close()
			if settles {
				require.NoError(t, f.EnsureDurable(t.Context()))
				require.True(t, w.written(r))
			}
			close(open)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var told []string
			for {
				records, err := f.Next(ctx)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				for _, rec := range records {
					told = append(told, rec.Event+" "+string(rec.Data))
				}
			}
			require.Equal(t, []string{`metadata {"run_id":"` + string(r.ID) + `","attempt":1}`, `values {"n":1}`, `values {"n":2}`}, told)
			require.NoError(t, w.bridge.Publish(ctx, r.Thread, []*bridge.Record{{Event: "last"}}))
			overheard, err := others.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, settles, overheard[0].Event != "last")
		})
	}
}

// However a run is made, its request is checked in the same way.
func TestAllWaysToMakeARunAdmitTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": {}}, nil)
	large := []byte(`{"k":"` + strings.Repeat("x", limits.MetadataBytes) + `"}`)
	changes := map[string]func(*run.Request){
		"metadata":                func(r *run.Request) { r.Metadata = large },
		"metadata of config":      func(r *run.Request) { r.Config = []byte(`{"metadata":` + string(large) + `}`) },
		"no such assistant":       func(r *run.Request) { r.AssistantID = "nowhere" },
		"resume without a thread": func(r *run.Request) { r.Command = []byte(`{"resume":1}`) },
		"push":                    func(r *run.Request) { r.Push = []webhook.Push{{URL: "http://169.254.169.254/latest"}} },
		"webhook":                 func(r *run.Request) { r.Webhook = "http://169.254.169.254/latest" },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			req := request("g")
			change(&req)
			_, created := w.runs.Create(t.Context(), "", req)
			_, batch := w.runs.CreateBatch(t.Context(), []run.Request{req})
			_, _, begun := w.runs.Begin(t.Context(), "", req)
			_, _, waits := w.runs.BeginWait(t.Context(), "", req)
			require.Error(t, created)
			require.EqualError(t, batch, created.Error())
			require.EqualError(t, begun, created.Error())
			require.EqualError(t, waits, created.Error())
		})
	}
}
