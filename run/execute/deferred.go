package execute

import (
	"context"
	"fmt"

	"understudy/run"
	"understudy/run/stream"
	"understudy/thread"
)

// DeferredRun is a stateless run of which nothing would be left after its end, and of which its client knows nothing yet: neither its id nor that it
// was accepted. It is executed without having been written, as if its request were still under way. It is written before the client learns
// of it (Settle), or when it ends in a way that leaves something to do. Most runs that are waited for end before, and cost the
// database nothing.
type DeferredRun struct {
	x      *Executor
	ex     *Execution
	thread *thread.Thread
	stream *stream.DeferredStream

	lock    chan struct{} // capacity 1: filled by who uses what follows, also while it writes to the database
	settled bool          // it was written, or has ended, or cannot be written
	err     error
}

// LaunchDeferred starts executing a claimed run that is not written, for which a slot was reserved, on a thread that is written with it.
func (x *Executor) LaunchDeferred(r *run.Run, row *thread.Thread, stream *stream.DeferredStream) *DeferredRun {
	b := &DeferredRun{x: x, thread: row, stream: stream, lock: make(chan struct{}, 1)}
	b.lock <- struct{}{} // the end of the run waits until there is an execution
	b.ex = x.launchWith(r, true, b.finish)
	<-b.lock
	return b
}

// Settle writes the run, unless it has ended. A run that cannot be written is given up.
func (b *DeferredRun) Settle(ctx context.Context) error {
	select {
	case b.lock <- struct{}{}: // also when ctx has ended: then it is given up here
	default:
		select {
		case b.lock <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx) // its end is being written
		}
	}
	defer func() { <-b.lock }()
	if b.settled {
		return b.err
	}
	b.settled = true
	if b.err = b.write(ctx); b.err != nil {
		b.ex.Cancel(ErrGone)
	}
	return b.err
}

func (b *DeferredRun) write(ctx context.Context) error {
	// From now on others may follow it, so it is in the bridge; before the commit, or its reader would miss what comes at once.
	sub, away := b.x.Followers.SubscribeHere(ctx, b.thread.ID, b.ex.Run.ID)
	written := false
	err := b.x.Store.Write(ctx, func(tx run.Tx) error {
		written = false
		run.Expect(tx, func(e run.Expecting) { e.ExpectNew(b.thread.ID) })
		if err := tx.InsertThread(b.thread); err != nil {
			return fmt.Errorf("thread of a new run: %w", err)
		}
		if err := tx.InsertRun(b.ex.Run); err != nil {
			return fmt.Errorf("insert run: %w", err)
		}
		written = true
		return nil
	})
	if err != nil && !(written && b.happened(ctx)) {
		if sub != nil {
			sub.Close()
		}
		return err
	}
	b.ex.unwritten.Store(false)
	b.stream.Hand(context.WithoutCancel(ctx), sub, away)
	return nil
}

// happened reports whether the run was written though the answer to the commit was lost.
func (b *DeferredRun) happened(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.x.Lease/4)
	defer cancel()
	row, err := run.Confirm(ctx, b.x.Store, b.ex.Run.Thread, b.ex.Run.ID)
	return err == nil && row != nil && b.ex.Run.SameClaim(row)
}

// end forgets a run that was never written.
func (b *DeferredRun) end() {
	b.settled = true
	b.stream.Drop()
	b.x.Gone(b.ex.Run)
}

// finish ends the run. When it was not written and its end leaves nothing, there is nothing to write.
func (b *DeferredRun) finish(ctx context.Context, ex *Execution, out outcome) error {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	if !b.ex.unwritten.Load() {
		return b.x.finish(ctx, ex, out)
	}
	switch {
	case b.err != nil || out.kind == dropped: // no client knows of it, and none will
		b.x.Publisher.PublishEnd(ctx, ex.Run)
		b.end()
		return nil
	case out.kind != succeeded && out.kind != failed: // it is executed again, or has to be reported
		if err := b.write(ctx); err != nil {
			return err
		}
		b.settled = true
		return b.x.finish(ctx, ex, out)
	}
	row := *ex.Run
	b.x.conclude(&row, out, b.x.Now())
	b.x.announce(ctx, ex.Attempt, ending{row: &row}, out)
	b.end()
	return nil
}
