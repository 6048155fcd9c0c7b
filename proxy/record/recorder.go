package record

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/cache"
	"understudy/internal/fault"
	"understudy/proxy"
)

// Ask sends a request of the recorder's own with the headers of a caller. path begins with "/threads/". err: there is no complete
// answer.
type Ask func(ctx context.Context, header http.Header, method, path string, body []byte) (status int, answerHeader http.Header, answer []byte, err error)

// Options configure a Recorder. Store and Ask are required.
type Options struct {
	Store   Store
	Ask     Ask
	Overlay overlay.Config
	Log     *slog.Logger // nil discards
	// Wait is how long an answer may be delayed until its thread is recorded, and the time limit of a request to the upstream; 0 means 30
	// s. Recording continues afterwards.
	Wait time.Duration
}

const (
	waitTime = 30 * time.Second
	// flightTime is the time limit for work on a thread with one caller's credentials.
	flightTime = 10 * time.Minute
	// queueLength is the maximum number of threads queued for background recording. Others are recorded by the next read.
	queueLength = 256
	// finishTime is how long a shutdown waits for background recording: some streams contain data that no checkpoint has.
	finishTime = 5 * time.Second
	// backgroundWorkers record threads whose runs have ended.
	backgroundWorkers = 2
)

// Recorder records threads of an upstream server, and shows them. It is safe for concurrent use.
type Recorder struct {
	store   Store
	ask     Ask
	overlay *overlay.Overlay
	byGraph bool // settings differ by graph
	log     *slog.Logger
	wait    time.Duration
	queue   chan job
	said    *said

	mu      sync.Mutex
	flights map[id.Thread]*flight
	closed  bool
	flying  sync.WaitGroup
	heads   *cache.Cache[id.Thread, Link]   // last shown recorded heads; Head of their rows
	looked  *cache.Cache[id.Thread, string] // `updated_at` of threads whose values were read
	exits   *cache.Cache[exitKey, *steps]   // streamed messages of runs that save only at their end
}

// job is a thread whose newest checkpoints must be recorded.
type job struct {
	call   *proxy.Call
	thread id.Thread
}

var _ proxy.Recorder = (*Recorder)(nil)

// New makes a Recorder.
func New(o Options) *Recorder {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Wait == 0 {
		o.Wait = waitTime
	}
	return &Recorder{
		store: o.Store, ask: o.Ask, overlay: overlay.New(o.Store, o.Overlay), byGraph: len(o.Overlay.Graphs) > 0, log: o.Log, wait: o.Wait,
		queue: make(chan job, queueLength), said: newSaid(), flights: map[id.Thread]*flight{},
		heads: cache.New[id.Thread, Link](1 << 15), looked: cache.New[id.Thread, string](1 << 15), exits: cache.New[exitKey, *steps](32),
	}
}

// Run records in the background after ended streams, until ctx ends. Then it records what is queued, for a few seconds, ends all other work,
// and returns. The next read does the rest.
func (r *Recorder) Run(ctx context.Context) error {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for range backgroundWorkers {
		workers.Go(func() {
			for {
				select {
				case j := <-r.queue:
					r.work(finishing, j)
				case <-ctx.Done():
					select { // queued jobs first
					case j := <-r.queue:
						r.work(finishing, j)
					default:
						return
					}
				}
			}
		})
	}
	<-ctx.Done()
	timer := time.AfterFunc(finishTime, cancel)
	defer timer.Stop()
	workers.Wait()
	r.mu.Lock()
	r.closed = true
	for _, f := range r.flights {
		f.cancel(errClosed)
	}
	r.mu.Unlock()
	r.flying.Wait()
	return nil
}

func (r *Recorder) work(ctx context.Context, j job) {
	// A thread that is deleted, or hidden from its caller, has nothing to record.
	if err := r.head(ctx, j.call, j.thread); err != nil && !refused(err) && ctx.Err() == nil {
		r.log.WarnContext(ctx, "thread not recorded yet", "thread_id", j.thread, "error", err)
	}
}

var errClosed = errors.New("the proxy is shutting down")

// later queues a thread to record its newest checkpoints in the background.
func (r *Recorder) later(c *proxy.Call, t id.Thread) {
	select {
	case r.queue <- job{c, t}:
	default:
	}
}

// head reads the newest checkpoint of a thread from the upstream, and records it.
func (r *Recorder) head(ctx context.Context, c *proxy.Call, t id.Thread) error {
	v, err := r.state(ctx, c, t, "")
	if err != nil || !v.root() {
		return err
	}
	_, err = r.ensure(ctx, c, t, true, v)
	return err
}

// Gone deletes the recordings of a thread that was deleted upstream.
func (r *Recorder) Gone(ctx context.Context, t id.Thread) {
	if err := r.forget(ctx, t); err != nil {
		// Its `created_at` distinguishes it from the next thread with this id.
		r.log.WarnContext(ctx, "recording of a deleted thread not removed yet", "thread_id", t, "error", err)
	}
}

func (r *Recorder) forget(ctx context.Context, t id.Thread) error {
	err := r.store.Record(ctx, func(tx Tx) error {
		err := tx.DeleteThread(t)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
	r.heads.Take(t)
	r.said.forget(t)
	r.overlay.Forget(t)
	return err
}

// keyOf returns the channel that holds the messages of a graph.
func (r *Recorder) keyOf(graph string) string { return r.overlay.Key(graph) }
