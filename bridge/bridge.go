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
	"understudy/internal/memlimit"
)

// Offset is the position of a record in the stream of its thread. On the wire it is "<ms>-<n>". Offsets of a thread only
// grow, even across restarts and when the clock goes back.
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

// The N of a numbered record is its position in its run, in steps of stride, so that other records of the thread fit in between. A record that comes
// to a stream behind those of a server whose clock is ahead gets a later MS and keeps its N, so an offset identifies its record.
const (
	stride      = 1 << 10
	maxIndex    = 1<<28 - 1
	maxAttempts = 1 << 15 // N stays below 2^53, for Redis counts in doubles
)

// Position returns the attempt and the index of a numbered record. ok is false for the offset of another record.
func (o Offset) Position() (attempt int, index int64, ok bool) {
	if o.N <= 0 || o.N%stride != 0 {
		return 0, 0, false
	}
	at := o.N / stride
	return int(at/(maxIndex+1)) + 1, at % (maxIndex + 1), true
}

// After returns the offset that a record gets behind one with the offset last, at a time in ms.
func (r *Record) After(last Offset, now int64) Offset {
	o := Offset{MS: max(last.MS, now)}
	switch {
	case r.Attempt > 0 && r.Index > 0:
		o.N = (int64(min(r.Attempt, maxAttempts)-1)*(maxIndex+1) + min(r.Index, maxIndex)) * stride
		if o.MS == last.MS && o.N <= last.N {
			o.MS++
		}
	case o.MS == last.MS:
		o.N = last.N + 1
	}
	return o
}

// String returns the wire form, "<ms>-<n>".
func (o Offset) String() string {
	b := strconv.AppendInt(make([]byte, 0, 24), o.MS, 10)
	return string(strconv.AppendInt(append(b, '-'), o.N, 10))
}

// Kind is the class of a record, as far as subscribers must distinguish them.
type Kind uint8

const (
	Data     Kind = iota // anything a client sees
	Token                // a piece of a message: evicted first
	Terminal             // the run has ended; its last record
)

// Record is one entry of the stream of a thread. It is immutable once published, and shared by all subscribers.
type Record struct {
	Offset Offset // assigned by Publish
	Run    id.Run
	Kind   Kind
	Event  string // event name on the v1 wire, namespace included (`updates|child:…`)
	Data   []byte // JSON
	// Kept reports that the record belongs to a resumable run and stays available for replay after delivery.
	Kept bool
	// Stored reports that a kept record is written to the database too, from which readers that come back get what the stream does not have any more.
	Stored bool
	// Ephemeral records are never replayed, even if those of their run are (error events).
	Ephemeral bool
	// Checkpoint is the root checkpoint whose messages a root `values` record shows; "" for all other records, and when nothing is
	// saved. With Ahead the values may be newer than it, and "" is the state before the first checkpoint of the thread. For root
	// `updates` that may condense messages it is the checkpoint before their step, with Ahead.
	Checkpoint id.Checkpoint
	Ahead      bool
	// Summarizer marks a piece of a message from a summarizer, which readers of transcripts do not see.
	Summarizer bool
	// Attempt of the run that emitted the record; 0: not known. Where attempts overlap, records of an older attempt are left out once a newer one
	// has begun.
	Attempt int
	// Index numbers the records of an attempt, from 1, so that a reader can detect a missing one. 0: not numbered.
	Index int64
	// Frame is Event and Data encoded for SSE (without id and closing blank line), when many readers are expected; nil: the writer of the response
	// encodes it.
	Frame []byte
}

// Bridge has a live stream per thread. Implementations are safe for concurrent use.
type Bridge interface {
	// Publish appends records in order, assigns them offsets above all earlier ones, and wakes subscribers. It never waits for a
	// subscriber. The caller keeps the slice. After Close it returns ErrClosed.
	Publish(ctx context.Context, t id.Thread, records []*Record) error
	// Subscribe opens the stream of a thread. The subscriber receives every record published after the call. If after is
	// not nil, it first receives the kept records above *after. The caller must close the subscription. After Close of the
	// bridge it returns ErrClosed.
	Subscribe(ctx context.Context, t id.Thread, after *Offset) (Subscription, error)
	// Advance makes sure that coming offsets of the thread exceed ms.
	Advance(t id.Thread, ms int64)
	// Forget drops the kept records of a run that was deleted or rolled back. Existing subscribers may still receive them. Offsets continue from where
	// they were.
	Forget(ctx context.Context, t id.Thread, r id.Run) error
	// ForgetThread is Forget for all runs of a thread that was deleted, except those that have kept records above an offset: they may be of a thread that
	// was created with its ID since.
	ForgetThread(ctx context.Context, t id.Thread, until Offset) error
	// Close ends all subscriptions with ErrClosed. They receive no terminal record.
	Close() error
}

