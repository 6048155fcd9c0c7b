package relational

import (
	"context"
	"fmt"
	"time"

	"understudy/graph"
	"understudy/id"
)

// callColumns are the columns of model_calls without the run.
const callColumns = "call_id, message_id, caller, model, input_tokens, output_tokens, total_tokens, took, number"

var (
	insertCall = same(insertInto("model_calls", "run_id, "+callColumns) + " ON CONFLICT DO NOTHING")
	CallsOfRun = same("SELECT " + callColumns + " FROM model_calls WHERE run_id = $1")
	DropCalls  = same("DELETE FROM model_calls WHERE run_id = $1")
)

// ScanCall reads a row of callColumns.
func ScanCall(r Row) graph.ModelCall {
	c := graph.ModelCall{ID: r.Text(0), Message: r.Text(1), Caller: graph.Caller(r.Text(2)), Model: r.Text(3)}
	if !r.Null(4) {
		c.Usage = &graph.Usage{Input: r.Int(4), Output: r.Int(5), Total: r.Int(6)}
	}
	c.Took, c.Number = time.Duration(r.Int(7))*time.Microsecond, int(r.Int(8))
	return c
}

// PutModelCalls implements run.Tx.
func (tx *Tx) PutModelCalls(r id.Run, calls []graph.ModelCall) error {
	tx.LockRun(r)
	for i := range calls {
		c := &calls[i]
		args := []any{r, c.ID, c.Message, string(c.Caller), c.Model, nil, nil, nil, nil, nil}
		if u := c.Usage; u != nil {
			args[5], args[6], args[7] = u.Input, u.Output, u.Total
		}
		if c.Took > 0 {
			args[8] = c.Took.Microseconds()
		}
		if c.Number > 0 {
			args[9] = c.Number
		}
		if err := tx.Exec(insertCall, args...); err != nil {
			return fmt.Errorf("model calls of run %s: %w", r, err)
		}
	}
	return nil
}

// TakeModelCalls implements run.Tx.
func (tx *Tx) TakeModelCalls(r id.Run) ([]graph.ModelCall, error) {
	tx.LockRun(r)
	calls, err := all(tx, CallsOfRun, ScanCall, r)
	if err == nil && len(calls) > 0 {
		err = tx.Exec(DropCalls, r)
	}
	if err != nil {
		return nil, fmt.Errorf("model calls of run %s: %w", r, err)
	}
	return calls, nil
}

// ModelCalls implements run.Store.
func (s runStore) ModelCalls(ctx context.Context, r id.Run) ([]graph.ModelCall, error) {
	calls, err := from(ctx, s.db.Read, func(q Querier) ([]graph.ModelCall, error) { return all(q, CallsOfRun, ScanCall, r) })
	if err != nil {
		return nil, fmt.Errorf("model calls of run %s: %w", r, err)
	}
	return calls, nil
}
