package stream

import (
	"context"
	"fmt"
	"slices"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// elsewhere is the event of a terminal record that stands for the end of a run whose records went over another instance's bridge, and the code
// of the event that readers get then.
const elsewhere = "stream_elsewhere"

// deletedRuns is the event of a record that lets followers look whether their run, or their thread, was deleted. It is not sent to clients.
const deletedRuns = "runs_deleted"

// DeletedRuns is the record that ends followers of what is gone, while those of a thread that was created with the ID of the deleted one continue: each
// looks for itself. To servers of a version before, which do not know the event, it is the end of all runs of the thread, as it has no run.
func DeletedRuns() *bridge.Record {
	return &bridge.Record{Event: deletedRuns, Kind: bridge.Terminal, Ephemeral: true}
}

// isDeleted reports whether the run is gone.
func (rf *runFollower) isDeleted(ctx context.Context) (bool, error) {
	_, err := rf.f.Store.Run(ctx, rf.run.Thread, rf.run.ID)
	if fault.Is(err, fault.NotFound) {
		return true, nil
	}
	return false, err
}

// facts are what is known of the end of a run that another instance executed: that its records are not to be had here; of a resumable run those
// that the database has, above an offset, else its values and interrupts, if it was to stream them; and its error.
func (f *Followers) facts(ctx context.Context, t id.Thread, r id.Run, seen bridge.Offset) ([]*bridge.Record, error) {
	out := []*bridge.Record{{Run: r, Event: "gap", Ephemeral: true, Data: fmt.Appendf(nil,
		`{"code":%q,"run_id":%q,"message":"Another server executed the run, and without Redis its stream is not shared.","recovery":"reload_durable_state"}`, elsewhere, r)}}
	row, err := f.Store.Run(ctx, t, r)
	if fault.Is(err, fault.NotFound) {
		return out, nil // rolled back, or it went with its thread
	}
	if err != nil {
		return nil, err
	}
	if row.Kwargs.Resumable {
		records, err := f.Store.Records(ctx, t, seen, 0)
		if err != nil {
			return nil, fmt.Errorf("replay run %s: %w", r, err)
		}
		for _, rec := range records {
			if rec.Run == r && rec.Kind != bridge.Terminal {
				rec.Kept = true
				out = append(out, rec)
			}
		}
	} else if slices.Contains(row.Kwargs.Modes, "values") {
		values, err := f.lastValues(ctx, row)
		if err != nil {
			return nil, err
		}
		out = append(out, values...)
	}
	if row.Error != nil {
		out = append(out, &bridge.Record{Run: r, Event: "error", Data: row.Error, Ephemeral: true})
	}
	return out, nil
}

// lastValues are the values that a run has left in its thread, and its interrupts, as its stream would have ended with them.
func (f *Followers) lastValues(ctx context.Context, r *run.Run) (out []*bridge.Record, err error) {
	row, err := f.Store.Thread(ctx, r.Thread)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if row.Head != "" {
		values, err := f.Snapshots.Values(ctx, checkpointer.Key{Thread: r.Thread, ID: row.Head})
		if err != nil {
			return nil, fmt.Errorf("values of thread %s: %w", r.Thread, err)
		}
		out = append(out, &bridge.Record{Run: r.ID, Event: "values", Data: values, Checkpoint: row.Head})
	}
	if interrupts := interruptsOf(row); interrupts != nil {
		out = append(out, &bridge.Record{Run: r.ID, Event: "values", Data: interrupts})
	}
	return out, nil
}

// resultOf is the outcome of a run that another instance executed.
func (f *Followers) resultOf(ctx context.Context, r *run.Run, look overlay.Look) (run.Result, error) {
	if r.Kwargs.Temporary {
		return run.Result{Error: run.ErrorJSON("ResultUnavailable", "Another server executed the run, and without Redis its result is not shared. "+
			"It was not to be kept: give the run a thread, or on_completion \"keep\".")}, nil
	}
	over, err := f.Join(ctx, r.Thread, r.ID)
	if fault.Is(err, fault.NotFound) { // rolled back
		return f.threadValues(ctx, r.Thread, look)
	}
	if err != nil {
		return run.Result{}, err
	}
	defer over.Close(false)
	return over.Result(ctx)
}
