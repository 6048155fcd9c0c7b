package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/service"
)

// two are two services on the same rows.
type two struct {
	a, b   *world
	thread func() id.Thread
	write  func(context.Context, func(run.Tx) error) error
}

// onTwo runs a test with two services on each storage: on Postgres two instances; on SQLite, which has one server, two that share its database.
func onTwo(t *testing.T, graphs map[string]script, change func(*service.Options), test func(*testing.T, two)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		a, b := c.start(graphs, change), c.start(graphs, change)
		test(t, two{a.world, b.world, a.newThread, a.store.Runs().Write})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, graphs, change)
		o := w.options
		o.Store, o.Bridge, o.Graphs, o.Snapshots = w.runs.Store, w.bridge, w.graphs, w.runs.Snapshots
		beside := *w
		beside.runs = service.New(o)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- beside.runs.Run(ctx) }()
		t.Cleanup(func() { // before the database is closed
			cancel()
			require.NoError(t, <-ended)
		})
		test(t, two{w, &beside, w.thread, w.rows.Runs().Write})
	})
}

// Runs of a thread go on one after the other, in the order in which they were created, whoever created them and whoever executes them.
func TestOrderOfRunsOnTwoServices(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	began, busy := map[id.Thread][]string{}, map[id.Thread]bool{}
	graphs := map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		mu.Lock()
		defer mu.Unlock()
		if busy[inv.Thread] {
			return fmt.Errorf("two runs of thread %s at once", inv.Thread)
		}
		busy[inv.Thread] = true
		began[inv.Thread] = append(began[inv.Thread], string(inv.Input))
		mu.Unlock()
		emit("values", `{}`)
		mu.Lock()
		busy[inv.Thread] = false
		return nil
	}}}
	onTwo(t, graphs, func(o *service.Options) { o.Jobs = 2 }, func(t *testing.T, w two) {
		const threads, each = 5, 8
		var wg sync.WaitGroup
		var all []id.Thread
		for n := range threads {
			th := w.thread()
			all = append(all, th)
			wg.Go(func() {
				var last *run.Run
				for i := range each {
					req := request("g")
					req.Input = json.RawMessage(fmt.Sprint(i))
					r, err := []*world{w.a, w.b}[(n+i)%2].runs.Create(t.Context(), th, req)
					if err != nil {
						t.Error(err)
						return
					}
					last = r
				}
				f, err := w.a.runs.Join(t.Context(), th, last.ID)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close(false)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if _, err := f.Result(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, th := range all {
			require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7"}, began[th])
			runs, err := w.b.runs.List(t.Context(), th, run.Query{Status: run.Success})
			require.NoError(t, err)
			require.Len(t, runs, each)
		}
	})
}

func TestCronsFireOnceOnTwoServices(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	fired := map[id.Cron]int{}
	graphs := map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, _ func(string, string)) error {
		var config struct {
			Configurable struct {
				Cron id.Cron `json:"cron_id"`
			} `json:"configurable"`
		}
		mu.Lock()
		defer mu.Unlock()
		err := json.Unmarshal(inv.Config.Config, &config)
		fired[config.Configurable.Cron]++
		return err
	}}}
	onTwo(t, graphs, nil, func(t *testing.T, w two) {
		const crons = 10
		past := time.Now().Add(-time.Minute)
		want := map[id.Cron]int{}
		require.NoError(t, w.write(t.Context(), func(tx run.Tx) error {
			clear(want)
			for range crons {
				c := &run.Cron{
					ID: id.NewCron(), Assistant: id.DefaultAssistant("g"), Schedule: "0 0 1 1 *", Next: &past, Metadata: json.RawMessage(`{}`),
					OnRunCompleted: "keep", Enabled: true, CreatedAt: past, UpdatedAt: past,
				}
				c.Payload = json.RawMessage(fmt.Sprintf(`{"assistant_id":%q,"input":{},"config":{"configurable":{"cron_id":%q}}}`, c.Assistant, c.ID))
				want[c.ID] = 1
				if err := tx.InsertCron(c); err != nil {
					return err
				}
			}
			return nil
		}))
		// One that is made tells both that something may be due.
		for _, s := range []*world{w.a, w.b} {
			_, err := s.runs.Crons().Create(t.Context(), run.NewCron{AssistantID: "g", Schedule: "0 0 1 1 *", Enabled: true})
			require.NoError(t, err)
		}
		got := func() map[id.Cron]int {
			mu.Lock()
			defer mu.Unlock()
			out := map[id.Cron]int{}
			for c := range want {
				if fired[c] > 0 {
					out[c] = fired[c]
				}
			}
			return out
		}
		require.Eventually(t, func() bool { return len(got()) == crons }, 2*time.Minute, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			q, err := w.a.runs.Queue(t.Context())
			return err == nil && q.Pending+q.Running == 0
		}, 2*time.Minute, 10*time.Millisecond)
		require.Equal(t, want, got())
	})
}

