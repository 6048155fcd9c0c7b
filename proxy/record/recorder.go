package record

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread/overlay"
)

// Call is the call of a client, as far as recording has to do with it.
type Call struct {
	Header http.Header // end-to-end headers as they go upstream: the client's credentials
	Choice overlay.Choice
	// Offline: what was recorded may be read when the upstream cannot be reached.
	Offline bool
}

// Ask does a request of the recorder's own with the headers of a caller. path begins with "/threads/". err: there is no whole answer.
type Ask func(ctx context.Context, header http.Header, method, path string, body []byte) (status int, answerHeader http.Header, answer []byte, err error)

// Options says what a Recorder works with. Store and Ask are needed.
type Options struct {
	Store   Store
	Ask     Ask
	Overlay overlay.Config
	Log     *slog.Logger // nil discards
	// Wait is how long an answer is held back until its thread is recorded, and how long a question to the upstream may take; 0 means 30 s.
	// Recording goes on afterwards.
	Wait time.Duration
}

const (
	waitTime = 30 * time.Second
	// flightTime bounds the work on a thread that one caller's credentials are used for.
	flightTime = 10 * time.Minute
	// queueLength bounds the threads that wait to be recorded in the background. What finds no room is recorded by the next read.
	queueLength = 256
	// finishTime bounds what a shutdown waits for: some streams say what no checkpoint will.
	finishTime = 5 * time.Second
	// backgroundWorkers record threads whose runs have ended.
	backgroundWorkers = 2
)

// Recorder records threads of an upstream server, and shows them. It is safe for concurrent use.
type Recorder struct {
	store   Store
	ask     Ask
	overlay *overlay.Overlay
	byGraph bool // graphs have settings of their own
	log     *slog.Logger
	wait    time.Duration
	queue   chan job
	said    *said

	mu      sync.Mutex
	flights map[id.Thread]*flight
	closed  bool
	flying  sync.WaitGroup
	heads   memory[id.Thread, Link]   // recorded heads that were shown last; Head of their rows
	looked  memory[id.Thread, string] // `updated_at` of threads whose values were asked for
	exits   memory[exitKey, *steps]   // what runs streamed that save at their end only
}

// job is a thread whose newest checkpoints are to be recorded.
type job struct {
	call   *Call
	thread id.Thread
}

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
		heads: newMemory[id.Thread, Link](1 << 14), looked: newMemory[id.Thread, string](1 << 14), exits: newMemory[exitKey, *steps](16),
	}
}

// Run records in the background what ended streams left to record, until ctx ends; then it finishes what is waiting, for a few seconds, ends
// all other work, and returns. What it did not come to is done by the next read.
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
					select { // what waits is taken first
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
	// A thread that is gone, or that its caller may not see, has nothing to record.
	if err := r.head(ctx, j.call, j.thread); err != nil && !refused(err) && ctx.Err() == nil {
		r.log.WarnContext(ctx, "a thread is not recorded yet", "thread_id", j.thread, "error", err)
	}
}

var errClosed = errors.New("the proxy is shutting down")

// later has a thread's newest checkpoints recorded in the background.
func (r *Recorder) later(c *Call, t id.Thread) {
	select {
	case r.queue <- job{c, t}:
	default:
	}
}

// head records the newest checkpoint of a thread, which it asks for.
func (r *Recorder) head(ctx context.Context, c *Call, t id.Thread) error {
	v, err := r.state(ctx, c, t, "")
	if err != nil || !v.root() {
		return err
	}
	_, err = r.ensure(ctx, c, t, true, v)
	return err
}

// Gone forgets a thread that was deleted upstream.
func (r *Recorder) Gone(ctx context.Context, t id.Thread) {
	if err := r.forget(ctx, t); err != nil {
		// Its `created_at` tells it from the next of this id.
		r.log.WarnContext(ctx, "a deleted thread is not forgotten yet", "thread_id", t, "error", err)
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
	r.heads.drop(t)
	r.said.forget(t)
	r.overlay.Forget(t)
	return err
}

// keyOf is the channel that holds the messages of a graph.
func (r *Recorder) keyOf(graph string) string { return r.overlay.Key(graph) }

// memory remembers what it was told last, within bounds, in two generations. It is safe for concurrent use.
type memory[K comparable, V any] struct {
	m *generations[K, V]
}

type generations[K comparable, V any] struct {
	mu         sync.Mutex
	limit      int
	young, old map[K]V
}

func newMemory[K comparable, V any](limit int) memory[K, V] {
	return memory[K, V]{&generations[K, V]{limit: limit, young: map[K]V{}}}
}

func (m memory[K, V]) get(k K) (v V, ok bool) {
	g := m.m
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok = g.young[k]; !ok {
		v, ok = g.old[k]
	}
	return v, ok
}

func (m memory[K, V]) put(k K, v V) {
	g := m.m
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.young) >= g.limit {
		g.young, g.old = map[K]V{}, g.young
	}
	g.young[k] = v
}

func (m memory[K, V]) drop(k K) {
	g := m.m
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.young, k)
	delete(g.old, k)
}
