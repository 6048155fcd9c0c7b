// Package service is the way into runs: it creates, cancels and deletes them, and puts together the packages that do the rest. In the order of their imports:
// run/queue claims, run/execute executes, run/settle writes what an end means for the thread, run/stream carries the records; run/cron makes runs by schedule.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"understudy/access"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/clock"
	"understudy/run/cron"
	"understudy/run/execute"
	"understudy/run/queue"
	"understudy/run/settle"
	"understudy/run/signals"
	"understudy/run/slots"
	"understudy/run/spans"
	"understudy/run/stream"
	"understudy/run/webhook"
	"understudy/thread"
)

// Options are what a Service is made of. Zero durations and numbers take the defaults named here.
type Options struct {
	Store     run.Store
	Bridge    bridge.Bridge
	Streams   bridge.Options // limits of the streams of runs that are not on Bridge yet
	Graphs    run.Graphs
	Snapshots run.Snapshots
	Items     graph.Store     // long-term memory of graphs
	Backfill  thread.Backfill // nil: every thread was recorded from its beginning
	Wire      run.Wire
	Webhooks  *webhook.Policy // nil: the policy with nothing configured
	// Overlay shows transcripts in place of messages. nil: readers see what the graph itself has.
	Overlay *overlay.Overlay

	Instance      string        // name of this instance in leases; made up when empty
	Jobs          int           // runs at once; default 10, negative: none, other instances execute them
	Lease         time.Duration // how long a claimed run stays with this instance without a heartbeat; renewed four times in that time; default 20 s
	Timeout       time.Duration // of one attempt; default 1 h
	Grace         time.Duration // for running runs at shutdown; default 10 s
	ResumableTTL  time.Duration // how long records of resumable runs are kept after their end; default 1 h
	ThreadTTL     *thread.TTL   // of threads without one of their own; nil: they are kept
	ServerVersion string        // langgraph_api_version in metadata of runs
	URL           string        // langgraph_api_url there; "" unknown
	Logger        *slog.Logger
	Registry      prometheus.Registerer // registers metrics of runs; nil: they are not exported
	Tracer        trace.Tracer          // exports spans of runs; nil: they are not exported
	Spans         spans.Policy          // which spans of runs are recorded
	Now           func() time.Time

	// Inside makes the credentials by which graphs call this server; nil: they need none.
	Inside *access.Inside
	// Admit asks whether a cron may make a run; nil: each may. See cron.Options.
	Admit func(ctx context.Context, c *run.Cron, req *run.Request) error
	// Gone is called when the execution of a run ends that is deleted, with its thread or by itself; nil: nothing is called.
	Gone func(*run.Run)
	// Tasks returns how scheduled tasks are run; nil: not here. See cron.Options.
	Tasks func() cron.TaskRules

	// Elsewhere reports whether a graph cannot be used on this instance and another one serves it: its runs are left in the queue. nil: there is no such graph.
	Elsewhere func(graph string) bool
	// Others returns the graphs whose runs other instances execute; known is false while that is not known. nil: there are no others.
	Others func() (graphs []string, known bool)
	// Local: other instances work on the Store, but the Bridge carries only what this one executes. Servers then notify each other of ends of runs by signals, and what
	// a run left is read from the Store.
	Local bool
	// PerIdentity is how many runs an identity may have waiting and running, on all instances; 0: any number. Those of crons count, and are not refused.
	PerIdentity int
	// Limits are how many runs of a graph this instance executes at once; 0: none. Graphs that are not in it share Jobs alone.
	Limits map[string]int
}

// Service creates, cancels and deletes runs. Its parts do the rest.
type Service struct {
	Options
	log *slog.Logger

	clock      *clock.Clock        // behind Now: the database's when other servers work on the Store
	slots      *slots.Slots        // places to execute runs in
	executions *execute.Executions // the runs that this server executes
	signals    *signals.Sender     // to other servers; nil: there are none
	watches    *stream.Watches     // of runs that other servers execute; nil: the bridge carries their records
	publisher  *stream.Publisher   // of records
	followers  *stream.Followers   // of records
	settler    *settle.Settler     // of threads, when runs end
	executor   *execute.Executor   // of claimed runs
	queue      *queue.Queue        // of runs that are due
	crons      *cron.Crons         // schedules
	sender     *webhook.Sender
	quit       chan struct{} // closed when the grace period is over
}

