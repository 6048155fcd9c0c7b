package stream

import (
	"context"
	"errors"
	"time"

	"understudy/bridge"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
)

// ordinal is the position of a record in its run: an attempt, and the number of a record of it. Unlike its offset it is the same in the live stream, in the
// database and on the server that executes the run. index 0 is before the first record.
type ordinal struct {
	attempt int
	index   int64
}

func ordinalOf(r *bridge.Record) ordinal { return ordinal{r.Attempt, r.Index} }

func (p ordinal) before(q ordinal) bool {
	return p.attempt < q.attempt || p.attempt == q.attempt && p.index < q.index
}

// position is where a reader of a run is: at a record, which has an offset.
type position struct {
	ordinal
	offset bridge.Offset
}

// gapless returns to one reader of a run each record once, in order. With durable that includes kept records which the live stream does not have: Redis lost
// its memory, or a server died before it had sent what the database has. A hole in the numbers of an attempt is noticed by what comes behind it.
type gapless struct {
	f       *Followers
	run     *run.Run
	durable bool // the database has the records of the run, with their numbers
	known   bool // the place of at is known; else only its offset counts
	at      position
	stored  bridge.Offset // everything that is missing has a higher offset in the database
	// until is the deadline for records that are missing before the awaited one. It spans several calls, because each ends with the next heartbeat.
	awaited ordinal
	until   time.Time
}

// admit returns what is missing before a record, and whether the record itself is for the reader. On an error nothing has changed, and it may be
// called again.
func (g *gapless) admit(ctx context.Context, rec *bridge.Record) (missing []*bridge.Record, give bool, err error) {
	switch {
	case g.seen(rec):
		return nil, false, nil
	case g.continues(rec):
	case !g.showsGaps(rec):
		return nil, true, nil
	default:
		if missing, err = g.fill(ctx, rec); err != nil {
			return nil, false, err
		}
		if n := len(missing); n > 0 {
			g.stored = missing[n-1].Offset
		}
	}
	if numbered(rec) || rec.Kept {
		g.known = numbered(rec)
		g.at = position{ordinal{max(rec.Attempt, g.at.attempt), rec.Index}, rec.Offset}
	}
	return missing, true, nil
}

func numbered(rec *bridge.Record) bool { return rec.Index > 0 }

// seen reports whether the reader has a record already: from the replay, or from the server that executes the run. What a server sends that has lost the
// run and does not know it yet counts as seen.
func (g *gapless) seen(rec *bridge.Record) bool {
	switch {
	case rec.Attempt > 0 && rec.Attempt < g.at.attempt:
		return true
	case rec.Kind == bridge.Terminal:
		return false
	case numbered(rec) && g.known:
		return !g.at.before(ordinalOf(rec))
	}
	return rec.Kept && !after(rec.Offset, g.at.offset)
}

// continues reports whether nothing that the reader wants is missing before a record, as far as is known without the database.
func (g *gapless) continues(rec *bridge.Record) bool {
	switch {
	case !g.durable:
		return true
	case rec.Kind == bridge.Terminal && !g.known && g.at.offset == (bridge.Offset{}):
		return true // the reader wanted only what comes
	case !numbered(rec):
		return false
	case !g.known:
		return rec.Kind != bridge.Terminal
	case rec.Attempt == g.at.attempt, g.at.attempt == 0 && rec.Attempt == 1:
		return rec.Index == g.at.index+1
	}
	return false // an earlier attempt may have kept more than it published
}

// showsGaps reports whether a record proves that what was kept before it should have come. What is missing before other records is noticed at the next one that does.
func (g *gapless) showsGaps(rec *bridge.Record) bool {
	return rec.Kind == bridge.Terminal || numbered(rec) && rec.Kept && !rec.Ephemeral
}

// patienceForRecords is how many leases a reader waits for records that were published but are not in the database yet. Their server writes them as soon
// as it can; this bounds what a mistake costs.
const patienceForRecords = 3

