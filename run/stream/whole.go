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

// place is the position of a record in its run: an attempt, and the number of a record of it. Unlike its offset it is the same in the live stream, in the
// database and on the server that executes the run. index 0 is before the first record.
type place struct {
	attempt int
	index   int64
}

func placeOf(r *bridge.Record) place { return place{r.Attempt, r.Index} }

func (p place) before(q place) bool {
	return p.attempt < q.attempt || p.attempt == q.attempt && p.index < q.index
}

// mark is where a reader of a run is: at a record, which has an offset.
type mark struct {
	place
	offset bridge.Offset
}

// whole returns to one reader of a run each record once, in order. With durable that includes kept records which the live stream does not have: Redis lost
// its memory, or a server died before it had sent what the database has. A hole in the numbers of an attempt is noticed by what comes behind it.
type whole struct {
	f       *Followers
	run     *run.Run
	durable bool // the database has the records of the run, with their numbers
	known   bool // the place of at is known; else only its offset counts
	at      mark
	stored  bridge.Offset // everything that is missing has a higher offset in the database
	// until is how long one waits for what is missing before the record awaited: over several calls, for each ends with the next heartbeat.
	awaited place
	until   time.Time
}

// admit returns what is missing before a record, and whether the record itself is for the reader. On an error nothing has changed, and it may be
// called again.
func (w *whole) admit(ctx context.Context, rec *bridge.Record) (missing []*bridge.Record, give bool, err error) {
	end := rec.Kind == bridge.Terminal
	p := placeOf(rec)
	numbered := p.index > 0
	switch {
	case rec.Attempt > 0 && rec.Attempt < w.at.attempt:
		return nil, false, nil // from a server that does not know yet that it has lost the run
	case end:
	case numbered && w.known && !w.at.before(p):
		return nil, false, nil // the replay had it, or the server that executes the run
	case !(numbered && w.known) && rec.Kept && !after(rec.Offset, w.at.offset):
		return nil, false, nil // the replay had it
	}
	switch {
	case !w.durable, numbered && !w.known && !end, numbered && w.follows(p):
	case end && !w.known && w.at.offset == (bridge.Offset{}): // it wanted only what comes, and that is all
	case !end && (!numbered || !rec.Kept || rec.Ephemeral):
		return nil, true, nil // what is missing before it is noticed by the next record
	default:
		if missing, err = w.fill(ctx, rec); err != nil {
			return nil, false, err
		}
		if n := len(missing); n > 0 {
			w.stored = missing[n-1].Offset
		}
	}
	if numbered || rec.Kept {
		w.known = numbered
		w.at = mark{place{max(rec.Attempt, w.at.attempt), rec.Index}, rec.Offset}
	}
	return missing, true, nil
}

// follows reports whether a place is the next one.
func (w *whole) follows(p place) bool {
	if p.attempt == w.at.attempt || w.at.attempt == 0 && p.attempt == 1 {
		return w.known && p.index == w.at.index+1
	}
	return false // an earlier attempt may have kept more than it published
}

// patienceForRecords is how many leases a reader waits for records that were published but are not in the database yet. Their server writes them as soon
// as it can; this bounds what a mistake costs.
const patienceForRecords = 3

// fill reads the records before one from the database. It waits until all of its attempt are there, for they are written behind the stream, or until
// none can come any more: the run has ended, or another attempt has begun.
func (w *whole) fill(ctx context.Context, rec *bridge.Record) ([]*bridge.Record, error) {
	if p := (place{rec.Attempt, rec.Index}); w.until.IsZero() || w.awaited != p {
		w.awaited, w.until = p, time.Now().Add(patienceForRecords*w.f.Lease)
	}
	for wait, final := loop.NewBackoff(10*time.Millisecond, time.Second), false; ; {
		missing, complete, err := w.missing(ctx, rec)
		if err == nil && (complete || final) {
			return missing, nil
		}
		if err == nil && !time.Now().Before(w.until) {
			w.f.Log.WarnContext(ctx, "stream records were published but not persisted", "run_id", w.run.ID, "thread_id", w.run.Thread)
			return missing, nil
		}
		if err == nil {
			var row *run.Run
			row, err = w.f.Store.Run(ctx, w.run.Thread, w.run.ID)
			if final = fault.Is(err, fault.NotFound) || err == nil && (row.Status.Over() || rec.Attempt > 0 && row.Attempt > rec.Attempt); final {
				continue
			}
		}
		if err != nil && !fault.Is(err, fault.Unavailable) {
			return nil, err
		}
		if err != nil && ctx.Err() == nil {
			w.until = time.Now().Add(patienceForRecords * w.f.Lease) // the database is away: the server of the run cannot write to it either
		}
		if !wait.Sleep(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// missing returns what the database has between where the reader is and a record, and whether that is all.
func (w *whole) missing(ctx context.Context, rec *bridge.Record) (out []*bridge.Record, complete bool, err error) {
	have, from := int64(0), int64(0)
	if rec.Attempt == w.at.attempt {
		from = w.at.index
	}
	// The live stream may have moved what the reader saw last to a higher offset than the database has.
	offset := w.stored
	if same, err := w.f.recordAt(ctx, w.run, w.at.offset); err != nil {
		return nil, false, err
	} else if same != nil && placeOf(same) == w.at.place {
		offset = w.at.offset
	}
	const page = 1000
	for {
		records, err := w.f.Store.Records(ctx, w.run.Thread, offset, page)
		if err != nil {
			return nil, false, err
		}
		for _, r := range records {
			offset = r.Offset
			p := placeOf(r)
			switch {
			case r.Run != w.run.ID, r.Kind == bridge.Terminal:
			case p.index > 0 && (w.known && !w.at.before(p) || rec.Index > 0 && !p.before(placeOf(rec))):
			case p.index == 0 && (!after(r.Offset, w.at.offset) || rec.Index > 0 && !after(rec.Offset, r.Offset)):
			default:
				r.Kept = true
				out = append(out, r)
				if p.attempt == rec.Attempt && p.index > from {
					have++
				}
			}
		}
		if len(records) < page {
			return out, rec.Index > 0 && have >= rec.Index-1-from, nil
		}
	}
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
func (f *Followers) locate(ctx context.Context, r *run.Run, seen bridge.Offset) (at mark, known bool, err error) {
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
			at.place = placeOf(rec)
		}
		return at, at.index > 0, err
	}
	var p place
	if p.attempt, p.index, known = seen.Position(); !known {
		return at, false, nil
	}
	known = false
	err = f.Store.RunRecords(ctx, r.Thread, r.ID, bridge.Offset{}, func(rec *bridge.Record) error {
		attempt, index, numbered := rec.Offset.Position()
		if !known && rec.Offset.MS > seen.MS || numbered && p.before(place{attempt, index}) {
			return errPassed // first: the offset is of another run, which was before
		}
		known, at.offset = true, rec.Offset
		return nil
	})
	if err != nil && !errors.Is(err, errPassed) {
		return at, false, err
	}
	if known {
		at.place = p
	}
	return at, known, nil
}
