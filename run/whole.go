package run

import (
	"context"
	"time"

	"understudy/bridge"
	"understudy/internal/fault"
)

// mark is a place in the kept records of a run: after number index of an attempt, at an offset.
type mark struct {
	attempt int
	index   int64
	offset  bridge.Offset
}

// whole returns to one reader of a run each kept record once, in order, also those that the live stream does not have: Redis lost its memory, or a server
// died before it had sent what the database has. Records are numbered in their attempt, so a hole is noticed by what comes behind it.
type whole struct {
	f     *followers
	run   *Run
	known bool // at is where the reader is; else only its offset counts
	at    mark
	// until is how long one waits for what is missing before the record awaited: over several calls, for each ends with the next heartbeat.
	awaited place
	until   time.Time
}

// place is the number of a record in an attempt.
type place struct {
	attempt int
	index   int64
}

// admit returns what is missing before a record, and whether the record itself is for the reader. On an error nothing has changed, and it may be
// called again.
func (w *whole) admit(ctx context.Context, rec *bridge.Record) (missing []*bridge.Record, give bool, err error) {
	end := rec.Kind == bridge.Terminal
	switch {
	case rec.Attempt > 0 && rec.Attempt < w.at.attempt:
		return nil, false, nil // from a server that does not know yet that it has lost the run
	case rec.Kept && !after(rec.Offset, w.at.offset) && !end:
		return nil, false, nil // the replay had it
	case w.known && rec.Index > 0 && rec.Attempt == w.at.attempt && rec.Index <= w.at.index && !end:
		return nil, false, nil // the same record under another offset: Redis got it after records of another instance
	case !rec.Kept && !end, rec.Ephemeral:
		return nil, true, nil
	case rec.Index == 0 && !end, !w.known && rec.Index > 0, w.follows(rec):
	case end && !w.known && w.at.offset == (bridge.Offset{}): // it wanted only what comes, and that is all
	default:
		if missing, err = w.fill(ctx, rec); err != nil {
			return nil, false, err
		}
	}
	w.known = rec.Index > 0
	w.at = mark{max(rec.Attempt, w.at.attempt), rec.Index, rec.Offset}
	return missing, true, nil
}

// follows reports whether a record is the next one.
func (w *whole) follows(rec *bridge.Record) bool {
	if rec.Attempt == w.at.attempt || w.at.attempt == 0 && rec.Attempt == 1 {
		return w.known && rec.Index == w.at.index+1
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
		w.awaited, w.until = p, time.Now().Add(patienceForRecords*w.f.lease)
	}
	for wait, final := 10*time.Millisecond, false; ; wait = min(2*wait, time.Second) {
		missing, complete, err := w.missing(ctx, rec)
		if err == nil && (complete || final) {
			return missing, nil
		}
		if err == nil && !time.Now().Before(w.until) {
			w.f.log.WarnContext(ctx, "stream records were published but not persisted", "run_id", w.run.ID, "thread_id", w.run.Thread)
			return missing, nil
		}
		if err == nil {
			var row *Run
			row, err = w.f.store.Run(ctx, w.run.Thread, w.run.ID)
			if final = fault.Is(err, fault.NotFound) || err == nil && (row.Status.Over() || rec.Attempt > 0 && row.Attempt > rec.Attempt); final {
				continue
			}
		}
		if err != nil && !fault.Is(err, fault.Unavailable) {
			return nil, err
		}
		if err != nil && ctx.Err() == nil {
			w.until = time.Now().Add(patienceForRecords * w.f.lease) // who cannot be read cannot be written to
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
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
	const page = 1000
	for offset := w.at.offset; ; {
		records, err := w.f.store.Records(ctx, w.run.Thread, offset, page)
		if err != nil {
			return nil, false, err
		}
		for _, r := range records {
			offset = r.Offset
			if r.Run != w.run.ID || r.Kind == bridge.Terminal || rec.Index > 0 && !after(rec.Offset, r.Offset) {
				continue
			}
			r.Kept = true
			out = append(out, r)
			if r.Attempt == rec.Attempt && r.Index > from && r.Index < rec.Index {
				have++
			}
		}
		if len(records) < page {
			return out, rec.Index > 0 && have >= rec.Index-1-from, nil
		}
	}
}

// markOf returns where a reader is that has seen an offset last.
func (f *followers) markOf(ctx context.Context, r *Run, seen bridge.Offset) (at mark, known bool, err error) {
	if seen == (bridge.Offset{}) {
		return at, true, nil
	}
	at.offset = seen
	records, err := f.store.Records(ctx, r.Thread, bridge.Offset{MS: seen.MS, N: seen.N - 1}, 1)
	if err != nil || len(records) == 0 || records[0].Offset != seen || records[0].Run != r.ID {
		return at, false, err
	}
	return mark{records[0].Attempt, records[0].Index, seen}, records[0].Index > 0, nil
}