// fill reads the records before one from the database. It waits until all of its attempt are there, for they are written behind the stream, or until
// none can come any more: the run has ended, or another attempt has begun.
func (g *gapless) fill(ctx context.Context, rec *bridge.Record) ([]*bridge.Record, error) {
	if p := (ordinal{rec.Attempt, rec.Index}); g.until.IsZero() || g.awaited != p {
		g.awaited, g.until = p, time.Now().Add(patienceForRecords*g.f.Lease)
	}
	for wait, final := loop.NewBackoff(10*time.Millisecond, time.Second), false; ; {
		missing, complete, err := g.missing(ctx, rec)
		switch {
		case err != nil:
		case complete || final:
			return missing, nil
		case !time.Now().Before(g.until):
			g.f.Log.WarnContext(ctx, "stream records were published but not persisted", "run_id", g.run.ID, "thread_id", g.run.Thread)
			return missing, nil
		default:
			if final, err = g.final(ctx, rec); final {
				continue
			}
		}
		if err != nil && !fault.Is(err, fault.Unavailable) {
			return nil, err
		}
		if err != nil && ctx.Err() == nil {
			g.until = time.Now().Add(patienceForRecords * g.f.Lease) // the database is away: the server of the run cannot write to it either
		}
		if !wait.Sleep(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// final reports whether no more records can come before one: its run has ended or is gone, or another attempt has begun.
func (g *gapless) final(ctx context.Context, rec *bridge.Record) (bool, error) {
	row, err := g.f.Store.Run(ctx, g.run.Thread, g.run.ID)
	if fault.Is(err, fault.NotFound) {
		return true, nil
	}
	return err == nil && (row.Status.Over() || rec.Attempt > 0 && row.Attempt > rec.Attempt), err
}

// missing returns what the database has between where the reader is and a record, and whether that is all.
func (g *gapless) missing(ctx context.Context, rec *bridge.Record) (out []*bridge.Record, complete bool, err error) {
	offset, err := g.storedOffset(ctx)
	if err != nil {
		return nil, false, err
	}
	have, from := int64(0), int64(0) // of the attempt of rec
	if rec.Attempt == g.at.attempt {
		from = g.at.index
	}
	const page = 1000
	for {
		records, err := g.f.Store.Records(ctx, g.run.Thread, offset, page)
		if err != nil {
			return nil, false, err
		}
		for _, r := range records {
			offset = r.Offset
			if !g.between(r, rec) {
				continue
			}
			r.Kept = true
			out = append(out, r)
			if r.Attempt == rec.Attempt && r.Index > from {
				have++
			}
		}
		if len(records) < page {
			return out, numbered(rec) && have >= rec.Index-1-from, nil
		}
	}
}

// storedOffset returns the offset in the database above which everything is that may be missing: that of the record which the reader saw last, unless the
// live stream has moved it to a higher one.
func (g *gapless) storedOffset(ctx context.Context) (bridge.Offset, error) {
	last, err := g.f.recordAt(ctx, g.run, g.at.offset)
	if err == nil && last != nil && ordinalOf(last) == g.at.ordinal {
		return g.at.offset, nil
	}
	return g.stored, err
}

// between reports whether a stored record is of the run, and comes after where the reader is and before rec.
func (g *gapless) between(stored, rec *bridge.Record) bool {
	switch {
	case stored.Run != g.run.ID, stored.Kind == bridge.Terminal:
		return false
	case numbered(stored):
		return (!g.known || g.at.before(ordinalOf(stored))) && (!numbered(rec) || ordinalOf(stored).before(ordinalOf(rec)))
	}
	return after(stored.Offset, g.at.offset) && (!numbered(rec) || after(rec.Offset, stored.Offset))
}

// recordAt returns the record of a run that the database has at an offset; nil: none.
func (f *Followers) recordAt(ctx context.Context, r *run.Run, at bridge.Offset) (*bridge.Record, error) {
	if at == (bridge.Offset{}) {
		return nil, nil
	}
	records, err := f.Store.Records(ctx, r.Thread, bridge.Offset{MS: at.MS, N: at.N - 1}, 1)
	if err != nil || len(records) == 0 || records[0].Offset != at || records[0].Run != r.ID {
		return nil, err
	}
	return records[0], nil
}

// errPassed ends the search of locate.
var errPassed = errors.New("the records searched for have passed")

// locate returns where a reader of a run is that has seen an offset last, with the offset that the database has of it: the live stream may have moved the
// record. known is false when it cannot be found; then the offset is the one given.
func (f *Followers) locate(ctx context.Context, r *run.Run, seen bridge.Offset) (at position, known bool, err error) {
	at.offset = seen
	if seen == (bridge.Offset{}) {
		return at, true, nil
	}
	if !r.Durable() { // the stream of its thread has no other run
		at.attempt, at.index, known = seen.Position()
		return at, known, nil
	}
	if rec, err := f.recordAt(ctx, r, seen); err != nil || rec != nil {
		if rec != nil {
			at.ordinal = ordinalOf(rec)
		}
		return at, at.index > 0, err
	}
	var p ordinal
	if p.attempt, p.index, known = seen.Position(); !known {
		return at, false, nil
	}
	known = false
	err = f.Store.RunRecords(ctx, r.Thread, r.ID, bridge.Offset{}, func(rec *bridge.Record) error {
		attempt, index, numbered := rec.Offset.Position()
		if !known && rec.Offset.MS > seen.MS || numbered && p.before(ordinal{attempt, index}) {
			return errPassed // first: the offset is of another run, which was before
		}
		known, at.offset = true, rec.Offset
		return nil
	})
	if err != nil && !errors.Is(err, errPassed) {
		return at, false, err
	}
	if known {
		at.ordinal = p
	}
	return at, known, nil
}
