package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/webhook"
	"understudy/storage/postgres"
	"understudy/storage/postgres/migratedtest"
	"understudy/thread"
)

// withCluster stops the Postgres of the tests before goroutines are counted.
type withCluster struct{ m *testing.M }

func (w withCluster) Run() int { return postgrestest.Main(w.m) }

// cluster is one Postgres database on which instances work. They share a bridge in memory, as they would share Redis.
type cluster struct {
	t      *testing.T
	url    string
	bridge *bridge.Memory
	all    []*instance
	carry  func(bridge.Bridge) bridge.Bridge // what an instance has in place of bridge; nil: bridge
	wrap   func(run.Shared) run.Shared       // what services see of the storage; nil: the storage
}

// instance is a service with a storage of its own.
type instance struct {
	*world
	store *postgres.Store
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, url: migratedtest.Database(t), bridge: bridge.NewMemory(bridge.Options{})}
	t.Cleanup(func() { require.NoError(t, c.bridge.Close()) })
	return c
}

// open makes a storage of its own.
func (c *cluster) open() *postgres.Store {
	c.t.Helper()
	s, err := postgres.Open(context.Background(), postgres.Options{URL: c.url, Connections: 4})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, s.Close()) })
	return s
}

// start lets one more instance work.
func (c *cluster) start(graphs map[string]script, change func(*service.Options)) *instance {
	t := c.t
	t.Helper()
	s := c.open()
	w := &world{t: t, graphs: graph.NewRegistry()}
	for name, g := range graphs {
		require.NoError(t, w.graphs.Add(name, "", g))
	}
	o := service.Options{Jobs: 4, Grace: 5 * time.Second, Wire: wire{}, Webhooks: &webhook.Policy{AllowLoopback: true}}
	if change != nil {
		change(&o)
	}
	o.Store, o.Bridge, o.Graphs = s.Runs(), c.bridge, w.graphs
	if c.carry != nil {
		o.Bridge = c.carry(c.bridge)
	}
	if c.wrap != nil {
		o.Store = c.wrap(s.Runs().(run.Shared))
	}
	if o.Local {
		own := bridge.NewMemory(bridge.Options{})
		t.Cleanup(func() { require.NoError(t, own.Close()) })
		o.Bridge = own
	}
	o.Snapshots = checkpointer.NewSnapshots(s.Threads(), nil)
	w.runs = service.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, assistant.NewService(s.Assistants(), w.graphs, nil).EnsureDefaults(ctx, nil))
	require.NoError(t, w.runs.Recover(ctx, nil))
	ended := make(chan error, 1)
	go func() { ended <- w.runs.Run(ctx) }()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-ended)
		})
	}
	t.Cleanup(w.stop)
	in := &instance{world: w, store: s}
	c.all = append(c.all, in)
	return in
}

func (in *instance) newThread() id.Thread {
	in.t.Helper()
	return insertThread(in.t, in.store)
}

func insertThread(t testing.TB, s *postgres.Store) id.Thread {
	t.Helper()
	now := time.Now()
	row := &thread.Thread{ID: id.NewThread(), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle}
	require.NoError(t, s.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.InsertThread(row) }))
	return row.ID
}

// next gives what a channel gives before long.
func next[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("it did not happen within half a minute")
	}
	return v
}

// reaches polls a run until it has a status.
func (in *instance) reaches(t id.Thread, r id.Run, want run.Status) {
	in.t.Helper()
	require.Eventually(in.t, func() bool { return in.status(t, r) == want }, time.Minute, 10*time.Millisecond)
}

func TestWhatOneInstanceCannotRunAnotherDoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	onA, onB := make(chan id.Run, 4), make(chan id.Run, 4)
	a := c.start(map[string]script{"g": hang(onA)}, func(o *service.Options) { o.Jobs = 1 })
	b := c.start(map[string]script{"g": hang(onB)}, nil)
	first, err := a.runs.Create(t.Context(), a.newThread(), request("g"))
	require.NoError(t, err)
	require.Equal(t, first.ID, next(t, onA))
	th := a.newThread()
	second, err := a.runs.Create(t.Context(), th, request("g"))
	require.NoError(t, err)
	require.Equal(t, second.ID, next(t, onB), "it waited for a job, and another instance has one")
	require.Equal(t, run.Running, b.status(th, second.ID))

	// Whoever is asked cancels, whoever executes; and waits for the end if that is wanted.
	require.NoError(t, a.runs.Cancel(t.Context(), th, []id.Run{second.ID}, run.CancelInterrupt, true))
	require.Equal(t, run.Interrupted, a.status(th, second.ID))
	require.NoError(t, b.runs.Cancel(t.Context(), first.Thread, []id.Run{first.ID}, run.CancelRollback, true))
	_, err = b.runs.Get(t.Context(), first.Thread, first.ID)
	require.Error(t, err, "rolled back")
}

