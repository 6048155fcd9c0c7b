package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"understudy/id"
)

// Offset is the position of a record in the stream of its thread. On the wire it is "<ms>-<n>".
// Offsets of a thread only grow, also over restarts and when the clock goes back.
type Offset struct {
	MS int64
	N  int64
}

// Compare is negative when o comes before p, zero when they are equal, positive when o comes after p.
func (o Offset) Compare(p Offset) int {
	if c := cmp.Compare(o.MS, p.MS); c != 0 {
		return c
	}
	return cmp.Compare(o.N, p.N)
}

// String returns the wire form, "<ms>-<n>".
func (o Offset) String() string {
	b := strconv.AppendInt(make([]byte, 0, 24), o.MS, 10)
	return string(strconv.AppendInt(append(b, '-'), o.N, 10))
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
	// Checkpoint is the root checkpoint whose messages a root `values` shows; "" for all other records, and when nothing is saved.
	// With Ahead the values may go beyond it, and "" is the state before the first checkpoint of the thread.
	// Of root `updates` that may condense messages it is the checkpoint before their step, with Ahead.
	Checkpoint id.Checkpoint
	Ahead      bool
	// Summarizer: a piece of a message that a summarizer caused, which readers of transcripts do not see.
	Summarizer bool
	// Attempt of the run that it is the word of; 0: not known. Where attempts may overlap, what an older one says after a newer began is left out.
	Attempt int
	// Index numbers the records of an attempt that are kept in the database, from 1 on: so a reader finds out that one is missing, and which. 0: it is not
	// one of them, or not known.
	Index int64
	// Frame is Event and Data encoded for SSE (without id and closing blank line), where many readers are expected; nil: whoever writes it encodes it.
	Frame []byte
}

// Bridge is a live stream per thread. Implementations are safe for concurrent use.
type Bridge interface {
	// Publish appends records in order, gives them offsets above all before, and wakes subscribers. It never waits for a subscriber.
	// The slice stays the caller's. After Close: ErrClosed.
	Publish(ctx context.Context, t id.Thread, records []*Record) error
	// Subscribe opens the stream of a thread. It sees every record published after the call, and before them,
	// when after is not nil, the kept ones above *after. Close it. After Close of the bridge: ErrClosed.
	Subscribe(ctx context.Context, t id.Thread, after *Offset) (Subscription, error)
	// Advance makes sure that coming offsets of the thread exceed ms.
	Advance(t id.Thread, ms int64)
	// Forget drops what is kept of a run (deleted, rolled back), or with an empty run of the whole thread. Subscribers that are
	// already there may still get it. Offsets go on from where they were.
	Forget(ctx context.Context, t id.Thread, r id.Run) error
	// Close ends all subscriptions with ErrClosed. It is not a terminal record.
	Close() error
}

// Remote is a Bridge whose records reach readers through a service that may be slow or away.
type Remote interface {
	Bridge
	// Flush waits until the service has taken what was published to a thread before the call, and returns nil. While the service is known to be
	// away it does not wait: ErrInterrupted. When ctx ends it returns its cause.
	Flush(ctx context.Context, t id.Thread) error
	// FlushEnd is Flush after a Terminal record was published, and returns the offset that the record has there: another one than it was given when
	// another instance has published to the thread meanwhile.
	FlushEnd(ctx context.Context, t id.Thread, end *Record) (Offset, error)
}

// Subscription is a reader of one stream. It is not safe for concurrent use.
type Subscription interface {
	// Next returns at least one record, all that are ready, in order. It waits until there is one, ctx ends (its cause), the
	// bridge closes (ErrClosed) or the subscriber was too slow (ErrSlow: subscribe again from the last offset seen).
	// What is ready is given before ErrClosed. The slice is valid until the next call, and must not be changed.
	Next(ctx context.Context) ([]*Record, error)
	// Replay returns what Next would give, as long as that was kept before Subscribe, and then nothing: it does not wait for what comes. Errors are those of Next.
	Replay(ctx context.Context) ([]*Record, error)
	// Head is the last offset of the stream when it was subscribed to; what comes after the replay lies above it. Zero: the bridge knew nothing of the thread.
	Head() Offset
	// Gap says what of a run (of the whole thread, when r is empty) is missing between the offset that was asked for and the first
	// record replayed, because it had to be dropped. Records of threads that expired or were forgotten are not missed.
	Gap(r id.Run) Gap
	// Close ends the subscription. It may be called more than once.
	Close()
}

// Gap is what a replay misses.
type Gap uint8

const (
	NoGap     Gap = iota
	TokenGap      // tokens only: the messages they belong to are told whole by other records
	RecordGap     // other records: what the client knows is incomplete, it must read the state again
)

// Options bound what a bridge holds. Zero fields mean the defaults.
type Options struct {
	// Records and Bytes bound what is kept for replay, per thread: 10,000 and 64 MiB.
	Records int
	Bytes   int64
	// TTL is how long kept records outlive the last kept run of their thread: 1 h.
	TTL time.Duration
	// LagBytes bounds the memory of what subscribers of a thread have not read: 64 MiB. From a sixteenth of it on the oldest records go to disk; the
	// bound is reached only when the disk is slower than the publisher, or full. Then those that are behind are dropped.
	LagBytes int64
	// SpillBytes bounds what goes to disk, per thread: 1 GiB. Above it the subscriber that is furthest behind is dropped. All threads together
	// take at most eight times as much.
	SpillBytes int64
	// Dir is the folder for it; "": that of the system for temporary files. Files there have no names, so none stay behind.
	Dir string
	// Now is the clock: time.Now.
	Now func() time.Time
	// Metrics count; nil: for nobody.
	Metrics *Metrics
	Log     *slog.Logger // nil: nothing is logged
}

func (o Options) withDefaults() Options {
	o.Records = cmp.Or(o.Records, 10_000)
	o.Bytes = cmp.Or(o.Bytes, 64<<20)
	o.TTL = cmp.Or(o.TTL, time.Hour)
	o.LagBytes = cmp.Or(o.LagBytes, 64<<20)
	o.SpillBytes = cmp.Or(o.SpillBytes, 1<<30)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// Errors of subscriptions.
var (
	ErrClosed = errors.New("the stream was closed because the server shuts down")
	ErrSlow   = errors.New("the subscriber was too slow and has been dropped")
	// ErrInterrupted: what carries the stream is away, or has lost some of it. As after ErrSlow, which it wraps, a reader may subscribe again
	// from the last offset it saw, and Gap tells it what is missing.
	ErrInterrupted = fmt.Errorf("the stream was interrupted: %w", ErrSlow)
)
