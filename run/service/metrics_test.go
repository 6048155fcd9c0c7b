package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/metricstest"
	"understudy/run"
	"understudy/run/service"
	"understudy/storage/sqlite"
)

// watched are the metrics of a service.
type watched struct {
	t *testing.T
	*prometheus.Registry
}

// becomes waits until a metric has a value: some are counted after those who wait for a run were told.
func (w watched) becomes(want float64, name string, labels ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return metricstest.Value(w.t, w, name, labels...) == want }, time.Minute, 5*time.Millisecond, "%s %v", name, labels)
}

// rerunning is a storage whose transactions all run twice, as those do that meet others.
type rerunning struct{ run.Store }

func (s rerunning) Write(ctx context.Context, fn func(run.Tx) error) error {
	var first error
	again := errors.New("undone")
	err := s.Store.Write(ctx, func(tx run.Tx) error {
		first = fn(tx)
		return again
	})
	if !errors.Is(err, again) {
		return err
	}
	if err = s.Store.Write(ctx, fn); (first == nil) != (err == nil) {
		return fmt.Errorf("at first %w, and then %w", first, err)
	}
	return err
}

func TestMetricsOfRuns(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(run.Store) run.Store{"": nil, "transactions run again": func(s run.Store) run.Store { return rerunning{s} }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metricsOfRuns(t, wrap)
		})
	}
}

func metricsOfRuns(t *testing.T, wrap func(run.Store) run.Store) {
	m := watched{t, prometheus.NewRegistry()}
	started, save := make(chan id.Run, 1), func(ctx context.Context, inv graph.Invocation) error {
		return inv.Saver.Save(context.WithoutCancel(ctx), graph.Save{At: checkpointer.Key{Thread: inv.Thread, ID: "c"}})
	}
	var w *world
	w = newWorldOn(t, wrap, map[string]script{
		"echo": echo,
		"bad": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
			return &graph.Failure{Type: "ValueError", Message: "boom"}
		}},
		"dies": {stream: func(context.Context, graph.Invocation, func(string, string)) error { return graph.ErrWorkerDied }},
		"late": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			started <- inv.Run
			<-ctx.Done()
			return save(ctx, inv)
		}},
		"slow": {stream: func(ctx context.Context, _ graph.Invocation, _ func(string, string)) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}},
		"lost": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			if inv.Attempt > 1 {
				return nil
			}
			// As if another instance had claimed the run.
			if err := w.rows.Runs().Write(ctx, func(tx run.Tx) error {
				r, err := tx.Run(inv.Thread, inv.Run)
				if err != nil {
					return err
				}
				r.Attempt, r.Status = 2, run.Success
				return tx.UpdateRun(r)
			}); err != nil {
				return err
			}
			return save(ctx, inv)
		}},
	}, func(o *service.Options) { o.Registry, o.Timeout = m.Registry, 30*time.Second })
	m.becomes(4, "understudy_jobs")
	m.becomes(1, "understudy_database_up")

	make := func(graph string) *run.Run {
		r, err := w.runs.Create(t.Context(), w.thread(), request(graph))
		require.NoError(t, err)
		return r
	}
	make("echo")
	m.becomes(1, "understudy_runs_ended_total", "status", "success")
	m.becomes(1, "understudy_attempts_ended_total", "outcome", "success")
	m.becomes(1, "understudy_run_wait_seconds")
	m.becomes(1, "understudy_attempt_seconds")
	make("bad")
	m.becomes(1, "understudy_runs_ended_total", "status", "error")
	m.becomes(1, "understudy_attempts_ended_total", "outcome", "error")
	make("dies")
	m.becomes(3, "understudy_attempts_ended_total", "outcome", "worker_died")
	m.becomes(2, "understudy_runs_ended_total", "status", "error")
	m.becomes(3, "understudy_run_wait_seconds") // of each run one

	r := make("late")
	<-started
	m.becomes(1, "understudy_jobs_used")
	m.becomes(1, "understudy_runs_running")
	require.NoError(t, w.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true))
	m.becomes(1, "understudy_fenced_writes_total", "reason", "cancelled")
	m.becomes(1, "understudy_runs_ended_total", "status", "interrupted")
	m.becomes(1, "understudy_attempts_ended_total", "outcome", "cancelled")
	m.becomes(0, "understudy_jobs_used")

	make("lost")
	m.becomes(1, "understudy_fenced_writes_total", "reason", "lost")
	m.becomes(1, "understudy_attempts_ended_total", "outcome", "lost")
	for _, reason := range []string{"cancelled", "lost"} {
		require.Equal(t, 1.0, metricstest.Value(t, m, "understudy_fenced_writes_total", "reason", reason), reason)
	}
}

