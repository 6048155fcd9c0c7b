package execute

import (
	"context"
	"fmt"
	"time"

	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/loop"
	"understudy/run"
	"understudy/run/crash"
)

// turnLimit bounds how long a server claims nothing else because of one suspect. A run that kills its server later than that, and always
// together with others, is not recognized.
const turnLimit = time.Minute

var errServerDied = &graph.Failure{
	Type: run.ServerDied, Message: "The server died 3 times in a row while it executed the run, which is not started again. It may need more memory than there is.",
}

// yield ends the turn of a suspect: it has saved a checkpoint, or has ended.
func (ex *Execution) yield() {
	if ex.yields != nil {
		ex.yields()
	}
}

// starter is a graph that cannot execute anything until its processes are there.
type starter interface {
	// Ready waits until runs can be executed, or it is known why not.
	Ready(ctx context.Context) error
}

// takeTurn waits until a suspect may be executed, and notes in the database that it is, so that the death of the server counts. It does nothing
// for other runs. An error says why the run is not to be executed.
func (x *Executor) takeTurn(ctx context.Context, ex *Execution) error {
	r := ex.Run
	switch {
	case crash.Hopeless(r):
		return errServerDied
	case !crash.Suspect(r):
		return nil
	case crash.Doubted(r):
		select {
		case <-time.After(x.Lease / 2):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		ex.turn = x.Slots.LineUp()
	}
	select {
	case <-ex.turn.First():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if g, ok := x.Graphs.Graph(r.Graph); ok {
		if g, ok := g.(starter); ok {
			_ = g.Ready(ctx) // else the execution ends with the reason
		}
	}
	x.Log.InfoContext(ctx, "run is executed alone: it may have ended a server that executed it", "run_id", r.ID, "thread_id", r.Thread, "suspicion", r.Crashes)
	if err := x.noteTurn(ctx, r, run.Alone); err != nil {
		return err
	}
	ctx, ex.yields = context.WithCancel(ctx)
	ex.turns.Go(func() { x.holdTurn(ctx, ex) })
	return nil
}

// turnTime returns how long a suspect of this attempt is executed alone: it doubles with each attempt from a heartbeat up to turnLimit, so that
// most suspects hold up the queue for a short time only.
func (x *Executor) turnTime(attempt int) time.Duration {
	return min((x.Lease/4)<<min(max(attempt-2, 0), 8), turnLimit)
}

// holdTurn keeps the line until a suspect yields, or has survived for turnTime.
func (x *Executor) holdTurn(ctx context.Context, ex *Execution) {
	defer ex.turn.Leave()
	timer := time.NewTimer(x.turnTime(ex.Run.Attempt))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	if err := x.noteTurn(ctx, ex.Run, run.Company); err != nil && ctx.Err() == nil {
		x.Log.ErrorContext(ctx, "cannot note the turn of a run", "run_id", ex.Run.ID, "error", err)
	}
}

// noteTurn writes the turn of a run. What may pass is tried again until ctx ends.
func (x *Executor) noteTurn(ctx context.Context, r *run.Run, turn run.Turn) error {
	for wait := loop.NewBackoff(50*time.Millisecond, 5*time.Second); ; {
		err := x.Store.Write(ctx, func(tx run.Tx) error {
			row, err := tx.Run(r.Thread, r.ID)
			switch {
			case fault.Is(err, fault.NotFound):
				return ErrGone
			case err != nil:
				return err
			case row.Attempt != r.Attempt || row.Status != run.Running:
				return ErrLost
			case row.Cancel != "":
				return ErrCancelled
			case turn == run.Company && row.Turn != run.Alone: // it has passed
				return nil
			}
			row.Turn = turn
			return tx.UpdateRun(row)
		})
		if !fault.Is(err, fault.Unavailable) {
			if err != nil {
				return fmt.Errorf("note the turn of run %s: %w", r.ID, err)
			}
			return nil
		}
		if !wait.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}