// Remote is a Bridge that uses a service which may be slow or unavailable.
type Remote interface {
	Bridge
	// Flush waits until the service has accepted what was published to a thread before the call, and returns nil. While the service is known to
	// be unavailable it returns ErrInterrupted at once. When ctx ends it returns its cause.
	Flush(ctx context.Context, t id.Thread) error
	// FlushEnd is Flush after a Terminal record was published, and returns the record's offset in the service, which differs from the assigned one
	// if another server has published to the thread meanwhile.
	FlushEnd(ctx context.Context, t id.Thread, end *Record) (Offset, error)
}

// Subscription is a reader of one stream. It is not safe for concurrent use.
type Subscription interface {
	// Next returns at least one record, all that are ready, in order. It waits until there is one, ctx ends (its cause), the
	// bridge closes (ErrClosed) or the subscriber was too slow (ErrSlow: subscribe again from the last offset seen). Records
	// that are ready are returned before ErrClosed. The slice is valid until the next call, and must not be modified.
	Next(ctx context.Context) ([]*Record, error)
	// Replay returns like Next, but only records kept before Subscribe, and then nothing: it does not wait for new records. Errors are those of Next.
	Replay(ctx context.Context) ([]*Record, error)
	// Head is the last offset of the stream at the time of Subscribe; records after the replay have higher ones. Zero: the bridge did not know the
	// thread.
	Head() Offset
	// Gap reports which records of a run (of the whole thread, when r is empty) were dropped between the requested offset and the
	// first record replayed. Records of threads that expired or were forgotten do not count.
	Gap(r id.Run) Gap
	// Close ends the subscription. It may be called more than once.
	Close()
}

// Gap classifies the records missing from a replay.
type Gap uint8

const (
	NoGap     Gap = iota
	TokenGap      // tokens only: other records hold their complete messages
	RecordGap     // other records: the client's state is incomplete; it must be read again
)

// Options are the limits of a bridge. Zero fields mean the defaults.
type Options struct {
	// Records and Bytes limit the records kept for replay, per thread: 10,000 and 64 MiB.
	Records int
	Bytes   int64
	// Total limits their bytes over all threads: 64 MiB, at most an eighth of Go's memory limit.
	Total int64
	// TTL is how long kept records outlive the last kept run of their thread: 1 h.
	TTL time.Duration
	// LagBytes limits the memory of unread records of a thread: 64 MiB. Above a sixteenth of it the oldest records move to disk. The limit is
	// reached only when the disk is slower than the publisher, or full. Then the subscribers that are behind are dropped.
	LagBytes int64
	// SpillBytes limits the bytes on disk, per thread: 1 GiB. Above it the subscriber that is furthest behind is dropped. All threads together
	// use at most eight times as much.
	SpillBytes int64
	// Dir is the folder for spill files; "": the system's temporary folder. The files are unlinked when created, so none
	// stay behind.
	Dir string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Metrics count events of the bridge; nil: not counted.
	Metrics *Metrics
	Log     *slog.Logger // nil: nothing is logged
}

func (o Options) withDefaults() Options {
	o.Records = cmp.Or(o.Records, 10_000)
	o.Bytes = cmp.Or(o.Bytes, 64<<20)
	o.Total = cmp.Or(o.Total, memlimit.Share(8, 64<<20))
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
	// ErrInterrupted: the service that carries the stream is unavailable, or has lost records. As after ErrSlow, which it wraps, a reader may
	// subscribe again from the last offset it saw, and Gap reports what is missing.
	ErrInterrupted = fmt.Errorf("the stream was interrupted: %w", ErrSlow)
)
