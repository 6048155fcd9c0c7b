package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
	"understudy/thread/overlay"
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
	// Frame is an event for SSE, without id and closing blank line.
	Frame(event string, data []byte) []byte
	// Run is the run object of the API.
	Run(r *Run) json.RawMessage
	// Request decodes and checks the payload of a cron as the request for a run that it is.
	Request(payload json.RawMessage, stateless bool) (Request, error)
}

// Options are what a Service is made of. Zero durations and numbers take the defaults named here.
type Options struct {
	Store     Store
	Bridge    bridge.Bridge
	Graphs    Graphs
	Snapshots Snapshots
	Items     graph.Store     // long-term memory of graphs
	Backfill  thread.Backfill // nil: every thread was recorded from its beginning
	Wire      Wire
	Webhooks  *Webhooks // nil: the policy with nothing configured
	// Overlay shows transcripts in place of messages. nil: readers see what the graph itself has.
	Overlay *overlay.Overlay

	Instance      string        // name of this instance in leases; made up when empty
	Jobs          int           // runs at once; default 10
	Timeout       time.Duration // of one attempt; default 1 h
	Grace         time.Duration // for running runs at shutdown; default 10 s
	ResumableTTL  time.Duration // how long records of resumable runs are kept after their end; default 1 h
	ServerVersion string        // langgraph_api_version in metadata of runs
	URL           string        // langgraph_api_url there; "" unknown
	Logger        *slog.Logger
	Now           func() time.Time
}

const (
	leaseTime   = 20 * time.Second
	heartbeat   = 5 * time.Second
	maxFailures = 3
	// streamBlock is how far ahead of the clock a thread's offsets may go before the next heartbeat reserves more.
	streamBlock = 60 * time.Second
)

// Service is the way into runs, and what executes them.
type Service struct {
	Options
	log *slog.Logger

	wake    chan struct{} // capacity 1: something may be due
	crons   chan struct{} // capacity 1: the next cron changed
	outbox  chan struct{} // capacity 1: a delivery was added
	keep    chan kept
	stopped chan struct{} // closed when nothing is written any more
	quit    chan struct{} // closed when the grace period is over
	started time.Time
	waiting atomic.Bool // runs may be waiting in the queue

	forms forms // of records, as readers with the overlay see them

	mu      sync.Mutex
	free    int
	closing bool
	active  map[id.Run]*execution

	executions sync.WaitGroup
}

// execution is one claim of a run that goes on in this process. It is owned by its goroutine; others only cancel it and wait.
type execution struct {
	run    *Run // as claimed; not changed afterwards
	cancel context.CancelCauseFunc
	done   chan struct{} // closed after everything about the run was committed and published
}

// NewService makes a Service; Run makes it work.
func NewService(o Options) *Service {
	if o.Jobs == 0 {
		o.Jobs = 10
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
	if o.Webhooks == nil {
		o.Webhooks = &Webhooks{}
	}
	return &Service{
		Options: o, log: o.Logger, wake: make(chan struct{}, 1), crons: make(chan struct{}, 1), outbox: make(chan struct{}, 1),
		// Full means that the storage is slower than the graphs: their runs then wait for it.
		keep: make(chan kept, 1024), stopped: make(chan struct{}), quit: make(chan struct{}), started: o.Now(), free: o.Jobs, active: map[id.Run]*execution{},
	}
}

// Recover takes over what a server that died left behind: its running runs become pending again, cancels that it did not finish are
// finished, and no thread stays busy without a run. Call it once before Run, when no other instance works on the same data.
func (s *Service) Recover(ctx context.Context, busy []id.Thread) error {
	var cancelled []*Run
	err := s.Store.Write(ctx, func(tx Tx) error {
		cancelled = nil
		runs, err := tx.ActiveRuns("")
		if err != nil {
			return err
		}
		for _, r := range runs {
			if r.Status != Running {
				continue
			}
			if r.Cancel != "" {
				cancelled = append(cancelled, r)
				continue
			}
			r.Status, r.Owner, r.LeaseUntil = Pending, "", time.Time{}
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take over runs: %w", err)
	}
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
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.loop(gctx, "queue", s.wake, s.claimDue) })
	g.Go(func() error { return s.loop(gctx, "crons", s.crons, s.fireDue) })
	g.Go(func() error { return s.deliver(gctx) })
	g.Go(func() error { return s.every(gctx, heartbeat, "leases", s.renew) })
	g.Go(func() error { return s.every(gctx, min(time.Minute, s.ResumableTTL), "sweep", s.sweep) })
	err := g.Wait()

	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { s.executions.Wait(); close(ended) }()
	grace := time.NewTimer(s.Grace)
	defer grace.Stop()
	beats := time.NewTicker(heartbeat)
	defer beats.Stop()
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-beats.C:
			if err := s.renew(work); err != nil {
				s.log.ErrorContext(work, "cannot go on; trying again", "part", "leases", "error", err)
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
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // somebody poked already
	}
}

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
	runs, sub, err := s.create(ctx, t, []Request{req}, true)
	if err != nil {
		return nil, nil, err
	}
	return runs[0], s.follow(ctx, runs[0], sub, following{cancelOnLeave: req.OnDisconnect == "cancel"}), nil
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

// Counts gives the number of pending and of running runs.
func (s *Service) Counts(ctx context.Context) (pending, running int, err error) {
	return s.Store.CountRuns(ctx)
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
		} // else it ended meanwhile
	}
	if s.Backfill != nil {
		// What later checkpoints were condensed from goes with this run: they are compared with it first.
		if err := s.Backfill.Ensure(ctx, t, ""); err != nil {
			return err
		}
	}
	err = s.Store.Write(ctx, func(tx Tx) error {
		return rollback(tx, row, s.Now())
	})
	if err != nil {
		return fmt.Errorf("delete run %s: %w", r, err)
	}
	if err := s.Bridge.Forget(ctx, t, r); err != nil {
		s.log.WarnContext(ctx, "records of a deleted run stay in the stream", "run_id", r, "error", err)
	}
	return s.settle(ctx, t, nil)
}

// rollback undoes a run: its checkpoints and its row go, its events stay, marked.
func rollback(tx Tx, r *Run, now time.Time) error {
	if err := tx.DeleteRunCheckpoints(r.Thread, r.ID); err != nil {
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
	var head *checkpointer.HeadInfo
	for {
		err := s.Store.Write(ctx, func(tx Tx) error {
			_, err := s.settleIn(tx, t, head, failure, false, s.Now())
			return err
		})
		if !errors.Is(err, checkpointer.ErrUndescribed) || head != nil {
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
	// Who follows a pending run of it must not wait for ever: a terminal record without a run ends all followers.
	ctx := context.Background() // Publish does not block and has no request of its own
	if err := s.Bridge.Publish(ctx, t, []*bridge.Record{{Kind: bridge.Terminal}}); err != nil {
		s.log.Warn("followers of a deleted thread were not told", "thread_id", t, "error", err)
	}
	if err := s.Bridge.Forget(ctx, t, ""); err != nil {
		s.log.Warn("records of a deleted thread stay in the stream", "thread_id", t, "error", err)
	}
}
