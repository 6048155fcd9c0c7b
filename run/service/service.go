// Package service owns the life of a run: create, queue, claim, execute, record, cancel, join; and crons and webhooks.
// The table of runs is the queue, and the database the control plane.
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
	"understudy/run/signals"
	"understudy/run/slots"
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
	Lease         time.Duration // how long a claimed run is this instance's without a heartbeat, of which there are four in that time; default 20 s
	Timeout       time.Duration // of one attempt; default 1 h
	Grace         time.Duration // for running runs at shutdown; default 10 s
	ResumableTTL  time.Duration // how long records of resumable runs are kept after their end; default 1 h
	ThreadTTL     *thread.TTL   // of threads without one of their own; nil: they are kept
	ServerVersion string        // langgraph_api_version in metadata of runs
	URL           string        // langgraph_api_url there; "" unknown
	Logger        *slog.Logger
	Registry      prometheus.Registerer // registers metrics of runs; nil: they are not exported
	Tracer        trace.Tracer          // makes spans of runs; nil: there are none
	Now           func() time.Time

	// Local: other instances work on the Store, but the Bridge carries only what this one executes. Servers then notify each other of ends of runs by signals, and what
	// a run left is read from the Store.
	Local bool
	// Limits are how many runs of a graph this instance executes at once; 0: none. Graphs that are not in it share Jobs alone.
	Limits map[string]int
}

const (
	maxFailures = 3
	// streamBlock is how far ahead of the clock a thread's offsets may go before the next heartbeat reserves more.
	streamBlock = 60 * time.Second
)

// Service creates, cancels and deletes runs. Its parts do the rest.
type Service struct {
	Options
	log *slog.Logger

	clock      *clock.Clock    // behind Now: the database's when other servers work on the Store
	slots      *slots.Slots    // places to execute runs in
	executions *executions     // the runs that this server executes
	signals    *signals.Sender // to other servers; nil: there are none
	watches    *watches        // of runs that other servers execute; nil: the bridge carries their records
	publisher  *publisher      // of records
	followers  *followers      // of records
	settler    *settler        // of threads, when runs end
	executor   *executor       // of claimed runs
	queue      *queue          // of runs that are due
	crons      *cron.Crons     // schedules
	webhooks   *webhook.Sender
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
	if o.Webhooks == nil {
		o.Webhooks = &webhook.Policy{}
	}
	s := &Service{Options: o, log: o.Logger, executions: newExecutions(), quit: make(chan struct{})}
	var databaseTime func(context.Context) (time.Time, error)
	shared, _ := o.Store.(run.Shared)
	if shared != nil {
		databaseTime = shared.Clock
		s.signals = signals.New(shared, o.Instance, o.Local, o.Lease/4, o.Logger)
	}
	if shared != nil && o.Local {
		s.watches = newWatches(shared, &o, s.executions)
	}
	s.clock = clock.New(o.Now, databaseTime, o.Lease/4, s.log)
	s.Now = s.clock.Now
	wake := make(chan struct{}, 1)
	s.slots = slots.New(o.Jobs, o.Limits, func() { loop.Poke(wake) })
	s.webhooks = webhook.NewSender(outbox{s.Store, shared}, s.Webhooks, s.log, s.Now, o.Registry)
	forms := newForms(o.Store, o.Overlay, s.log)
	s.publisher = newPublisher(&o, shared != nil, s.signals, s.quit)
	s.settler = &settler{store: o.Store, snapshots: o.Snapshots, overlay: o.Overlay, now: s.Now}
	s.followers = &followers{
		store: o.Store, bridge: o.Bridge, shared: shared != nil, snapshots: o.Snapshots, overlay: o.Overlay, publisher: s.publisher,
		attempts: s.executions, watches: s.watches, forms: forms, lease: o.Lease, started: s.Now(), cancel: s.Cancel, log: s.log,
	}
	s.executor = &executor{
		store: o.Store, shared: shared != nil, graphs: o.Graphs, snapshots: o.Snapshots, items: o.Items, backfill: o.Backfill, overlay: o.Overlay,
		wire: o.Wire, policy: s.Webhooks, now: s.Now, instance: o.Instance, lease: o.Lease, timeout: o.Timeout, version: o.ServerVersion, url: o.URL,
		log: s.log, tracer: o.Tracer, metrics: newMetrics(o.Registry), quit: s.quit,
		slots: s.slots, executions: s.executions, publisher: s.publisher, settler: s.settler, signals: s.signals, followers: s.followers, webhooks: s.webhooks,
	}
	s.queue = &queue{
		store: o.Store, shared: shared, bridge: o.Bridge, graphs: o.Graphs, clock: s.clock, now: s.Now, instance: o.Instance, lease: o.Lease,
		resumableTTL: o.ResumableTTL, log: s.log, slots: s.slots, executions: s.executions, executor: s.executor, settler: s.settler,
		signals: s.signals, watches: s.watches, wake: wake, recheck: make(chan struct{}, 1), foreign: map[string]bool{},
	}
	s.executor.queued = s.queue.queued
	s.crons = cron.New(cron.Options{Store: o.Store, Runs: s, Clock: s.clock, Wire: o.Wire, Webhooks: s.Webhooks, Log: s.log})
	s.queue.onHeartbeat = func() {
		s.crons.Poke()
		s.webhooks.Poke()
	}
	s.queue.watch(o.Registry)
	return s
}

