package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run/clock"
	"understudy/run/slots"
	"understudy/run/webhook"
	"understudy/thread"
	"understudy/thread/overlay"
	"understudy/thread/partial"
)

// Graphs are the graphs that runs execute.
type Graphs interface {
	Graph(id string) (graph.Graph, bool)
	Names() []string // sorted
}

// Snapshots tells what the head of a thread holds.
type Snapshots interface {
	Values(ctx context.Context, k checkpointer.Key) (json.RawMessage, error)
	Head(ctx context.Context, t id.Thread) (checkpointer.HeadInfo, error)
	// HeadOf is Head of a checkpoint at hand: checkpointer.ErrUndescribed when only Head, which asks the graph, can tell.
	HeadOf(t *checkpointer.Tuple) (checkpointer.HeadInfo, error)
}

// Wire encodes what leaves the house, once for all who read it.
type Wire interface {
	// Run is the run object of the API.
	Run(r *Run) json.RawMessage
	// Request decodes and checks the payload of a cron as the request for a run that it is.
	Request(payload json.RawMessage, stateless bool) (Request, error)
}

// Options are what a Service is made of. Zero durations and numbers take the defaults named here.
type Options struct {
	Store     Store
	Bridge    bridge.Bridge
	Streams   bridge.Options // limits of the streams of runs that are not on Bridge yet
	Graphs    Graphs
	Snapshots Snapshots
	Items     graph.Store     // long-term memory of graphs
	Backfill  thread.Backfill // nil: every thread was recorded from its beginning
	Wire      Wire
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
	Registry      prometheus.Registerer // takes metrics of runs; nil: nobody sees them
	Tracer        trace.Tracer          // makes spans of runs; nil: there are none
	Now           func() time.Time

	// Local: other instances work on the Store, but the Bridge carries only what this one executes. Ends of runs are then told by signals, and what
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

// Service is the way into runs, and what executes them.
type Service struct {
	Options
	log     *slog.Logger
	metrics *metrics

	wake     chan struct{} // capacity 1: something may be due
	crons    chan struct{} // capacity 1: the next cron changed
	keep     chan kept
	stopped  chan struct{} // closed when nothing is written any more
	quit     chan struct{} // closed when the grace period is over
	started  time.Time
	clock    *clock.Clock // behind Now; the database's when other instances work on the Store
	slots    *slots.Slots
	webhooks *webhook.Sender

	forms forms // of records, as readers with the overlay see them

	shared  Shared        // the Store, when other instances work on it too; nil else
	remote  bridge.Remote // the Bridge, when its streams go through Redis; nil else
	near    *nearby       // serves followers here while Redis is away; nil without remote
	look    chan struct{} // capacity 1: something may have happened to runs of this instance
	ends    chan struct{} // capacity 1: runs that are followed here may have ended
	watches *watches      // nil: the bridge carries everything
	signals chan Signal   // to be told
	offers  chan Signal   // capacity 1: the zero Signal is to be told
	blind   bool          // the last look for leases that have ended failed; owned by what takes over
	jumps   int           // of the clock that taking over knows of; owned by it too

	briefs sync.Map // id.Thread → *briefStream, of runs that are not written

	mu      sync.Mutex
	foreign map[string]bool // graphs of runs in the queue that only other instances serve
	closing bool
	active  map[id.Run]*execution

	executions sync.WaitGroup
}

// execution is one claim of a run that goes on in this process. It is owned by its goroutine; others only cancel it and wait.
type execution struct {
	run    *Run            // as claimed; not changed afterwards
	said   *partial.Tokens // what it streams of answers; nil: not kept
	cancel context.CancelCauseFunc
	done   chan struct{} // closed after everything about the run was committed and published
	// unwritten: the run is not in the database yet, so nobody else can know of it.
	unwritten atomic.Bool
	ending    atomic.Bool // the graph has stopped, and the end is being written
	reply     liveReply

	turn   *slots.Turn        // of a suspect, from when it is lined up
	yields context.CancelFunc // of a suspect that has its turn: ends it; nil before
	turns  sync.WaitGroup     // what holds the turn
}

// NewService makes a Service; Run makes it work.
func NewService(o Options) *Service {
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
	s := &Service{
		Options: o, log: o.Logger, wake: make(chan struct{}, 1), crons: make(chan struct{}, 1),
		// Full means that the storage is slower than the graphs: their runs then wait for it.
		keep: make(chan kept, 1024), stopped: make(chan struct{}), quit: make(chan struct{}), started: o.Now(), foreign: map[string]bool{}, active: map[id.Run]*execution{},
		look: make(chan struct{}, 1), ends: make(chan struct{}, 1), signals: make(chan Signal, signalQueue), offers: make(chan Signal, 1),
	}
	if s.remote, _ = o.Bridge.(bridge.Remote); s.remote != nil {
		s.near = newNearby(o.Streams)
	}
	var databaseTime func(context.Context) (time.Time, error)
	if s.shared, _ = o.Store.(Shared); s.shared != nil {
		databaseTime = s.shared.Clock
	}
	s.clock = clock.New(o.Now, databaseTime, o.Lease/4, s.log)
	s.Now = s.clock.Now
	s.slots = slots.New(o.Jobs, o.Limits, func() { loop.Poke(s.wake) })
	s.webhooks = webhook.NewSender(outbox{s.Store, s.shared}, s.Webhooks, s.log, s.Now, o.Registry)
	if s.shared != nil && o.Local {
		s.watches = &watches{runs: map[id.Run]*watch{}, threads: map[id.Thread]int{}, due: map[id.Run]id.Thread{}, gone: map[id.Thread]struct{}{}}
	}
	s.metrics = newMetrics(o.Registry, s)
	return s
}

// Recover takes over what a server that died left behind: its running runs become pending again, cancels that it did not finish are
// finished, and no thread stays busy without a run. Call it once before Run. On a Shared store only runs whose lease has ended are taken over; else
// no other instance may work on the same data.
func (s *Service) Recover(ctx context.Context, busy []id.Thread) error {
	if s.shared != nil {
		return s.recoverShared(ctx, busy)
	}
	var cancelled []*Run
	taken := 0
	err := s.Store.Write(ctx, func(tx Tx) error {
		cancelled, taken = nil, 0
		runs, err := tx.ActiveRuns("")
		if err != nil {
			return err
		}
		runs = slices.DeleteFunc(runs, func(r *Run) bool { return r.Status != Running })
		deaths := deathsOf(runs)
		for _, r := range runs {
			if r.Cancel != "" {
				cancelled = append(cancelled, r)
				continue
			}
			s.survived(ctx, r, deaths)
			r.Status, r.Owner, r.LeaseUntil = Pending, "", time.Time{}
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			taken++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
	s.metrics.takeovers.Add(float64(taken))
	for _, r := range cancelled {
		if err := s.finish(ctx, r, outcome{kind: interrupted}); err != nil {
			return fmt.Errorf("finish cancel of run %s: %w", r.ID, err)
		}
	}
	for _, t := range busy {
		if err := s.settle(ctx, t, nil); err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("settle thread %s: %w", t, err)
		}
	}
	return nil
}

// Run executes runs, fires crons and sends webhooks until ctx ends. Then it claims nothing more, gives running runs the grace period,
// hands the rest back to the queue, and returns when nothing goes on any more.
func (s *Service) Run(ctx context.Context) error {
	// What executions need after the end of ctx (finishing, handing back) has its own context.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	keeper := make(chan struct{})
	go func() {
		defer close(keeper)
		s.keepRecords(work)
	}()
	if s.shared != nil {
		s.log.InfoContext(ctx, "sharing the queue with other servers", "instance", s.Instance, "lease", s.Lease.String())
	}
	teller := make(chan struct{})
	go func() {
		defer close(teller)
		if s.shared != nil {
			s.tellAll(work)
		}
	}()
	g, gctx := errgroup.WithContext(ctx)
	if s.shared != nil {
		g.Go(func() error { return s.listen(gctx) })
		g.Go(func() error { return s.loop("signals").Run(gctx, s.look, s.renewNow) })
		g.Go(func() error { return s.loop("takeover").Run(gctx, nil, s.takeOver) })
	}
	if s.watches != nil {
		g.Go(func() error { return s.loop("ends").Run(gctx, s.ends, s.tellEnds) })
	}
	if s.near != nil {
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			_ = s.near.live.Run(work) // the cause of work
		}()
		defer func() {
			_ = s.near.live.Close() // which has no error
			<-swept
		}()
	}
	g.Go(func() error { return s.loop("queue").Run(gctx, s.wake, s.claimDue) })
	g.Go(func() error { return s.loop("crons").Run(gctx, s.crons, s.fireDue) })
	g.Go(func() error { return s.webhooks.Run(gctx) })
	g.Go(func() error { return s.loop("leases").Every(gctx, s.heartbeat(), s.renew) })
	g.Go(func() error { return s.loop("sweep").Every(gctx, min(time.Minute, s.ResumableTTL), s.sweep) })
	err := g.Wait()

	s.slots.Close()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { s.executions.Wait(); close(ended) }()
	grace := time.NewTimer(s.Grace)
	defer grace.Stop()
	beats := time.NewTicker(s.heartbeat())
	defer beats.Stop()
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-beats.C:
			if err := s.renew(work); err != nil {
				s.log.ErrorContext(work, "background task failed; retrying", "part", "leases", "error", err)
			}
		case <-grace.C:
			close(s.quit)
			s.mu.Lock()
			for _, ex := range s.active {
				ex.cancel(errShutdown)
			}
			s.mu.Unlock()
		}
	}
	close(s.stopped)
	stop()
	<-keeper
	<-teller
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// loop names a background task.
func (s *Service) loop(name string) loop.Loop { return loop.Loop{Name: name, Log: s.log, Now: s.Now} }

// heartbeat is the time between two renewals of leases.
func (s *Service) heartbeat() time.Duration { return s.Lease / 4 }

// Create makes a run that goes on by itself.
func (s *Service) Create(ctx context.Context, t id.Thread, req Request) (*Run, error) {
	r, _, err := s.create(ctx, t, []Request{req}, false)
	if err != nil {
		return nil, err
	}
	return r[0], nil
}

// CreateBatch makes stateless runs, all or none.
func (s *Service) CreateBatch(ctx context.Context, reqs []Request) ([]*Run, error) {
	runs, _, err := s.create(ctx, "", reqs, false)
	return runs, err
}

// Start makes a run and follows it from its first record.
func (s *Service) Start(ctx context.Context, t id.Thread, req Request) (*Run, *Follower, error) {
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

// Begin is Start, but of a stateless run nothing may have been written yet: before anybody is told of it, other than by its result, Follower.Settle
// must have succeeded.
func (s *Service) Begin(ctx context.Context, t id.Thread, req Request) (*Run, *Follower, error) {
	if s.mayBeBrief(t, &req) {
		if r, f, ok, err := s.startBrief(ctx, &req); ok || err != nil {
			return r, f, err
		}
	}
	runs, sub, err := s.create(ctx, t, []Request{req}, true)
	if err != nil {
		return nil, nil, err
	}
	return runs[0], s.follow(ctx, runs[0], sub, following{cancelOnLeave: req.OnDisconnect == "cancel", known: true}), nil
}

// BeginWait is Begin for somebody who wants only the result: while live streams are interrupted the run is made all the same, and looked up until it
// is over. Of a stateless run that leaves nothing there would be nothing to look up.
func (s *Service) BeginWait(ctx context.Context, t id.Thread, req Request) (*Run, *Follower, error) {
	r, f, err := s.Begin(ctx, t, req)
	if !errors.Is(err, bridge.ErrInterrupted) || t == "" && req.OnCompletion != "keep" {
		return r, f, err
	}
	if r, err = s.Create(ctx, t, req); err != nil {
		return nil, nil, err
	}
	return r, s.joinUnseen(r, req.OnDisconnect == "cancel"), nil
}

// Get gives a run.
func (s *Service) Get(ctx context.Context, t id.Thread, r id.Run) (*Run, error) {
	row, err := s.Store.Run(ctx, t, r)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "Not Found")
	}
	return row, err
}