// While instances are replaced by newer ones, the older do not know every graph.
func TestRunsWaitForAnInstanceThatServesTheirGraph(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	older := c.start(map[string]script{"g": echo}, nil)
	edge := c.start(map[string]script{"g": echo, "h": echo}, func(o *service.Options) { o.Jobs = -1 })
	th := edge.newThread()
	newer, err := edge.runs.Create(t.Context(), th, request("h"))
	require.NoError(t, err)
	for range 3 { // created later, and of other threads: they do not wait behind it
		r, err := edge.runs.Create(t.Context(), edge.newThread(), request("g"))
		require.NoError(t, err)
		older.reaches(r.Thread, r.ID, run.Success)
	}
	require.Equal(t, run.Pending, edge.status(th, newer.ID))
	c.start(map[string]script{"h": echo}, nil)
	edge.reaches(th, newer.ID, run.Success)
}

func TestAnInstanceLearnsThatItsThreadIsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	started, stopped := make(chan id.Run, 1), make(chan error, 1)
	a := c.start(map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		started <- inv.Run
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return context.Cause(ctx)
	}}}, nil)
	b := c.start(map[string]script{"g": echo}, nil)
	th := a.newThread()
	_, err := a.runs.Create(t.Context(), th, request("g"))
	require.NoError(t, err)
	next(t, started)
	require.NoError(t, b.store.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(th) }))
	b.runs.ThreadDeleted(th)
	require.ErrorContains(t, next(t, stopped), "deleted")
}

// left puts a run into the database as an instance leaves it that is not there any more, or is.
func left(t *testing.T, s *postgres.Store, lease time.Time, cancel run.Action) *run.Run {
	t.Helper()
	th := insertThread(t, s)
	now := time.Now()
	r := &run.Run{
		ID: id.NewRun(), Thread: th, Assistant: id.DefaultAssistant("g"), Graph: "g", Metadata: json.RawMessage(`{}`), Status: run.Running, Strategy: run.Enqueue,
		CreatedAt: now, UpdatedAt: now, StartedAt: now, Attempt: 1, Owner: "another", LeaseUntil: lease, Cancel: cancel,
		Kwargs: run.Arguments{Arguments: graph.Arguments{Modes: []string{"values"}}, Config: json.RawMessage(`{}`)},
	}
	require.NoError(t, s.Runs().Write(t.Context(), func(tx run.Tx) error { return tx.InsertRun(r) }))
	return r
}

func TestLeasesThatEndedAreTakenOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.open()
	past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	dead, cancelled, alive := left(t, s, past, ""), left(t, s, past, run.CancelInterrupt), left(t, s, future, "")
	in := c.start(map[string]script{"g": echo}, nil)
	in.reaches(dead.Thread, dead.ID, run.Success)
	in.reaches(cancelled.Thread, cancelled.ID, run.Interrupted)
	got, err := in.runs.Get(t.Context(), dead.Thread, dead.ID)
	require.NoError(t, err)
	require.Equal(t, 2, got.Attempt)
	require.Zero(t, got.Failures, "a lost lease is no failure")

	// Also while instances are at work, at a heartbeat.
	later := left(t, s, past, "")
	in.reaches(later.Thread, later.ID, run.Success)
	got, err = in.runs.Get(t.Context(), alive.Thread, alive.ID)
	require.NoError(t, err)
	require.Equal(t, run.Running, got.Status)
	require.Equal(t, "another", got.Owner)

	// Whoever had it may come back: what it writes then is refused.
	err = s.Runs().Write(t.Context(), func(tx run.Tx) error {
		attempt, status, _, err := tx.Fence(dead.ID)
		if err == nil && (attempt != 2 || status != run.Success) {
			err = fmt.Errorf("attempt %d is %s", attempt, status)
		}
		return err
	})
	require.NoError(t, err)
}

