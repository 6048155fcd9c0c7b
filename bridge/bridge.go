// Package bridge carries the live streams of threads: publish, subscribe, replay from an offset. It owns the order of records and
// how long they stay; what is in them is its callers' business.
package bridge

import (
	"context"
	"errors"

	"understudy/id"
)

// Offset is the position of a record in the stream of its thread. On the wire it is "<ms>-<n>".
// Offsets of a thread only grow, also over restarts and when the clock goes back.
type Offset struct {
	MS int64
	N  int64
}

// Kind of record, as far as subscribers must tell them apart.
type Kind uint8

const (
	Data     Kind = iota // anything a client sees
	Token                // a piece of a message: not kept in the database, and the first to be dropped when memory is short
	Terminal             // the run has ended; nothing follows for it
)

// Record is one entry of the stream of a thread. It is immutable once published, and shared by all subscribers.
type Record struct {
	Offset Offset // given by Publish
	Run    id.Run
	Kind   Kind
	Event  string // event name on the v1 wire, namespace included (`updates|child:…`)
	Data   []byte // JSON
	// Kept: the record belongs to a resumable run and stays for replay after it was delivered.
	Kept bool
	// Ephemeral records are never replayed, though their run is kept (error events).
	Ephemeral bool
	// Frame is Event and Data encoded for SSE once (without id and closing blank line).
	Frame []byte
}

// Bridge is a live stream per thread. Implementations are safe for concurrent use.
type Bridge interface {
	// Publish appends records in order, gives them offsets above all before, and wakes subscribers. It never waits for a subscriber.
	Publish(ctx context.Context, t id.Thread, records []*Record) error
	// Subscribe opens the stream of a thread. It sees every record published after the call, and before them,
	// when after is not nil, the kept ones above *after. Close it.
	Subscribe(ctx context.Context, t id.Thread, after *Offset) (Subscription, error)
	// Advance makes sure that coming offsets of the thread exceed ms.
	Advance(t id.Thread, ms int64)
	// Forget drops what is kept of a run (deleted, rolled back), or with an empty run of the whole thread.
	Forget(ctx context.Context, t id.Thread, r id.Run) error
	// Close ends all subscriptions with ErrClosed. It is not a terminal record.
	Close() error
}

// Subscription is a reader of one stream. It is not safe for concurrent use.
type Subscription interface {
	// Next gives at least one record, all that are ready, in order. It waits until there is one, ctx ends (its cause), the
	// bridge closes (ErrClosed) or the subscriber was too slow (ErrSlow: subscribe again from the last offset seen).
	// The slice is valid until the next call.
	Next(ctx context.Context) ([]*Record, error)
	Close()
}

// Errors of subscriptions.
var (
	ErrClosed = errors.New("the stream was closed because the server shuts down")
	ErrSlow   = errors.New("the subscriber was too slow and has been dropped")
)