// List gives runs of a thread, newest first.
func (s *Service) List(ctx context.Context, t id.Thread, q Query) ([]*Run, error) {
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
		err := s.Cancel(ctx, t, []id.Run{r}, CancelRollback, true)
		if err == nil || !fault.Is(err, fault.NotFound) {
			return err
		}
		// It ended meanwhile, or somebody has cancelled it before: then it goes when it has stopped, not under its execution.
		if err := s.awaitEnd(ctx, t, r); err != nil {
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
	err = s.Store.Write(ctx, func(tx Tx) error {
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
		_, err = s.settleIn(tx, t, nil, nil, false, s.Now())
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
	return s.settle(ctx, t, nil)
}

// rollback undoes a run: its checkpoints and its row go, its events stay, marked.
func rollback(tx Tx, r *Run, now time.Time) error {
	if err := dropPartial(tx, r); err != nil {
		return err
	}
	// Another run that is executed may have begun on these checkpoints. Its next one names their values without repeating them.
	active, err := tx.ActiveRuns(r.Thread)
	if err != nil {
		return err
	}
	inUse := slices.ContainsFunc(active, func(other *Run) bool { return other.ID != r.ID && other.Status == Running })
	if err := tx.DeleteRunCheckpoints(r.Thread, r.ID, inUse); err != nil {
		return err
	}
	if err := tx.RollBackEvents(r.Thread, r.ID); err != nil {
		return err
	}
	if err := recordRollback(tx, r, now); err != nil {
		return err
	}
	return tx.DeleteRun(r.Thread, r.ID)
}

// settle makes the row of a thread show its head. failure: the error of the run that ended; nil keeps none.
func (s *Service) settle(ctx context.Context, t id.Thread, failure json.RawMessage) error {
	return s.settleWith(ctx, t, func(*thread.Thread) json.RawMessage { return failure })
}

// settleWith is settle with an error that depends on what the thread shows.
func (s *Service) settleWith(ctx context.Context, t id.Thread, failure func(*thread.Thread) json.RawMessage) error {
	var head *checkpointer.HeadInfo
	for {
		err := s.Store.Write(ctx, func(tx Tx) error {
			row, err := tx.Thread(t)
			if err != nil {
				return err
			}
			_, err = s.settleIn(tx, t, head, failure(row), false, s.Now())
			return err
		})
		if !errors.Is(err, checkpointer.ErrUndescribed) {
			return err
		}
		asked, err := s.Snapshots.Head(ctx, t)
		if err != nil {
			return fmt.Errorf("head of thread %s: %w", t, err)
		}
		head = &asked
	}
}

// ThreadDeleted stops what goes on for a thread that is gone. It does not block.
func (s *Service) ThreadDeleted(t id.Thread) {
	s.mu.Lock()
	for _, ex := range s.active {
		if ex.run.Thread == t {
			ex.cancel(errGone)
		}
	}
	s.mu.Unlock()
	s.signal(Signal{Thread: t})
	// Who follows a pending run of it must not wait for ever: a terminal record without a run ends all followers.
	ctx := context.Background() // Publish does not block and has no request of its own
	if err := s.Bridge.Publish(ctx, t, []*bridge.Record{{Kind: bridge.Terminal}}); err != nil {
		s.log.Warn("followers of a deleted thread were not told", "thread_id", t, "error", err)
	}
	if err := s.Bridge.Forget(ctx, t, ""); err != nil {
		s.log.Warn("records of a deleted thread stay in the stream", "thread_id", t, "error", err)
	}
}