// A run that no server can claim shows since when it waits again.
func TestTakeoverIsAnUpdate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dead := left(t, c.open(), time.Now().Add(-time.Second), "")
	in := c.start(map[string]script{"another": echo}, nil)
	in.reaches(dead.Thread, dead.ID, run.Pending)
	got, err := in.runs.Get(t.Context(), dead.Thread, dead.ID)
	require.NoError(t, err)
	require.True(t, got.UpdatedAt.After(dead.UpdatedAt), got.UpdatedAt)
}

// A run that began after the last renewal of a server's leases is taken over after the others: it was not alone when that server died.
func TestTakeoversRememberWhoDiedTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.open()
	began := make(chan id.Run, 4)
	all := []*run.Run{left(t, s, time.Now().Add(-time.Second), ""), left(t, s, time.Now().Add(1200*time.Millisecond), "")}
	in := c.start(map[string]script{"g": hang(began)}, func(o *service.Options) { o.Lease = 8 * time.Second })
	for _, r := range all {
		require.Equal(t, r.ID, next(t, began))
		row, err := in.runs.Get(t.Context(), r.Thread, r.ID)
		require.NoError(t, err)
		require.Equal(t, 2, row.Attempt)
		require.Equal(t, 1, row.Crashes, "two were executed there")
	}
}

// What a dead server left is taken over without waiting for Redis to have the ends of runs that were cancelled.
func TestTakeoversDoNotWaitForRedis(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.open()
	slow := make(chan struct{})
	c.carry = func(bridge.Bridge) bridge.Bridge { return &remote{Memory: c.bridge, flush: func() { <-slow }} }
	var cancelled []*run.Run
	for n := range 300 {
		r := left(t, s, time.Now().Add(time.Duration(n-400)*time.Second), run.CancelInterrupt)
		r.Kwargs.Resumable = true
		require.NoError(t, s.Runs().Write(t.Context(), func(tx run.Tx) error { return tx.UpdateRun(r) }))
		cancelled = append(cancelled, r)
	}
	last := left(t, s, time.Now().Add(-time.Second), "")
	in := c.start(map[string]script{"g": echo}, nil)
	in.reaches(last.Thread, last.ID, run.Success)
	for _, r := range cancelled {
		require.Equal(t, run.Interrupted, in.status(r.Thread, r.ID))
	}
	close(slow)
	in.stop()
	for _, r := range cancelled {
		records, err := s.Runs().Records(t.Context(), r.Thread, bridge.Offset{}, 0)
		require.NoError(t, err)
		require.Len(t, records, 1, "the end is stored")
		require.Equal(t, bridge.Terminal, records[0].Kind)
	}
}