// Recover takes over what a server that died left behind: its running runs become pending again, cancels that it did not finish are finished, and no thread of
// busy stays busy without a run. Call it once before Run. On a Shared store only runs whose lease has ended are taken over; else no other server may work on the
// same data.
func (s *Service) Recover(ctx context.Context, busy []id.Thread) error {
	if err := s.clock.Compare(ctx); err != nil {
		return fmt.Errorf("the time of the database: %w", err)
	}
	s.followers.started = s.Now()
	// Ends of resumable runs are kept, however many there are.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { s.publisher.keepRecords(work) })
	defer keeping.Wait()
	defer stop()
	return s.queue.recover(ctx, busy)
}

// Run executes runs, fires crons and sends webhooks until ctx ends. Then it claims nothing more, gives running runs the grace period,
// hands the rest back to the queue, and returns when everything has stopped. A run that is being created meanwhile is waited for, as long as its
// request's context lets it.
func (s *Service) Run(ctx context.Context) error {
	// What executions need after the end of ctx (finishing, handing back) has its own context.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var last sync.WaitGroup // what ends after all executions
	last.Go(func() { s.publisher.run(work) })
	last.Go(func() { s.signals.Run(work) })
	g, gctx := errgroup.WithContext(ctx)
	if s.shared() {
		s.log.InfoContext(ctx, "sharing the queue with other servers", "instance", s.Instance, "lease", s.Lease.String())
		g.Go(func() error { return s.queue.listen(gctx) })
		g.Go(func() error { return s.loop("signals").Run(gctx, s.queue.recheck, s.queue.renewNow) })
		g.Go(func() error { return s.loop("takeover").Run(gctx, nil, s.queue.takeOver) })
	}
	if s.watches != nil {
		g.Go(func() error { return s.loop("ends").Run(gctx, s.watches.poked, s.watches.tellEnds) })
	}
	g.Go(func() error { return s.loop("queue").Run(gctx, s.queue.wake, s.queue.claimDue) })
	g.Go(func() error { return s.crons.Run(gctx) })
	g.Go(func() error { return s.webhooks.Run(gctx) })
	g.Go(func() error { return s.loop("leases").Every(gctx, s.Lease/4, s.queue.renew) })
	g.Go(func() error { return s.loop("sweep").Every(gctx, min(time.Minute, s.ResumableTTL), s.queue.sweep) })
	err := g.Wait()

	s.slots.Close()
	s.executions.close()
	ended := make(chan struct{})
	go func() {
		<-s.slots.Idle() // a run that is being created has a slot before it has an execution
		s.executions.running.Wait()
		close(ended)
	}()
	grace := time.NewTimer(s.Grace)
	defer grace.Stop()
	beats := time.NewTicker(s.Lease / 4)
	defer beats.Stop()
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-beats.C:
			if err := s.queue.renew(work); err != nil {
				s.log.ErrorContext(work, "background task failed; retrying", "part", "leases", "error", err)
			}
		case <-grace.C:
			close(s.quit)
			s.executions.cancelAll("", errShutdown)
		}
	}
	s.publisher.close()
	s.followers.close()
	stop()
	last.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// shared reports whether other servers work on the Store.
