package postgres

import (
	"fmt"

	"understudy/graph"
	"understudy/id"
)

const (
	callColumns = "call_id, message_id, caller, model, input_tokens, output_tokens, total_tokens"
	insertCall  = "INSERT INTO model_calls (run_id, " + callColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING"
	callsOfRun  = "SELECT " + callColumns + " FROM model_calls WHERE run_id = $1"
	dropCalls   = "DELETE FROM model_calls WHERE run_id = $1"
)

// PutModelCalls is run.Tx.PutModelCalls.
func (tx *Tx) PutModelCalls(r id.Run, calls []graph.ModelCall) error {
	tx.lockRun(r)
	for i := range calls {
		c := &calls[i]
		args := []any{r, c.ID, c.Message, string(c.Caller), c.Model, nil, nil, nil}
		if u := c.Usage; u != nil {
			args[5], args[6], args[7] = u.Input, u.Output, u.Total
		}
		if err := tx.exec(insertCall, args...); err != nil {
			return fmt.Errorf("model calls of run %s: %w", r, err)
		}
	}
	return nil
}

// TakeModelCalls is run.Tx.TakeModelCalls.
func (tx *Tx) TakeModelCalls(r id.Run) (calls []graph.ModelCall, err error) {
	tx.lockRun(r)
	if err := tx.query(callsOfRun, func(row *row) error {
		c := graph.ModelCall{ID: row.text(0), Message: row.text(1), Caller: graph.Caller(row.text(2)), Model: row.text(3)}
		if !row.null(4) {
			c.Usage = &graph.Usage{Input: row.int(4), Output: row.int(5), Total: row.int(6)}
		}
		calls = append(calls, c)
		return nil
	}, r); err != nil {
		return nil, fmt.Errorf("model calls of run %s: %w", r, err)
	}
	if len(calls) > 0 {
		if err := tx.exec(dropCalls, r); err != nil {
			return nil, fmt.Errorf("model calls of run %s: %w", r, err)
		}
	}
	return calls, nil
}
