package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/protocol"
)

// Attempt is one claim of a run, as those see it who publish and who read its records. It is safe for concurrent use.
type Attempt struct {
	Run     *run.Run      // as claimed; not changed afterwards
	numbers *atomic.Int64 // of the records that it has published; nil: it is not executed here, and they get none

	// The reply so far. The execution publishes and folds a record under the lock, so that a reader who has subscribed before it reads
	// has every record either here or in its stream. It waits for the database without the lock.
	mu sync.Mutex
	so reply

	askedMu sync.Mutex
	asked   []string // interrupts that its records have shown

	unsavedOnce sync.Once
	unsavedDone chan struct{} // closed when the end could not be written in time
	unsavedErr  error         // set before unsavedDone is closed
}

// NewAttempt is an attempt that is executed here.
func NewAttempt(r *run.Run) *Attempt {
	return &Attempt{Run: r, numbers: &atomic.Int64{}, unsavedDone: make(chan struct{})}
}

// The end of a run that cannot be written, because the disk is full or the database is away, is retried until it can. Who waits for the result is not
// kept waiting: after a lease, or 2 s when the disk is full, it learns why there is none. A stream says so then, and stays open for the end.

// UnsavedLog is the line of the log about attempts to write the end of a run that fail.
const UnsavedLog = "writing the end of a run failed; retrying"

// unsavedEnd is the event of a record that informs followers, on all servers, that the end of a run cannot be written. Data is the message. Clients of streams
// see unsavedNotice instead, under the same name.
const unsavedEnd = protocol.EndNotSaved

// unsavedNotice is what clients of streams see of an unsavedEnd. It has no offset: it is not replayed, and the end of the run comes after it once it is saved.
// It is no event `error`: to clients that is the end of a run, which has failed, and this one may succeed. Those that do not know its name ignore it.
func unsavedNotice(rec *bridge.Record) *bridge.Record {
	return &bridge.Record{Run: rec.Run, Event: unsavedEnd, Data: run.ErrorJSON("ServiceUnavailable", string(rec.Data)), Ephemeral: true}
}

// AttemptElsewhere is an attempt that was executed on another server, or not at all.
func AttemptElsewhere(r *run.Run) *Attempt { return &Attempt{Run: r} }

// Attempts are those that this server executes.
type Attempts interface {
	// Attempt returns the attempt of a run that is executed here; nil: none is.
	Attempt(r id.Run) *Attempt
}

// reply is what the attempt has answered so far; the zero reply for nil.
func (a *Attempt) reply() reply {
	if a == nil {
		return reply{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.so
}

// Asks returns the interrupts that its records have shown so far.
func (a *Attempt) Asks() []string {
	a.askedMu.Lock()
	defer a.askedMu.Unlock()
	return slices.Clone(a.asked)
}

// noteAsked notes the interrupts of a record, before a reader can see it.
func (a *Attempt) noteAsked(rec *bridge.Record) {
	if names := protocol.Asks(rec); names != nil {
		a.askedMu.Lock()
		defer a.askedMu.Unlock()
		a.asked = append(a.asked, names...)
	}
}

// PublishUnsaved reports, to those who wait for the result of a run, why there is none. It is called with each failure, for others may have come since.
func (p *Publisher) PublishUnsaved(ctx context.Context, a *Attempt, cause error) {
	why := "an internal error occurred"
	var f *fault.Error
	if errors.As(cause, &f) && f.Kind != fault.Internal {
		why = f.Message
	}
	text := fmt.Sprintf("The run has stopped, but its end cannot be saved: %s. The server retries until it can. Its log has the details: %q", why, UnsavedLog)
	a.unsavedOnce.Do(func() {
		a.unsavedErr = fault.New(fault.Unavailable, text)
		close(a.unsavedDone)
	})
	p.Publish(ctx, a, &bridge.Record{Run: a.Run.ID, Event: unsavedEnd, Data: []byte(text), Ephemeral: true})
}

// Unsaved is closed when the end could not be written in time.
func (a *Attempt) Unsaved() <-chan struct{} { return a.unsavedDone }

// UnsavedErr returns why the end could not be written in time; nil when it could, or is not to be written.
func (a *Attempt) UnsavedErr() error {
	if a == nil {
		return nil
	}
	select {
	case <-a.unsavedDone:
		return a.unsavedErr
	default:
		return nil
	}
}
