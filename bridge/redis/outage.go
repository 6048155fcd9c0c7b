package redis

import (
	"context"
	"errors"
	"sync"
	"time"
)

// outage is what is known of the first send that Redis has not accepted yet. It does not wait for that send to fail: a Redis that hangs lets it wait
// for longer than Outage.
type outage struct {
	mu       sync.Mutex    // guards the fields below
	since    time.Time     // begin of that send; zero: all were accepted
	accepted time.Time     // begin of the last send that was accepted
	err      error         // why the last send failed; nil: none has, it hangs
	due      *time.Timer   // calls queue.overdue; nil: nothing was sent yet
	over     chan struct{} // closed while Redis counts as away
}

// sending notes that a send begins.
func (q *queue) sending() {
	o := &q.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		return // an earlier one was not accepted
	}
	o.since = time.Now()
	if o.due == nil {
		o.due = time.AfterFunc(q.limit(), q.overdue)
	} else {
		o.due.Reset(q.limit())
	}
}

// limit returns after which time without an accepted send Redis counts as away. The caller holds the lock of outage.
func (q *queue) limit() time.Duration {
	if q.outage.err == nil {
		return q.b.patience()
	}
	return q.b.opts.Outage
}

// took notes whether Redis accepted the last send.
func (q *queue) took(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	o := &q.outage
	if err == nil {
		o.mu.Lock()
		since := o.since
		o.since, o.accepted, o.err = time.Time{}, since, nil
		o.due.Stop()
		q.away.Store(false)
		again := q.shut.Swap(false)
		if again {
			o.over = make(chan struct{})
		}
		o.mu.Unlock()
		if again {
			q.b.opts.Log.InfoContext(ctx, "redis accepts records again", "after", time.Since(since).Round(time.Millisecond).String())
		}
		return
	}
	o.mu.Lock()
	o.err = err
	if !q.shut.Load() {
		o.due.Reset(max(time.Until(o.since.Add(q.limit())), 0))
	}
	o.mu.Unlock()
	if !q.away.Swap(true) {
		q.b.opts.Log.WarnContext(ctx, "records wait for redis", "error", err)
	}
	q.leave()
}

// leave wakes those that wait for a Redis which is away.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.roomier()
	if q.gone != nil {
		close(q.gone)
		q.gone = nil
	}
}

// overdue counts Redis as away when it has accepted nothing for too long: streams are interrupted. Their readers subscribe again when it accepts
// something, and read runs that ended meanwhile from the database.
func (q *queue) overdue() {
	o := &q.outage
	o.mu.Lock()
	// The timer may have fired when a send was just accepted, and another one has begun.
	if o.since.IsZero() || time.Since(o.since) < q.limit() || q.shut.Load() || q.b.isClosed() {
		o.mu.Unlock()
		return
	}
	err := o.err
	if err == nil {
		err = errHangs
	}
	q.away.Store(true)
	q.shut.Store(true)
	close(o.over)
	o.mu.Unlock()
	q.b.opts.Log.Error("redis accepts no records; streams are interrupted, runs continue", "error", err, "fix", remedy(err))
	q.leave()
	q.b.local.Interrupt("", everywhere)
}

var errHangs = errors.New("redis does not answer")

// hung notes that Redis did not answer a subscription that began at a time. Unless it has accepted a send since then, it counts as away: the next
// subscription does not wait again.
func (q *queue) hung(began time.Time) {
	o := &q.outage
	o.mu.Lock()
	if time.Since(began) >= q.limit() && o.accepted.Before(began) && (o.since.IsZero() || began.Before(o.since)) {
		o.since = began
	}
	o.mu.Unlock()
	q.overdue()
}

// over returns a channel that is closed when, or while, Redis counts as away.
func (q *queue) over() <-chan struct{} {
	q.outage.mu.Lock()
	defer q.outage.mu.Unlock()
	return q.outage.over
}

// unwatch ends waiting for sends, of which there are no more.
func (q *queue) unwatch() {
	q.outage.mu.Lock()
	defer q.outage.mu.Unlock()
	if q.outage.due != nil {
		q.outage.due.Stop()
	}
}
