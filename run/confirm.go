package run

import (
	"context"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/loop"
)

// Confirm returns what the storage has of a run after a transaction whose outcome is not known: Write may return an error although the commit happened, as when
// a connection dies before the answer comes. nil: there is no such run. While the storage is away Confirm waits for it, until ctx ends; then it returns an error.
func Confirm(ctx context.Context, s Store, t id.Thread, r id.Run) (row *Run, err error) {
	for wait := loop.NewBackoff(10*time.Millisecond, time.Second); ; {
		if _, shared := s.(Shared); shared {
			// The server of the database may still be at that commit: this waits for the lock of the thread.
			err = s.Write(ctx, func(tx Tx) (err error) {
				row, err = tx.Run(t, r)
				return err
			})
		} else {
			row, err = s.Run(ctx, t, r) // also of a full disk
		}
		if err == nil {
			return row, nil
		}
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if !wait.Sleep(ctx) {
			return nil, err
		}
	}
}

// SameClaim reports whether a row is that of a run as it was claimed.
func (r *Run) SameClaim(row *Run) bool {
	return row.Status == Running && row.Attempt == r.Attempt && row.Owner == r.Owner
}