// New makes a Service; Run makes it work.
func New(o Options) *Service {
	if o.Jobs == 0 {
		o.Jobs = 10
	}
	if o.Lease == 0 {
		o.Lease = 20 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.ResumableTTL == 0 {
		o.ResumableTTL = time.Hour
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Instance == "" {
		o.Instance = string(id.NewRun())
	}
	if o.Streams.Metrics == nil {
		o.Streams.Metrics = bridge.NewMetrics(nil)
	}
	if o.Elsewhere == nil {
		o.Elsewhere = func(string) bool { return false }
	}
	if o.Webhooks == nil {
		o.Webhooks = &webhook.Policy{}
	}
	s := &Service{Options: o, log: o.Logger, executions: execute.NewExecutions(), quit: make(chan struct{})}
	var databaseTime func(context.Context) (time.Time, error)
	shared, _ := o.Store.(run.Shared)
	if shared != nil {
		databaseTime = shared.Clock
		s.signals = signals.New(shared, o.Instance, o.Local, o.Lease/4, o.Logger)
	}
	s.clock = clock.New(o.Now, databaseTime, o.Lease/4, s.log)
	s.Now = s.clock.Now
	if shared != nil && o.Local {
		s.watches = stream.NewWatches(stream.WatchesOptions{Store: shared, Bridge: o.Bridge, Attempts: s.executions, Instance: o.Instance, Log: s.log, Now: s.Now})
	}
	wake := make(chan struct{}, 1)
	s.slots = slots.New(o.Jobs, o.Limits, func() { loop.Poke(wake) })
	s.sender = webhook.NewSender(outbox{s.Store, shared}, s.Webhooks, s.log, s.Now, o.Registry)
	s.publisher = stream.NewPublisher(stream.PublisherOptions{
		Store: o.Store, Bridge: o.Bridge, Streams: o.Streams, Shared: shared != nil, Signals: s.signals, Log: s.log, Quit: s.quit,
	})
	s.settler = settle.New(settle.Options{Store: o.Store, Snapshots: o.Snapshots, Overlay: o.Overlay, Policy: s.Webhooks, Now: s.Now})
	s.followers = stream.NewFollowers(stream.FollowersOptions{
		Store: o.Store, Bridge: o.Bridge, Shared: shared != nil, Snapshots: o.Snapshots, Overlay: o.Overlay, Publisher: s.publisher,
		Attempts: s.executions, Watches: s.watches, Metrics: o.Streams.Metrics, Lease: o.Lease, Started: s.Now(), Cancel: s.Cancel, Log: s.log,
	})
	s.executor = execute.New(execute.Options{
		Store: o.Store, Shared: shared != nil, Graphs: o.Graphs, Snapshots: o.Snapshots, Items: o.Items, Backfill: o.Backfill, Overlay: o.Overlay,
		Wire: o.Wire, Policy: s.Webhooks, Now: s.Now, Instance: o.Instance, Lease: o.Lease, Timeout: o.Timeout, Version: o.ServerVersion, URL: o.URL, Inside: o.Inside,
		Log: s.log, Tracer: o.Tracer, Spans: o.Spans, Registry: o.Registry, Quit: s.quit,
		Slots: s.slots, Executions: s.executions, Publisher: s.publisher, Followers: s.followers, Settler: s.settler, Signals: s.signals, Webhooks: s.sender,
		Queued: func() { s.queue.Queued() }, Gone: o.Gone,
	})
	s.queue = queue.New(queue.Options{
		Store: o.Store, Shared: shared, Bridge: o.Bridge, Graphs: o.Graphs, Clock: s.clock, Instance: o.Instance, Lease: o.Lease,
		ResumableTTL: o.ResumableTTL, KeepSpans: o.Spans.Keep, Log: s.log, Registry: o.Registry, Slots: s.slots, Executions: s.executions, Executor: s.executor, Settler: s.settler,
		Signals: s.signals, Watches: s.watches, Wake: wake, Elsewhere: o.Elsewhere, Others: o.Others,
		OnPoll: func() {
			s.crons.Poke()
			s.sender.Poke()
		},
	})
	s.crons = cron.New(cron.Options{Store: o.Store, Runs: s, Clock: s.clock, Wire: o.Wire, Webhooks: s.Webhooks, Admit: o.Admit, Tasks: o.Tasks, Log: s.log})
	return s
}

// Recover takes over what a server that died left behind: its running runs become pending again, cancels that it did not finish are finished, and no thread of
// busy stays busy without a run. Call it once before Run. On a Shared store only runs whose lease has ended are taken over; else no other server may work on the
// same data.
func (s *Service) Recover(ctx context.Context, busy []id.Thread) error {
	if err := s.clock.Compare(ctx); err != nil {
		return fmt.Errorf("the time of the database: %w", err)
	}
	s.followers.Started = s.Now()
	// Ends of resumable runs are kept, however many there are.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { s.publisher.KeepRecords(work) })
	defer keeping.Wait()
	defer stop()
	return s.queue.Recover(ctx, busy)
}

// Run executes runs, fires crons and sends webhooks until ctx ends. Then it claims nothing more, grants running runs the grace period,
// hands the rest back to the queue, and returns when everything has stopped. A run that is being created meanwhile is waited for, as long as its
// request's context lets it.
func (s *Service) Run(ctx context.Context) error {
	// What executions need after the end of ctx (finishing, handing back) has its own context.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var last sync.WaitGroup // what ends after all executions
	last.Go(func() { s.publisher.Run(work) })
	last.Go(func() { s.signals.Run(work) })
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.queue.Run(gctx) })
	g.Go(func() error { return s.watches.Run(gctx) })
	g.Go(func() error { return s.crons.Run(gctx) })
	g.Go(func() error { return s.sender.Run(gctx) })
	err := g.Wait()

	s.drain(work)
	s.publisher.Close()
	s.followers.Close()
	stop()
	last.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Create makes a run that no client follows. fault.NotFound if the thread or assistant is not there, fault.Unprocessable if the assistant names no graph,
// fault.Conflict if the thread is busy and the strategy is "reject".
func (s *Service) Create(ctx context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	r, _, err := s.create(ctx, t, []run.Request{req}, false)
	if err != nil {
		return nil, err
	}
	return r[0], nil
}

// CreateBatch makes stateless runs, all or none.
func (s *Service) CreateBatch(ctx context.Context, reqs []run.Request) ([]*run.Run, error) {
	runs, _, err := s.create(ctx, "", reqs, false)
	return runs, err
}

// Begin makes a run and follows it from its first record. Of a stateless run nothing may have been written yet: before a client learns of it, other
// than by its result, Follower.EnsureDurable must have succeeded.
func (s *Service) Begin(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	return s.begin(ctx, t, req, false)
}

// begin is Begin. wait: only the result is wanted.
func (s *Service) begin(ctx context.Context, t id.Thread, req run.Request, wait bool) (*run.Run, run.Follower, error) {
	if s.mayDefer(t, &req) {
		if r, f, ok, err := s.startDeferred(ctx, &req); ok || err != nil {
			return r, f, err
		}
	}
	runs, sub, err := s.create(ctx, t, []run.Request{req}, true)
	if err != nil {
		return nil, nil, err
	}
	if req.Key != nil && req.Key.Repeated {
		return s.join(ctx, runs[0], &req, wait)
	}
	return runs[0], s.followers.FollowNew(ctx, runs[0], sub, req.OnDisconnect == "cancel"), nil
}

// BeginWait is Begin for a client that wants only the result: while live streams are interrupted the run is made all the same, and looked up until it
// is over. Of a stateless run that leaves nothing there would be nothing to look up.
func (s *Service) BeginWait(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	r, f, err := s.begin(ctx, t, req, true)
	if !errors.Is(err, bridge.ErrInterrupted) || t == "" && req.OnCompletion != "keep" {
		return r, f, err
	}
	if r, err = s.Create(ctx, t, req); err != nil {
		return nil, nil, err
	}
	return r, s.followers.LookUp(r, req.OnDisconnect == "cancel"), nil
}

// Get returns a run; fault.NotFound if the thread has none of this id.
func (s *Service) Get(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	row, err := s.Store.Run(ctx, t, r)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "Not Found")
	}
	return row, err
}