func (s *Service) shared() bool { return s.signals != nil }

// loop names a background task.
func (s *Service) loop(name string) loop.Loop { return loop.Loop{Name: name, Log: s.log, Now: s.Now} }

// Create makes a run that no client follows.
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

// Start makes a run and follows it from its first record.
func (s *Service) Start(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	r, f, err := s.Begin(ctx, t, req)
	if err != nil {
		return nil, nil, err
	}
	if err := f.Settle(ctx); err != nil {
		f.Close(false)
		return nil, nil, err
	}
	return r, f, nil
}

// Begin is Start, but of a stateless run nothing may have been written yet: before a client learns of it, other than by its result, Follower.Settle
// must have succeeded.
func (s *Service) Begin(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	if s.mayDefer(t, &req) {
		if r, f, ok, err := s.startDeferred(ctx, &req); ok || err != nil {
			return r, f, err
		}
	}
	runs, sub, err := s.create(ctx, t, []run.Request{req}, true)
	if err != nil {
		return nil, nil, err
	}
	return runs[0], s.followers.followNew(ctx, runs[0], sub, req.OnDisconnect == "cancel"), nil
}

// BeginWait is Begin for somebody who wants only the result: while live streams are interrupted the run is made all the same, and looked up until it
// is over. Of a stateless run that leaves nothing there would be nothing to look up.
func (s *Service) BeginWait(ctx context.Context, t id.Thread, req run.Request) (*run.Run, run.Follower, error) {
	r, f, err := s.Begin(ctx, t, req)
	if !errors.Is(err, bridge.ErrInterrupted) || t == "" && req.OnCompletion != "keep" {
		return r, f, err
	}
	if r, err = s.Create(ctx, t, req); err != nil {
		return nil, nil, err
	}
	return r, s.followers.lookUp(r, req.OnDisconnect == "cancel"), nil
}

// Get returns a run.
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
		if err == nil || !fault.Is(err, fault.NotFound) {
			return err
		}
		// It ended meanwhile, or somebody has cancelled it before: then it goes when it has stopped, not under its execution.
		if err := s.followers.awaitEnd(ctx, t, r); err != nil {
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
		if err := rollback(tx, row, s.Now()); err != nil {
			return err
		}
		_, err = s.settler.settleIn(tx, t, nil, nil, false, s.Now())
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
	return s.settler.settle(ctx, t, nil)
}

// ThreadDeleted stops executions and followers of a thread that was deleted. It waits for neither, and for a slow Redis some seconds at most.
func (s *Service) ThreadDeleted(t id.Thread) {
	s.executions.cancelAll(t, errGone)
	s.signals.Send(run.Signal{Thread: t})
	// Who follows a pending run of it must not wait for ever: a terminal record without a run ends all followers.
	ctx := context.Background() // the deletion is committed, whatever becomes of its request
	if err := s.Bridge.Publish(ctx, t, []*bridge.Record{{Kind: bridge.Terminal}}); err != nil {
		s.log.Warn("publishing the end of a deleted thread failed", "thread_id", t, "error", err)
	}
	if err := s.Bridge.Forget(ctx, t, ""); err != nil {
		s.log.Warn("records of a deleted thread stay in the stream", "thread_id", t, "error", err)
	}
}
