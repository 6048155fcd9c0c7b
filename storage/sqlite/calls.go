package sqlite

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"understudy/graph"
	"understudy/id"
)

const (
	callColumns = "call_id, message_id, caller, model, input_tokens, output_tokens, total_tokens"
	insertCall  = "INSERT OR IGNORE INTO model_calls (run_id, " + callColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	callsOfRun  = "SELECT " + callColumns + " FROM model_calls WHERE run_id = ?"
	dropCalls   = "DELETE FROM model_calls WHERE run_id = ?"
)

// PutModelCalls is run.Tx.PutModelCalls.
func (tx *Tx) PutModelCalls(r id.Run, calls []graph.ModelCall) error {
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
	if err := tx.query(callsOfRun, func(s *sqlite.Stmt) error {
		c := graph.ModelCall{ID: s.ColumnText(0), Message: s.ColumnText(1), Caller: graph.Caller(s.ColumnText(2)), Model: s.ColumnText(3)}
		if !s.ColumnIsNull(4) {
			c.Usage = &graph.Usage{Input: s.ColumnInt64(4), Output: s.ColumnInt64(5), Total: s.ColumnInt64(6)}
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
