// Package stream carries the records of runs: from the execution to the bridge and the database, and from there to readers, each once and in order.
package stream

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
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/signals"
	"understudy/thread"
)

// PublisherOptions are what a publisher is made of.
type PublisherOptions struct {
	Store   Store
	Bridge  bridge.Bridge
	Streams bridge.Options // limits of the streams of runs that are not on Bridge
	Shared  bool           // other servers work on the store
	Signals *signals.Sender
	Log     *slog.Logger
	Quit    <-chan struct{} // closed when the grace period is over
}

// Store is what streams need of the storage.
type Store interface {
	Write(ctx context.Context, fn func(run.Tx) error) error
	run.RecordStore
	Run(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error)
	// Runs lists newest first.
	Runs(ctx context.Context, t id.Thread, q run.Query) ([]*run.Run, error)
	Thread(ctx context.Context, t id.Thread) (*thread.Thread, error)
	LoadCheckpoint(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error)
}

// Publisher puts the records of runs on the streams of their threads, and those of resumable runs into the database.
type Publisher struct {
	PublisherOptions
	numbers  bool          // records are numbered, so that readers know them under every offset
	remote   bridge.Remote // the bridge, when its streams go through Redis; nil else
	failover *failover     // serves followers here while Redis is away; nil without remote

	deferred sync.Map // id.Thread → *DeferredStream, of runs that are not written
	keep     chan kept
	failure  atomic.Pointer[error] // of the last attempt to write records; nil: it succeeded
	ends     errgroup.Group        // of KeepEnd
	stopped  chan struct{}         // closed when nothing is published any more
}

// NewPublisher makes a publisher, whose Run keeps records.
func NewPublisher(o PublisherOptions) *Publisher {
	// Full means that the storage is slower than the graphs: their runs then wait for it.
	p := &Publisher{PublisherOptions: o, keep: make(chan kept, 2048), stopped: make(chan struct{})}
	p.ends.SetLimit(endsAtOnce)
	p.remote, _ = o.Bridge.(bridge.Remote)
	p.numbers = o.Shared || p.remote != nil
	if p.remote != nil {
		p.failover = newFailover(o.Streams)
	}
	return p
}

// Begin notes that an attempt of a run begins here; an earlier one may not have ended yet.
func (p *Publisher) Begin(r *run.Run) { p.failover.begin(r) }

// End notes that an attempt has ended here, after its records were published.
func (p *Publisher) End(r *run.Run) { p.failover.end(r) }

// Deleted notes that a run is gone, with its thread or by itself.
func (p *Publisher) Deleted(r *run.Run) { p.failover.deleted(r) }

// Forget removes the records that a deleted run published after its deletion. The run must not publish any more.
func (p *Publisher) Forget(r *run.Run) {
	if err := p.Bridge.Forget(context.Background(), r.Thread, r.ID); err != nil && !errors.Is(err, bridge.ErrClosed) { // after the commit, independent of the request
		p.Log.Warn("records of a deleted run stay in the live stream until they expire", "run_id", r.ID, "error", err)
	}
}

// kept is a record on its way into the database; with done instead, everything before it is to be written first.
type kept struct {
	thread id.Thread
	record *bridge.Record
	done   chan<- struct{}
}

// keepBatch bounds one transaction of kept records.
const keepBatch = 2048

// Run writes records until ctx ends, and then those that wait.
func (p *Publisher) Run(ctx context.Context) {
	if p.failover != nil {
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			_ = p.failover.live.Run(ctx) // the cause of ctx
		}()
		defer func() {
			_ = p.failover.live.Close() // which has no error
			<-swept
		}()
	}
	p.KeepRecords(ctx)
}

// Close says that nothing is published any more, and waits until everything is on its way into the database. Run writes it.
func (p *Publisher) Close() {
	_ = p.ends.Wait() // which has no error
	close(p.stopped)
}

// gather is how long records wait for others to be written with, unless someone waits for them. A transaction costs as much as dozens of tokens; and what waits
// is lost when the process is killed.
const gather = 50 * time.Millisecond

// KeepRecords writes the records of resumable runs, those of a short time in one transaction. When ctx ends it writes what waits and returns.
func (p *Publisher) KeepRecords(ctx context.Context) {
	timer := time.NewTimer(gather)
	defer timer.Stop()
	for {
		var batch []kept
		awaited := false
		add := func(k kept) {
			batch = append(batch, k)
			awaited = awaited || k.done != nil
		}
		select {
		case k := <-p.keep:
			add(k)
		case <-ctx.Done():
		}
		timer.Reset(gather)
		for waits := true; waits && !awaited && len(batch) < keepBatch; {
			select {
			case k := <-p.keep:
				add(k)
			case <-timer.C:
				waits = false
			case <-ctx.Done():
				waits = false
			}
		}
	more:
		for len(batch) < keepBatch {
			select {
			case k := <-p.keep:
				add(k)
			default:
				break more
			}
		}
		if len(batch) == 0 {
			return // only ctx got us here
		}
		p.writeRecords(ctx, batch)
	}
}