// A run whose worker dies again and again ends in error, and keeps it. A run without input goes on from what its thread has.
func TestARunThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	died := map[id.Run]int{}
	graphs := map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		if inv.Input == nil {
			emit("values", `{"again":true}`)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		died[inv.Run]++
		return graph.ErrWorkerDied
	}}}
	onTwo(t, graphs, nil, func(t *testing.T, w two) {
		th := w.thread()
		r, err := w.a.runs.Create(t.Context(), th, request("g"))
		require.NoError(t, err)
		require.Contains(t, string(w.b.wait(th, r.ID).Error), "WorkerDied")
		row, err := w.b.runs.Get(t.Context(), th, r.ID)
		require.NoError(t, err)
		require.Equal(t, run.Error, row.Status)
		require.JSONEq(t, `{"error":"WorkerDied","message":"The process running the graph died 3 times without a checkpoint in between."}`, string(row.Error))
		mu.Lock()
		require.Equal(t, 3, died[r.ID])
		mu.Unlock()
		again := request("g")
		again.Input = nil
		r, err = w.b.runs.Create(t.Context(), th, again)
		require.NoError(t, err)
		require.Nil(t, w.a.wait(th, r.ID).Error)
		require.Equal(t, run.Success, w.a.status(th, r.ID))
	})
}

// Runs begin in the order in which they were acknowledged, also when they are created on servers whose clocks differ. A delayed run does not delay others.
func TestOrderOfRunsOfServersWhoseClocksDiffer(t *testing.T) {
	t.Parallel()
	var behind atomic.Int64
	started := make(chan id.Run, 4)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) {
		o.Now = func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
	})
	th := w.thread()
	create := func(after time.Duration) *run.Run {
		req := request("hang")
		req.Strategy, req.After = run.Enqueue, after
		r, err := w.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		return r
	}
	first := create(0)
	require.Equal(t, first.ID, <-started)
	create(time.Hour)
	order := []id.Run{first.ID}
	for _, clock := range []time.Duration{0, 3 * time.Millisecond, time.Minute, 0, time.Second} {
		behind.Store(int64(clock))
		r := create(0)
		require.WithinDuration(t, time.Now(), r.CreatedAt, 5*time.Minute, "the delayed run does not push it")
		order = append(order, r.ID)
	}
	behind.Store(0)
	for i, r := range order[1:] {
		require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{order[i]}, run.CancelInterrupt, true))
		require.Equal(t, r, <-started)
	}
}

// A run that has begun comes before those that were created after it, also when their server's clock is behind and another has to go on with it.
func TestOrderOfRunsThatAreTakenOver(t *testing.T) {
	t.Parallel()
	var behind atomic.Int64
	started := make(chan id.Run, 4)
	w := newWorld(t, map[string]script{"hang": hang(started)}, func(o *service.Options) {
		o.Grace = time.Millisecond
		o.Now = func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
	})
	th := w.thread()
	first, err := w.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	require.Equal(t, first.ID, <-started)
	behind.Store(int64(time.Minute))
	req := request("hang")
	req.Strategy = run.Enqueue
	second, err := w.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	require.True(t, second.CreatedAt.After(first.CreatedAt), "%s, %s", first.CreatedAt, second.CreatedAt)
	w.stop()
	behind.Store(0)
	w.start()
	require.Equal(t, first.ID, <-started)
	require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{first.ID}, run.CancelInterrupt, true))
	require.Equal(t, second.ID, <-started)
}