// List returns runs of a thread, newest first.
func (s *Service) List(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error) {
	if _, err := s.Store.Thread(ctx, t); err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil, fault.Newf(fault.NotFound, "Thread with ID %s not found", t)
		}
		return nil, err
	}
	return s.Store.Runs(ctx, t, q)
}

// Delete removes a run and its checkpoints: the state of the thread steps back. A run that is going is stopped first.
func (s *Service) Delete(ctx context.Context, t id.Thread, r id.Run) error {
	row, err := s.Store.Run(ctx, t, r)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "Run not found")
	}
	if err != nil {
		return err
	}
	if !row.Status.Over() {
		err := s.Cancel(ctx, t, []id.Run{r}, run.CancelRollback, true)
		if err != nil && !fault.Is(err, fault.NotFound) || err == nil && !row.Kwargs.KeepUndone {
			return err
		}
		// The cancel has left its row, or it ended meanwhile, or it was cancelled before: then it goes when it has stopped, not under its execution.
		if err := s.followers.AwaitEnd(ctx, t, r); err != nil {
			return fmt.Errorf("wait for the end of run %s: %w", r, err)
		}
		if _, err = s.Store.Run(ctx, t, r); fault.Is(err, fault.NotFound) {
			return nil // with the cancel
		}
		if err != nil {
			return err
		}
	}
	if s.Backfill != nil {
		// What later checkpoints were condensed from goes with this run: they are compared with it first.
		if err := s.Backfill.Ensure(ctx, t, ""); err != nil {
			return err
		}
	}
	newest, err := s.Store.Runs(ctx, t, run.Query{Limit: 1, Bytes: 1})
	if err != nil {
		return err
	}
	last := len(newest) == 0 || newest[0].ID == r // else the thread shows how another run ended
	settled := false
	err = s.Store.Write(ctx, func(tx run.Tx) error {
		settled = false
		row, err := tx.Run(t, r) // another call may have deleted it since it was read
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.NotFound, "Run not found")
		}
		if err != nil {
			return err
		}
		if err := settle.Delete(tx, row, s.Now()); err != nil {
			return err
		}
		err = s.settler.SettleDeletedIn(tx, t, last, s.Now())
		settled = err == nil
		if errors.Is(err, checkpointer.ErrUndescribed) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if err := s.Bridge.Forget(ctx, t, r); err != nil {
		s.log.WarnContext(ctx, "records of a deleted run stay in the stream", "run_id", r, "error", err)
	}
	if settled {
		return nil
	}
	return s.settler.SettleDeleted(ctx, t, last)
}