// keepRecord hands a record over. It waits when the storage is slower than the graph, but not for a storage that is away when the server ends: then the
// record is dropped.
func (p *Publisher) keepRecord(ctx context.Context, k kept) bool {
	select {
	case p.keep <- k:
		return true
	default:
	}
	select {
	case p.keep <- k:
		return true
	case <-ctx.Done():
	case <-p.Quit:
	case <-p.stopped:
	}
	return false
}

// writeAttempts is how often records are written that the storage refuses: for about a second.
const writeAttempts = 8

// writeRecords returns when the records are written, or cannot be. When instances share the storage and it is away it is waited for: what was shown
// live must be found there by readers that reconnect. Runs wait meanwhile, when the channel is full. The end of ctx ends the patience.
func (p *Publisher) writeRecords(ctx context.Context, batch []kept) {
	write := context.WithoutCancel(ctx)
	byThread := map[id.Thread][]*bridge.Record{}
	for _, k := range batch {
		if k.record != nil {
			byThread[k.thread] = append(byThread[k.thread], k.record)
		}
	}
	// Records of threads that are gone by now are dropped one by one inside: the others must not suffer.
	wait := loop.NewBackoff(10*time.Millisecond, time.Second)
	for attempt := 1; len(byThread) > 0; attempt++ {
		err := p.Store.KeepRecords(write, byThread)
		if err == nil {
			p.failure.Store(nil)
			p.saved(byThread)
			break
		}
		p.failure.Store(&err)
		waits := p.Shared && fault.Is(err, fault.Unavailable) && ctx.Err() == nil
		if attempt >= writeAttempts && !waits {
			p.Log.ErrorContext(ctx, "stream records could not be kept: rejoining after a restart will have a gap", "error", err)
			break
		}
		time.Sleep(wait.Next())
	}
	for _, k := range batch {
		if k.done != nil {
			close(k.done)
		}
	}
}

// saver is a bridge that need not keep what the database has.
type saver interface {
	// Saved notes that the database has some records of a thread. Others may come later, or never, in any order.
	Saved(t id.Thread, records []*bridge.Record)
}

// saved notes that the database has records.
func (p *Publisher) saved(byThread map[id.Thread][]*bridge.Record) {
	if s, ok := p.Bridge.(saver); ok {
		for t, records := range byThread {
			s.Saved(t, records)
		}
	}
}

// FlushRecords returns when all records published before are written, or the server ends. Each time that takes another patience it calls late, if that is
// not nil, with the reason.
func (p *Publisher) FlushRecords(ctx context.Context, patience time.Duration, late func(error)) {
	var impatient <-chan time.Time
	if late != nil {
		ticker := time.NewTicker(patience)
		defer ticker.Stop()
		impatient = ticker.C
	}
	done := make(chan struct{})
	queue, stopped, written := p.keep, p.stopped, (<-chan struct{})(nil)
	for {
		select {
		case queue <- kept{done: done}:
			queue, stopped, written = nil, nil, done
		case <-written:
			return
		case <-impatient:
			late(p.unwritten())
		case <-ctx.Done():
			return
		case <-stopped:
			return
		case <-p.Quit: // the storage is away, and the server ends
			return
		}
	}
}

// unwritten returns why records are not written.
func (p *Publisher) unwritten() error {
	if cause := p.failure.Load(); cause != nil {
		return fmt.Errorf("write stream records: %w", *cause)
	}
	return fault.New(fault.Unavailable, "the database does not answer in time")
}

// Record makes a record of a run for Publish.
func (p *Publisher) Record(r *run.Run, kind bridge.Kind, event string, data []byte) *bridge.Record {
	rec := &bridge.Record{Run: r.ID, Kind: kind, Event: event, Data: data, Kept: r.Kwargs.Resumable, Stored: r.Durable()}
	if p.numbers {
		rec.Attempt = r.Attempt
	}
	return rec
}

// Publish sends records on the thread's stream, and keeps those of resumable runs.
func (p *Publisher) Publish(ctx context.Context, a *Attempt, records ...*bridge.Record) {
	if p.send(ctx, a, records) {
		p.keepAll(ctx, a.Run, records)
	}
}

// PublishFolded publishes a record of an attempt, and folds it into its reply.
func (p *Publisher) PublishFolded(ctx context.Context, a *Attempt, rec *bridge.Record) {
	if !concerns(rec) {
		p.Publish(ctx, a, rec)
		return
	}
	a.mu.Lock()
	sent := p.send(ctx, a, []*bridge.Record{rec})
	a.so.add(rec)
	a.mu.Unlock()
	if sent {
		p.keepAll(ctx, a.Run, []*bridge.Record{rec})
	}
}

