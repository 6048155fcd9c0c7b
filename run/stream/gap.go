package stream

import (
	"context"
	"errors"

	"understudy/bridge"
	"understudy/run"
	"understudy/run/protocol"
)

// gapRuns bounds how many runs of a thread are looked at for events that are gone; gapPage is how many are read at a time.
const (
	gapRuns = 1000
	gapPage = 20
)

// resumed returns the first events after the seq from which a reader resumes, after a Gap if some that came before them are gone: their run has expired or was
// deleted, or was not to be kept.
func (er *eventReader) resumed(ctx context.Context, events []protocol.Event) ([]protocol.Event, error) {
	gone, err := er.gone(ctx)
	if err != nil {
		return nil, err
	}
	since := er.since
	if er.since = 0; !gone {
		return events, nil
	}
	gap := protocol.Event{Gap: &protocol.Gap{Since: since, First: er.projection.First()}}
	return append([]protocol.Event{gap}, events...), nil
}

// gone reports whether events after er.since are gone. The rows of runs outlive their records, and say when they began and ended, which their events are numbered by.
// For rows that were deleted the thread does.
func (er *eventReader) gone(ctx context.Context) (bool, error) {
	deleted, err := er.f.Store.EventsGone(ctx, er.thread)
	if err != nil {
		return false, err
	}
	if !deleted.IsZero() && er.since < deleted.UnixMicro() {
		return true, nil
	}
	met := er.projection.Met() || er.since == deleted.UnixMicro() // the last event of a run may be deleted that the reader has seen
	for offset := 0; offset < gapRuns; offset += gapPage {
		runs, err := er.f.Store.Runs(ctx, er.thread, run.Query{Limit: gapPage, Offset: offset})
		if err != nil {
			return false, err
		}
		for _, r := range runs { // the newest first
			gone, last, err := er.goneOf(ctx, r, met)
			if err != nil || gone || last {
				return gone, err
			}
		}
		if len(runs) < gapPage {
			return !met, nil
		}
	}
	return true, nil
}

// goneOf is gone for one run. last: earlier runs need not be looked at.
func (er *eventReader) goneOf(ctx context.Context, r *run.Run, met bool) (gone, last bool, err error) {
	if r.StartedAt.IsZero() {
		return false, false, nil
	}
	over, kept := r.Status.Over(), r.Durable()
	began, ended := r.StartedAt.UnixMicro(), r.EndedAt.UnixMicro()
	switch {
	case over && ended <= er.since:
		// The reader has seen its last event; else no run had the one that it names.
		return ended < er.since && !met, true, nil
	case !kept:
		return true, true, nil
	case began <= er.since:
		return !met, true, nil // the reader has seen a part of it
	case met || !over:
		return false, false, nil // records expire in the order of runs
	}
	err = er.f.Store.RunRecords(ctx, er.thread, r.ID, bridge.Offset{}, func(*bridge.Record) error { return errKept })
	switch {
	case errors.Is(err, errKept):
		return false, false, nil
	case err != nil:
		return false, false, err
	}
	return true, true, nil
}

var errKept = errors.New("records are kept")
