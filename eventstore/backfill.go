package eventstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/cache"
	"understudy/internal/jsonplus"
	"understudy/internal/logctx"
)

// Archive is a storage whose checkpoints can be recorded later. Every method but Backfill sees committed rows only.
type Archive interface {
	// Unrecorded reports whether the thread has a root checkpoint for which nothing was recorded.
	Unrecorded(ctx context.Context, t id.Thread) (bool, error)
	// Lineage returns all root checkpoints of a thread, in order of their ids.
	Lineage(ctx context.Context, t id.Thread) ([]Link, error)
	// RootCheckpoint returns a root checkpoint by its id; nil when there is none.
	RootCheckpoint(ctx context.Context, t id.Thread, c id.Checkpoint) (*checkpointer.Checkpoint, error)
	// RootValue returns the stored value of a root channel at a version; an empty type when there is none.
	RootValue(ctx context.Context, t id.Thread, channel, version string) (Value, error)
	// Backfill runs fn in a transaction of its own. An error from fn rolls it back. fn must not block, and may be run again
	// after a serialization failure.
	Backfill(ctx context.Context, fn func(BackfillTx) error) error
}

// BackfillTx is the part of a transaction that backfilling uses.
type BackfillTx interface {
	Tx
	// HasRootCheckpoint reports whether the thread has the root checkpoint.
	HasRootCheckpoint(t id.Thread, c id.Checkpoint) (bool, error)
	// DropTranscripts deletes the transcripts of checkpoints, and marks their events as RollBackEvents does.
	DropTranscripts(t id.Thread, checkpoints []id.Checkpoint) error
}

// Link is a root checkpoint in the tree of its thread.
type Link struct {
	ID, Parent id.Checkpoint
	Recorded   bool // it has a transcript row
}

const (
	// batchCheckpoints and batchBytes limit the memory of a batch.
	batchCheckpoints = 200
	batchBytes       = 8 << 20
	// batchTime is the length of a transaction before it yields to other writers.
	batchTime = 25 * time.Millisecond
	// rememberThreads limits the set of complete threads.
	rememberThreads = 1 << 15
)

// Backfiller records the checkpoints that were saved without recording: those of an existing database, or those written while recording did
// not exist. It is safe for concurrent use.
//
// It walks all root checkpoints of a thread, parents first, and passes each to Record, so that the transcript is the same as if they had been
// recorded when they were saved. Checkpoints without a row are still to do, so it works in many small transactions and can be interrupted at
// any point.
type Backfiller struct {
	// Log receives a line for each backfilled thread; nil: none. Set it before use.
	Log *slog.Logger
	// Keys returns which channels hold messages. Set it before use.
	Keys Keys

	store             Archive
	checkpoints, size int           // of a batch
	pause             time.Duration // of a transaction

	// whole are complete threads. A complete thread stays complete: each new checkpoint is recorded in the transaction that saves it.
	whole *cache.Cache[id.Thread, struct{}]

	mu      sync.Mutex
	flights map[id.Thread]chan struct{} // threads being backfilled; closed when done
}

// NewBackfiller returns a Backfiller for a storage.
func NewBackfiller(a Archive) *Backfiller {
	return &Backfiller{
		store: a, checkpoints: batchCheckpoints, size: batchBytes, pause: batchTime,
		whole: cache.New[id.Thread, struct{}](rememberThreads), flights: map[id.Thread]chan struct{}{},
	}
}

