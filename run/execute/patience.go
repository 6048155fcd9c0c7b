package execute

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
)

// patient is the storage as an execution has it when instances share it: what fails because the database is away is repeated, for it mostly
// comes back, and then the graph has nothing to do twice. After three leases it gives up: the run goes back to the queue, for
// a server that can reach the database.
type patient struct {
	run.Store
	end  time.Duration   // how long it tries
	quit <-chan struct{} // closed when the server ends
	done <-chan struct{} // closed when the execution is to stop
	away atomic.Bool     // it has given up

	outage *outage // what the log says of it
}

// outageAfter is how long an operation fails before the log says that runs wait: shorter failures are those of every failover.
const outageAfter = time.Second

// outage logs when the runs of a server begin to wait for the database, and when the last of them stops: once each, however many there are.
type outage struct {
	log   *slog.Logger
	after time.Duration // how long an operation fails before it counts

	mu      sync.Mutex
	waiting int
	since   time.Time
}

func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting++; o.waiting == 1 {
		o.since = time.Now()
		o.log.Warn("runs wait for the database; they continue when it is back, or return to the queue", "error", err)
	}
}

func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting--; o.waiting == 0 {
		o.log.Info("runs do not wait for the database any more", "after", time.Since(o.since).Round(time.Millisecond).String())
	}
}

func (p *patient) try(ctx context.Context, what func() error) error {
	began, waits := time.Now(), false
	end := began.Add(p.end)
	defer func() {
		if waits {
			p.outage.ends()
		}
	}()
	for wait := loop.NewBackoff(50*time.Millisecond, time.Second); ; {
		err := what()
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		if time.Now().After(end) {
			p.away.Store(true)
			return err
		}
		if !waits && time.Since(began) >= p.outage.after {
			waits = true
			p.outage.begins(err)
		}
		select {
		case <-time.After(wait.Next()):
		case <-ctx.Done():
			return err
		case <-p.done:
			return err
		case <-p.quit:
			return err
		}
	}
}

// Write is Store.Write. What fn does is fit to be done again: a commit whose connection died may have happened.
func (p *patient) Write(ctx context.Context, fn func(run.Tx) error) error {
	return p.try(ctx, func() error { return p.Store.Write(ctx, fn) })
}

// LoadCheckpoint is checkpointer.Reader.LoadCheckpoint.
func (p *patient) LoadCheckpoint(ctx context.Context, k checkpointer.Key) (t *checkpointer.Tuple, err error) {
	err = p.try(ctx, func() error {
		t, err = p.Store.LoadCheckpoint(ctx, k)
		return err
	})
	return t, err
}

// ListCheckpoints is checkpointer.Reader.ListCheckpoints.
func (p *patient) ListCheckpoints(ctx context.Context, q checkpointer.List) (list []*checkpointer.Tuple, err error) {
	err = p.try(ctx, func() error {
		list, err = p.Store.ListCheckpoints(ctx, q)
		return err
	})
	return list, err
}

// patientItems is the long-term memory in the same way. Its operations may be done again.
type patientItems struct {
	items   graph.Store
	storage *patient
}

func (p patientItems) Batch(ctx context.Context, ops []graph.StoreOp) (results []graph.StoreResult, err error) {
	err = p.storage.try(ctx, func() error {
		results, err = p.items.Batch(ctx, ops)
		return err
	})
	return results, err
}
