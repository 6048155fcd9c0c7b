package search

import (
	"context"
	"log/slog"
	"time"

	"understudy/eventstore"
	"understudy/internal/loop"
)

const (
	batch = 100 // messages of one write
	// share is the part of the time in which the indexer may write: one of so many.
	share = 20
	// idle is when to look for messages that no call of Saved announced.
	idle = 30 * time.Second
	// backoff is the pause after an error.
	backoff = 5 * time.Second
	// gather is how long to wait for more messages before a write.
	gather = 100 * time.Millisecond
)

// Indexer keeps the index in step with the log.
type Indexer struct {
	log  *slog.Logger
	wake chan struct{} // capacity 1
}

// NewIndexer makes an Indexer.
func NewIndexer(log *slog.Logger) *Indexer {
	return &Indexer{log: log, wake: make(chan struct{}, 1)}
}

// Saved notes that there are messages to index. It does not block.
func (x *Indexer) Saved() {
	loop.Poke(x.wake)
}

// Run indexes messages of store until ctx ends.
func (x *Indexer) Run(ctx context.Context, store Store) error {
	filled, failing := false, false
	var at int64 // of the backfill
	for {
		began := time.Now()
		n, err := step(ctx, store)
		if err == nil && n < batch && !filled {
			var last int64
			if last, err = store.NoteMissing(ctx, at); err == nil {
				at, filled = last, last == 0
			}
			n = batch // there may be more
		}
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !failing {
				x.log.WarnContext(ctx, "indexing messages for search failed; retrying", "error", err)
			}
			loop.Sleep(ctx, backoff)
		case n < batch:
			x.await(ctx)
			loop.Sleep(ctx, max(gather, took*(share-1)))
		default:
			loop.Sleep(ctx, took*(share-1))
		}
		failing = err != nil
	}
}

// await waits for messages.
func (x *Indexer) await(ctx context.Context) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	select {
	case <-x.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// step indexes a batch and returns the number of its messages.
func step(ctx context.Context, store Store) (int, error) {
	list, err := store.ToIndex(ctx, batch)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	for i := range list {
		d := &list[i]
		d.Words, d.Size, d.Content = Words(eventstore.Text(d.Content)), len(d.Content), nil
	}
	return len(list), store.PutWords(ctx, list)
}