// Ensure returns when all root checkpoints of a thread are recorded. Callers are about to read the transcript of one of them, or to save one
// on top of it. Only one caller works on a thread while the others wait; when its context ends, another continues. For a complete thread the
// call is a lookup in memory.
//
// The checkpoint does not narrow the work: a sibling copy, or the original it was copied from, is not among its ancestors.
func (b *Backfiller) Ensure(ctx context.Context, t id.Thread, _ id.Checkpoint) error {
	if b.lacksNothing(t) {
		return nil
	}
	mine := make(chan struct{})
	for {
		busy, whole := b.enter(t, mine)
		if whole {
			return nil
		}
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	done := false // on a panic others must not wait forever
	defer func() { b.leave(t, mine, done) }()
	if err := b.fill(ctx, t); err != nil {
		return fmt.Errorf("backfill thread %s: %w", t, err)
	}
	done = true
	return nil
}

// Reader returns r with a call of Ensure before each read of a thread as a whole or at a checkpoint. If that fails, the reader returns what
// was recorded so far: a thread that cannot be backfilled stays readable.
func (b *Backfiller) Reader(r Reader) Reader { return ensured{r, b} }

type ensured struct {
	Reader
	b *Backfiller
}

func (e ensured) Events(ctx context.Context, t id.Thread, after Seq, limit int) ([]*Event, error) {
	e.ensure(ctx, t, "")
	return e.Reader.Events(ctx, t, after, limit)
}

func (e ensured) Transcripts(ctx context.Context, t id.Thread, checkpoints []id.Checkpoint) (*Transcripts, error) {
	for _, c := range checkpoints {
		e.ensure(ctx, t, c)
	}
	return e.Reader.Transcripts(ctx, t, checkpoints)
}

func (e ensured) ensure(ctx context.Context, t id.Thread, c id.Checkpoint) {
	if err := e.b.Ensure(ctx, t, c); err != nil && ctx.Err() == nil && e.b.Log != nil {
		e.b.Log.ErrorContext(ctx, "backfill failed; thread not recorded", "thread_id", t, "error", err)
	}
}

// enter reports whether a thread is complete; otherwise it returns the channel of the caller that works on it, or nil if
// that is now this caller.
func (b *Backfiller) enter(t id.Thread, mine chan struct{}) (busy chan struct{}, whole bool) {
	if b.lacksNothing(t) {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if busy = b.flights[t]; busy == nil {
		b.flights[t] = mine
	}
	return busy, false
}

// lacksNothing reports whether a thread is known to be complete.
func (b *Backfiller) lacksNothing(t id.Thread) bool {
	_, ok := b.whole.Get(t)
	return ok
}

func (b *Backfiller) leave(t id.Thread, mine chan struct{}, whole bool) {
	if whole {
		b.whole.Put(t, struct{}{}, 1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.flights, t)
	close(mine)
}

// fill records the missing checkpoints of a thread.
func (b *Backfiller) fill(ctx context.Context, t id.Thread) error {
	lacks, err := b.store.Unrecorded(ctx, t)
	if err != nil || !lacks {
		return err
	}
	began := time.Now()
	links, err := b.store.Lineage(ctx, t)
	if err != nil {
		return err
	}
	order, stale := plan(links)
	// They were recorded before their parents, as if the conversation began with them. If this is interrupted, the rest is found again,
	// because it still has an unrecorded parent.
	for rest := stale; len(rest) > 0; {
		n := min(len(rest), b.checkpoints)
		if err := b.store.Backfill(ctx, func(tx BackfillTx) error { return tx.DropTranscripts(t, rest[:n]) }); err != nil {
			return err
		}
		rest = rest[n:]
	}
	known := map[string]struct{}{} // versions of the messages passed to Record
	for rest := order; len(rest) > 0; {
		facts, n, err := b.load(ctx, t, rest, known)
		if err != nil {
			return err
		}
		if err := b.record(ctx, t, facts); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if b.Log != nil {
		b.Log.InfoContext(ctx, "thread backfilled", "thread_id", t, "checkpoints", len(order), "recorded_anew", len(stale), logctx.Took(time.Since(began)))
	}
	return nil
}

// plan returns the checkpoints to record, each after its parent, else in order of their ids: a copy comes after its original. stale are
// those that were recorded before their parent.
func plan(links []Link) (order, stale []id.Checkpoint) {
	at := make(map[id.Checkpoint]int, len(links))
	for i, l := range links {
		at[l.ID] = i
	}
	const (
		met = 1 << iota
		planned
		lacking
	)
	state := make([]uint8, len(links))
	var path []int
	for i := range links {
		// Up to the oldest ancestor that is not planned, and down again. A parent that is visited twice is its own
		// ancestor: no graph writes that, but the loop must end.
		path = path[:0]
		for ok := true; ok && state[i] == 0; i, ok = at[links[i].Parent] {
			state[i] = met
			path = append(path, i)
		}
		for len(path) > 0 {
			i := path[len(path)-1]
			path = path[:len(path)-1]
			state[i] |= planned
			l := links[i]
			if p, ok := at[l.Parent]; l.Recorded && !(ok && state[p]&lacking != 0) {
				continue
			}
			state[i] |= lacking
			order = append(order, l.ID)
			if l.Recorded {
				stale = append(stale, l.ID)
			}
		}
	}
	return order, stale
}

// load reads the facts of the next checkpoints, up to the size of a batch; n is the number of checkpoints consumed. A value shared by
// several checkpoints is read for the first of them.
func (b *Backfiller) load(ctx context.Context, t id.Thread, order []id.Checkpoint, known map[string]struct{}) (facts []Facts, n int, err error) {
	size := 0
	for _, c := range order {
		if n == b.checkpoints || size >= b.size {
			break
		}
		n++
		row, err := b.store.RootCheckpoint(ctx, t, c)
		if err != nil {
			return nil, 0, err
		}
		if row == nil {
			continue // deleted meanwhile
		}
		f, err := b.facts(ctx, row, known)
		if err != nil {
			return nil, 0, fmt.Errorf("checkpoint %s: %w", c, err)
		}
		if f.Messages != nil {
			size += len(f.Messages.Data)
		}
		facts = append(facts, f)
	}
	return facts, n, nil
}

// facts reads the facts of a stored checkpoint.
func (b *Backfiller) facts(ctx context.Context, row *checkpointer.Checkpoint, known map[string]struct{}) (Facts, error) {
	p := &checkpointer.Put{Checkpoint: *row}
	source := gjson.GetBytes(row.Metadata, "source").String()
	if p.Run == "" && source != "update" && source != "fork" {
		// In a database of another program, the run is known only from its metadata, if at all.
		p.Run = id.Run(gjson.GetBytes(row.Metadata, "run_id").String())
	}
	versions := gjson.GetBytes(row.Data, "channel_versions")
	messages := b.Keys.of(row.Metadata)
	for _, channel := range append([]string{messages}, SummaryChannels[:]...) {
		version := versions.Get(gjson.Escape(channel)).String()
		if version == "" {
			continue
		}
		if channel == messages {
			if _, ok := known[version]; ok {
				continue
			}
			known[version] = struct{}{}
		} else if gjson.GetBytes(row.Data, "channel_values."+channel).Exists() {
			continue
		}
		v, err := b.store.RootValue(ctx, row.Thread, channel, version)
		if err != nil {
			return Facts{}, err
		}
		if v.Type == jsonplus.TypeJSON {
			// Converted here and not in the transaction, because other writers wait for that.
			if packed, err := jsonplus.PackJSON(v.Data); err == nil {
				v = Value{Type: jsonplus.TypeMsgpack, Data: packed}
			}
		}
		if v.Type != "" {
			p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: channel, Version: version, Type: v.Type, Data: v.Data})
		}
	}
	return b.Keys.FactsOf(p), nil
}

// record records a batch, in as many transactions as it takes for each to be short.
func (b *Backfiller) record(ctx context.Context, t id.Thread, facts []Facts) error {
	for len(facts) > 0 {
		n := 0
		if err := b.store.Backfill(ctx, func(tx BackfillTx) error {
			began := time.Now()
			for n = 0; n < len(facts) && (n == 0 || time.Since(began) < b.pause); n++ {
				if err := recordOld(tx, t, facts[n]); err != nil {
					return fmt.Errorf("checkpoint %s: %w", facts[n].Checkpoint, err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		facts = facts[n:]
	}
	return nil
}

// recordOld records a checkpoint that was saved earlier, unless it was deleted or saved again since its facts were read.
func recordOld(tx BackfillTx, t id.Thread, f Facts) error {
	if ok, err := tx.HasRootCheckpoint(t, f.Checkpoint); err != nil || !ok {
		return err
	}
	if row, err := tx.TranscriptRow(t, f.Checkpoint); err != nil || row != nil {
		return err
	}
	return Record(tx, f)
}
