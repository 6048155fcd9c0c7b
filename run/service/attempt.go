package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// attempt is one claim of a run, as those see it who publish and who read its records. It is safe for concurrent use.
type attempt struct {
	run     *run.Run      // as claimed; not changed afterwards
	numbers *atomic.Int64 // of the records that it has published; nil: it is not executed here, and they get none

	// The reply so far. The execution publishes and folds a record under the lock, so that a reader who has subscribed before it reads
	// has every record either here or in its stream. It waits for the database without the lock.
	mu sync.Mutex
	so reply

	unsavedOnce sync.Once
	unsaved     chan struct{} // closed when the end could not be written for a lease
	unsavedErr  error         // set before unsaved is closed
}

// newAttempt is an attempt that is executed here.
func newAttempt(r *run.Run) *attempt {
	return &attempt{run: r, numbers: &atomic.Int64{}, unsaved: make(chan struct{})}
}

// The end of a run that cannot be written, because the disk is full or the database is away, is retried until it can. Who waits for the result is not
// kept waiting: after a lease it is told why there is none.

// unsavedLog is the line of the log for each attempt to write the end of a run that failed.
const unsavedLog = "writing the end of a run failed; retrying"

// unsavedEnd is the event of a record that tells waiting clients, on all servers, that the end of a run cannot be written. Data is the message. It is not sent
// to clients of streams.
const unsavedEnd = "end_not_saved"

// attempts are those that this server executes.
type attempts interface {
	// attempt returns the attempt of a run that is executed here; nil: none is.
	attempt(r id.Run) *attempt
}

// reply is what the attempt has answered so far; the zero reply for nil.
func (a *attempt) reply() reply {
	if a == nil {
		return reply{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.so
}

// publishUnsaved tells those who wait for the result of a run why there is none. It is called with each failure, for others may have come since.
func (p *publisher) publishUnsaved(ctx context.Context, a *attempt, cause error) {
	why := "an internal error occurred"
	var f *fault.Error
	if errors.As(cause, &f) && f.Kind != fault.Internal {
		why = f.Message
	}
	text := fmt.Sprintf("The run has stopped, but its end cannot be saved: %s. The server retries until it can. Its log has the details: %q", why, unsavedLog)
	a.unsavedOnce.Do(func() {
		a.unsavedErr = fault.New(fault.Unavailable, text)
		close(a.unsaved)
	})
	p.publish(ctx, a, &bridge.Record{Run: a.run.ID, Event: unsavedEnd, Data: []byte(text), Ephemeral: true})
}

// unsavedError returns why the end could not be written for a lease; nil when it could, or is not to be written.
func (a *attempt) unsavedError() error {
	if a == nil {
		return nil
	}
	select {
	case <-a.unsaved:
		return a.unsavedErr
	default:
		return nil
	}
}