// ThreadDeleted stops executions and followers of the runs of a thread that was deleted. It waits for neither, and for a slow Redis or database some
// seconds at most. A thread may have been created with its ID since, at any moment: what is stopped is decided run by run.
func (s *Service) ThreadDeleted(t id.Thread) {
	ctx := context.Background() // the deletion is committed, whatever becomes of its request
	s.signals.Send(run.Signal{Thread: t})
	executions := s.executions.Of(t)
	// Who follows a pending run must not wait for ever.
	deleted := stream.DeletedRuns()
	if err := s.Bridge.Publish(ctx, t, []*bridge.Record{deleted}); err != nil {
		s.log.Warn("publishing the deletion of a thread failed; its followers wait for their next look", "thread_id", t, "error", err)
	}
	s.cancelGone(ctx, executions)
	limited, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	if _, err := s.Store.Thread(limited, t); !fault.Is(err, fault.NotFound) {
		return // readers of the new thread leave out records of the old one; after an error they stay until they expire
	}
	// Of a thread that is created from now on all records have higher offsets.
	if err := s.Bridge.ForgetThread(ctx, t, deleted.Offset); err != nil {
		s.log.Warn("records of a deleted thread stay in the stream", "thread_id", t, "error", err)
	}
}

// lookAgain bounds how long a deletion waits for the answer whether its thread, or a run of it, is there again.
const lookAgain = 5 * time.Second

// cancelGone cancels executions whose runs are gone. One that is not in the database yet finds out by itself, and one that cannot be looked up when its
// lease is renewed.
func (s *Service) cancelGone(ctx context.Context, executions []*execute.Execution) {
	ctx, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	for _, ex := range executions {
		if ex.Unwritten() {
			continue
		}
		_, err := s.Store.Run(ctx, ex.Run.Thread, ex.Run.ID)
		switch {
		case fault.Is(err, fault.NotFound):
			ex.Cancel(execute.ErrGone)
		case err != nil:
			s.log.Warn("a run of a deleted thread continues until its lease is renewed: it cannot be looked up", "run_id", ex.Run.ID, "error", err)
		}
	}
}