// send sends records on the thread's stream. It reports whether that worked, and keepAll is to follow. It does not wait for the database.
func (p *Publisher) send(ctx context.Context, a *Attempt, records []*bridge.Record) bool {
	r := a.Run
	detached := context.WithoutCancel(ctx)
	if a.numbers != nil {
		for _, rec := range records {
			if rec.Attempt > 0 {
				rec.Index = a.numbers.Add(1)
			}
			a.noteAsked(rec)
		}
	}
	if b, ok := p.deferred.Load(r.Thread); ok && b.(*DeferredStream).publish(detached, records) {
		return false
	}
	if err := p.Bridge.Publish(detached, r.Thread, records); err != nil {
		p.Log.ErrorContext(ctx, "cannot publish", "run_id", r.ID, "error", err)
		return false
	}
	p.failover.published(r, records)
	return true
}

// keepAll hands those of some records over that are to be kept. It waits when the storage is slower than the graph.
func (p *Publisher) keepAll(ctx context.Context, r *run.Run, records []*bridge.Record) {
	if !r.Durable() {
		return
	}
	for _, rec := range records {
		if rec.Kept && !rec.Ephemeral && (rec.Kind != bridge.Terminal || p.remote == nil) { // see KeepEnd
			p.keepRecord(context.WithoutCancel(ctx), kept{thread: r.Thread, record: rec})
		}
	}
}

// KeepEnd keeps the record of a run's end, which can only be published after the commit: the next run may have begun elsewhere by then, and the live
// stream has the record behind that one's first. It is kept under the offset it has there, or was given if that is not known in time. It does not wait.
func (p *Publisher) KeepEnd(ctx context.Context, r *run.Run, end *bridge.Record) {
	if p.remote == nil || !end.Kept || !r.Durable() {
		return
	}
	// A server that ends a run, or takes over those of a dead server one after the other, does not wait for Redis.
	detached := context.WithoutCancel(ctx)
	waits := p.ends.TryGo(func() error {
		ctx, cancel := context.WithTimeout(detached, flushPatience)
		defer cancel()
		stored := *end
		stored.Offset, _ = p.remote.FlushEnd(ctx, r.Thread, end) // on an error it is what was given
		p.keepRecord(detached, kept{thread: r.Thread, record: &stored})
		return nil
	})
	if !waits {
		p.keepRecord(detached, kept{thread: r.Thread, record: end})
	}
}

// endsAtOnce bounds the ends of runs that wait for Redis. Above it they are stored under the offsets that they were given.
const endsAtOnce = 256

// flushPatience bounds how long the end of a resumable run waits for Redis.
const flushPatience = 2 * time.Second

// FlushStream waits until other instances can see what a resumable run has published, so that the next run of the thread, wherever it is executed,
// comes behind it in the live stream: records that arrive later get other ids there than the database has. It follows FlushRecords, which takes
// longer than a healthy Redis. While Redis is away nothing waits.
func (p *Publisher) FlushStream(ctx context.Context, r *run.Run) {
	if p.remote == nil || !r.Kwargs.Resumable || r.Kwargs.Temporary {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	if err := p.remote.Flush(ctx, r.Thread); errors.Is(err, context.DeadlineExceeded) {
		p.Log.WarnContext(ctx, "Redis is slow: a run ends before its last stream records have arrived there", "run_id", r.ID, "thread_id", r.Thread, "waited", flushPatience.String())
	}
}

// PublishEnd notifies followers that a run is over.
func (p *Publisher) PublishEnd(ctx context.Context, r *run.Run) {
	end := p.Terminal(r)
	if p.numbers {
		// Another server may execute a run of the thread, and assigns the offsets under which the database has its records.
		end.Attempt, end.Kept, end.Stored = 0, false, false
	}
	p.Publish(ctx, AttemptElsewhere(r), end)
	p.Signals.Ended(r)
}

// Terminal makes the record that ends the stream of a run.
func (p *Publisher) Terminal(r *run.Run) *bridge.Record {
	return p.Record(r, bridge.Terminal, "metadata", []byte(`{"status":"run_done","run_id":"`+string(r.ID)+`"}`))
}

// PublishState publishes, for followers of a thread, a state that a client has written, and its checkpoint. data: {"state": …, "thread_id": …}.
func (p *Publisher) PublishState(t id.Thread, at id.Checkpoint, data json.RawMessage) {
	rec := &bridge.Record{Kind: bridge.Data, Event: stateUpdate, Data: data, Checkpoint: at}
	if err := p.Bridge.Publish(context.Background(), t, []*bridge.Record{rec}); err != nil { // the write is committed, whatever becomes of its request
		p.Log.Warn("a state update was not published", "thread_id", t, "error", err)
	}
}
