package thread

import (
	"context"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
)

// LogStore is the part of the storage that a Log uses.
type LogStore interface {
	// Thread returns a thread; fault.NotFound when there is none.
	Thread(ctx context.Context, t id.Thread) (*Thread, error)
	eventstore.Pager
}

// Log reads the events of threads, page by page.
type Log struct {
	store    LogStore
	backfill Backfill
}

// NewLog makes a Log. backfill may be nil: every thread was recorded from its beginning.
func NewLog(store LogStore, backfill Backfill) *Log {
	return &Log{store: store, backfill: backfill}
}

// Events returns a page of the log: all events in the order in which they were written.
func (l *Log) Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	if err := l.find(ctx, q); err != nil {
		return nil, err
	}
	return l.store.LogPage(ctx, q)
}

// Messages returns a page of the transcript of the head.
func (l *Log) Messages(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	if err := l.find(ctx, q); err != nil {
		return nil, err
	}
	page, err := l.store.MessagePage(ctx, q)
	if err == nil {
		page.Through(overlay.Unwrap)
	}
	return page, err
}

// find returns an error for unknown threads and runs. A run that was deleted or came with a copy exists as long as it has
// events.
func (l *Log) find(ctx context.Context, q eventstore.PageQuery) error {
	if _, err := l.store.Thread(ctx, q.Thread); err != nil {
		if fault.Is(err, fault.NotFound) {
			return notFound(q.Thread)
		}
		return err
	}
	if l.backfill != nil {
		if err := l.backfill.Ensure(ctx, q.Thread, ""); err != nil {
			return err
		}
	}
	if q.Run == "" {
		return nil
	}
	known, err := l.store.KnowsRun(ctx, q.Thread, q.Run)
	if err == nil && !known {
		err = fault.New(fault.NotFound, "Not Found") // as for a request for a single run
	}
	return err
}
