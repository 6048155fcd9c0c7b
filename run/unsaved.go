package run

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"understudy/bridge"
	"understudy/internal/fault"
)

// The end of a run that cannot be written, because the disk is full or the database is away, is retried until it can. Who waits for the result is not
// kept waiting: after a lease it is told why there is none.

// unsavedLog is the line of the log for each attempt to write the end of a run that failed.
const unsavedLog = "writing the end of a run failed; retrying"

// unsavedEnd is the event of a record that tells waiting clients, on all servers, that the end of a run cannot be written. Data is the message. It is not sent
// to clients of streams.
const unsavedEnd = "end_not_saved"

// unsaved is closed when the end of an execution could not be written for a lease.
type unsaved struct {
	once sync.Once
	c    chan struct{}
	err  error // set before c is closed
}

// reportUnsaved tells those who wait for the result of a run why there is none. It is called with each failure, for others may have come since.
func (x *executor) reportUnsaved(ctx context.Context, ex *execution, cause error) {
	why := "an internal error occurred"
	var f *fault.Error
	if errors.As(cause, &f) && f.Kind != fault.Internal {
		why = f.Message
	}
	text := fmt.Sprintf("The run has stopped, but its end cannot be saved: %s. The server retries until it can. Its log has the details: %q", why, unsavedLog)
	ex.unsaved.once.Do(func() {
		ex.unsaved.err = fault.New(fault.Unavailable, text)
		close(ex.unsaved.c)
	})
	x.publisher.publish(ctx, ex.run, &bridge.Record{Run: ex.run.ID, Event: unsavedEnd, Data: []byte(text), Ephemeral: true})
}

// unsavedError returns why the end of an execution could not be written for a lease; nil when it could, or is not to be written.
func (ex *execution) unsavedError() error {
	if ex == nil {
		return nil
	}
	select {
	case <-ex.unsaved.c:
		return ex.unsaved.err
	default:
		return nil
	}
}