func TestCronsAndWebhooksHappenOnceAcrossInstances(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var mu sync.Mutex
	calls := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Run string `json:"run_id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		calls[body.Run]++
		mu.Unlock()
	}))
	t.Cleanup(receiver.Close)
	s := c.open()
	const crons = 12
	due := time.Now().Add(-time.Minute)
	require.NoError(t, s.Runs().Write(t.Context(), func(tx run.Tx) error {
		for range crons {
			payload := fmt.Sprintf(`{"assistant_id":%q,"input":{},"webhook":%q}`, id.DefaultAssistant("g"), receiver.URL)
			if err := tx.InsertCron(&run.Cron{
				ID: id.NewCron(), Assistant: id.DefaultAssistant("g"), Schedule: "0 0 1 1 *", Payload: json.RawMessage(payload), Next: &due,
				Metadata: json.RawMessage(`{}`), OnRunCompleted: "keep", Enabled: true, CreatedAt: due, UpdatedAt: due,
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	for range 3 {
		c.start(map[string]script{"g": echo}, nil)
	}
	total := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, times := range calls {
			n += times
		}
		return n
	}
	require.Eventually(t, func() bool { return total() >= crons }, time.Minute, 10*time.Millisecond)
	for _, in := range c.all {
		in.stop()
	}
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, calls, crons, "each cron made one run")
	for r, times := range calls {
		require.Equal(t, 1, times, r)
	}
}

func TestManyRunsOnTwoInstances(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var mu sync.Mutex
	seen := map[id.Run]int{}
	count := script{stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		mu.Lock()
		seen[inv.Run]++
		mu.Unlock()
		emit("values", `{}`)
		return nil
	}}
	a, b := c.start(map[string]script{"g": count}, nil), c.start(map[string]script{"g": count}, nil)
	const threads, each = 8, 6
	type made struct {
		thread id.Thread
		run    id.Run
	}
	all := make(chan made, threads*each)
	var wg sync.WaitGroup
	for n := range threads {
		th := a.newThread()
		wg.Go(func() {
			for i := range each {
				in := []*instance{a, b}[(n+i)%2]
				r, err := in.runs.Create(t.Context(), th, request("g"))
				if err != nil {
					t.Error(err)
					return
				}
				all <- made{th, r.ID}
			}
		})
	}
	wg.Wait()
	close(all)
	for m := range all {
		a.reaches(m.thread, m.run, run.Success)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen, threads*each)
	for r, times := range seen {
		require.Equal(t, 1, times, r)
	}
}

// A run that is rolled back leaves its thread as it was before.
func TestARollbackShowsWhatWasBefore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	started := make(chan id.Run, 1)
	const before, undone = id.Checkpoint("1f000000-0000-6000-8000-000000000001"), id.Checkpoint("1f000000-0000-6000-8000-000000000002")
	save := func(ctx context.Context, inv graph.Invocation, at id.Checkpoint) error {
		return inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
			Key: checkpointer.Key{Thread: inv.Thread, ID: at}, Run: inv.Run, Tasks: json.RawMessage(`[]`),
			Data: json.RawMessage(`{"channel_values":{},"channel_versions":{}}`), Metadata: json.RawMessage(`{}`),
		}}})
	}
	in := c.start(map[string]script{
		"once": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			return save(ctx, inv, before)
		}},
		"hang": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			if err := save(ctx, inv, undone); err != nil {
				return err
			}
			started <- inv.Run
			<-ctx.Done()
			return context.Cause(ctx)
		}},
	}, nil)
	th := in.newThread()
	first, err := in.runs.Create(t.Context(), th, request("once"))
	require.NoError(t, err)
	in.reaches(th, first.ID, run.Success)
	second, err := in.runs.Create(t.Context(), th, request("hang"))
	require.NoError(t, err)
	next(t, started)
	require.NoError(t, in.runs.Cancel(t.Context(), th, []id.Run{second.ID}, run.CancelRollback, true))
	row, err := in.store.Threads().Thread(t.Context(), th)
	require.NoError(t, err)
	require.Equal(t, before, row.Head)
	require.Equal(t, thread.Idle, row.Status)
}

// Runs of a graph that one instance cannot use are left to those that can: those of the queue, new ones, and those that began before it was known. Without such
// an instance they are executed, and end with the cause.
func TestRunsAreLeftToAnInstanceThatCanUseTheirGraph(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var elsewhere atomic.Bool
	var runs atomic.Int64 // of the broken instance
	broken := c.start(map[string]script{"g": {stream: func(context.Context, graph.Invocation, func(string, string)) error {
		runs.Add(1)
		if elsewhere.Swap(true) {
			return errors.New("executed though another instance serves it")
		}
		return graph.ErrElsewhere // it was claimed before it was known
	}}, "h": echo}, func(o *service.Options) {
		o.Elsewhere = func(name string) bool { return name == "g" && elsewhere.Load() }
	})
	create := func() *run.Run {
		r, err := broken.runs.Create(t.Context(), broken.newThread(), request("g"))
		require.NoError(t, err)
		return r
	}
	all := []*run.Run{create()}
	broken.reaches(all[0].Thread, all[0].ID, run.Pending)
	require.Eventually(t, elsewhere.Load, 10*time.Second, time.Millisecond)
	for range 20 {
		all = append(all, create())
	}
	_, waits, err := broken.runs.BeginWait(t.Context(), "", request("g"))
	require.NoError(t, err)
	other, err := broken.runs.Create(t.Context(), broken.newThread(), request("h"))
	require.NoError(t, err)
	broken.reaches(other.Thread, other.ID, run.Success) // it does not wait behind them
	for _, r := range all {
		require.Equal(t, run.Pending, broken.status(r.Thread, r.ID))
	}
	healthy := c.start(map[string]script{"g": echo}, nil)
	for _, r := range all {
		broken.reaches(r.Thread, r.ID, run.Success)
	}
	require.Empty(t, broken.result(waits).Error)
	require.Equal(t, int64(1), runs.Load())

	healthy.stop()
	last := create()
	elsewhere.Store(false)
	broken.reaches(last.Thread, last.ID, run.Pending) // it begins at a heartbeat
	require.Eventually(t, func() bool { return runs.Load() == 2 }, 30*time.Second, time.Millisecond)
}