func TestMetricsOfTimeoutAndHandingBack(t *testing.T) {
	t.Parallel()
	m := watched{t, prometheus.NewRegistry()}
	started := make(chan id.Run, 4)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) {
		o.Registry, o.Timeout, o.Grace = m.Registry, 50*time.Millisecond, time.Millisecond
	})
	_, err := w.runs.Create(t.Context(), w.thread(), request("hang"))
	require.NoError(t, err)
	m.becomes(1, "understudy_runs_ended_total", "status", "timeout")
	m.becomes(1, "understudy_attempts_ended_total", "outcome", "timeout")

	handed := watched{t, prometheus.NewRegistry()}
	other := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) { o.Registry, o.Grace = handed.Registry, time.Millisecond })
	<-started
	_, err = other.runs.Create(t.Context(), other.thread(), request("hang"))
	require.NoError(t, err)
	<-started
	other.stop()
	// The database is closed with it: what needs none still tells.
	require.Equal(t, 1.0, metricstest.Value(t, handed, "understudy_attempts_ended_total", "outcome", "handed_back"))
	require.Zero(t, metricstest.Value(t, handed, "understudy_database_up"))
	require.Zero(t, metricstest.Value(t, handed, "understudy_runs_ended_total"))
}

func TestMetricsOfTheQueue(t *testing.T) {
	t.Parallel()
	m := watched{t, prometheus.NewRegistry()}
	started := make(chan id.Run, 4)
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) { o.Registry, o.Jobs, o.Now = m.Registry, 1, now })
	th := w.thread()
	create := func(th id.Thread, after time.Duration) *run.Run {
		req := request("hang")
		req.After = after
		r, err := w.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		return r
	}
	create(th, 0)
	<-started
	behind := create(th, 0)
	ahead.Add(int64(10 * time.Second))
	create(w.thread(), 0)
	create(w.thread(), time.Hour)
	ahead.Add(int64(5 * time.Second))
	m.becomes(3, "understudy_runs_pending")
	m.becomes(1, "understudy_runs_running")
	m.becomes(1, "understudy_runs_due")
	require.InDelta(t, 5, metricstest.Value(t, m, "understudy_queue_wait_seconds"), 4)
	require.InDelta(t, 15, metricstest.Value(t, m, "understudy_queue_longest_wait_seconds"), 4)
	q, err := w.runs.Queue(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{3, 1, 1}, []int{q.Pending, q.Running, q.Due})

	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{behind.ID}, run.CancelInterrupt, true))
	m.becomes(1, "understudy_runs_ended_total", "status", "interrupted")
	m.becomes(2, "understudy_runs_pending")
}

func TestMetricsOfTakeovers(t *testing.T) {
	t.Parallel()
	m := watched{t, prometheus.NewRegistry()}
	c := newCluster(t)
	left(t, c.open(), time.Now().Add(-time.Second), "")
	c.start(map[string]script{"g": echo}, func(o *service.Options) { o.Registry = m.Registry })
	m.becomes(1, "understudy_takeovers_total")
	m.becomes(1, "understudy_runs_ended_total", "status", "success")

	// A data folder has one server: the next takes over all that it left.
	alone := watched{t, prometheus.NewRegistry()}
	started := make(chan id.Run, 2)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) { o.Grace = time.Millisecond })
	r, err := w.runs.Create(t.Context(), w.thread(), request("hang"))
	require.NoError(t, err)
	<-started
	w.stop()
	rows, err := sqlite.Open(t.Context(), sqlite.Options{Dir: w.dir})
	require.NoError(t, err)
	// As a server that was killed leaves it.
	require.NoError(t, rows.Runs().Write(t.Context(), func(tx run.Tx) error {
		row, err := tx.Run(r.Thread, r.ID)
		if err != nil {
			return err
		}
		row.Status = run.Running
		return tx.UpdateRun(row)
	}))
	require.NoError(t, rows.Close())
	w.options.Registry = alone.Registry
	w.start()
	<-started
	alone.becomes(1, "understudy_takeovers_total")
	require.Equal(t, []string{
		`"its server stopped, loaded the graphs anew, or cannot load this one" {"reason":"handed_back","attempt":1}`,
		`"the server that executed it died, or lost the database for longer than a lease" {"reason":"server_died","attempt":1}`,
	}, w.retries(r.Thread, r.ID))
}

func TestMetricsOfWebhooks(t *testing.T) {
	t.Parallel()
	m := watched{t, prometheus.NewRegistry()}
	answers := make(chan int, 2)
	answers <- http.StatusInternalServerError
	answers <- http.StatusOK
	receiver := httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, req *http.Request) {
		_ = json.NewDecoder(req.Body).Decode(new(any))
		res.WriteHeader(<-answers)
	}))
	t.Cleanup(receiver.Close)
	w := newWorld(t, map[string]script{"echo": echo}, func(o *service.Options) { o.Registry = m.Registry })
	req := request("echo")
	req.Webhook = receiver.URL
	_, err := w.runs.Create(t.Context(), w.thread(), req)
	require.NoError(t, err)
	m.becomes(1, "understudy_webhooks_total", "result", "failed")
	m.becomes(1, "understudy_webhooks_total", "result", "sent")
}
