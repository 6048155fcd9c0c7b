package relational

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"understudy/id"
)

const isActive = "EXISTS (SELECT 1 FROM runs WHERE runs.run_id = runs_of.run_id AND runs.status IN ('pending', 'running'))"

var (
	// holdIdentity lets one transaction at a time count the runs of an identity and add to them.
	holdIdentity = differing("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "")
	insertRunOf  = same(insertInto("runs_of", "identity, run_id") + " ON CONFLICT DO NOTHING")
	// RunsOf and ForgetRunsOf read the rows of one identity and look up each of their runs.
	RunsOf       = same("SELECT run_id FROM runs_of WHERE identity = $1 AND " + isActive)
	ForgetRunsOf = same("DELETE FROM runs_of WHERE identity = $1 AND NOT " + isActive)
)

// identityKey is an identity of any text as a column.
func identityKey(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(sum[:])
}

// RunsOf implements run.Tx.
func (tx *Tx) RunsOf(identity string) ([]id.Run, error) {
	key := identityKey(identity)
	if _, err := tx.Affected(holdIdentity, key); err != nil {
		return nil, fmt.Errorf("runs of an identity: %w", err)
	}
	runs, err := all(tx, RunsOf, text[id.Run], key)
	if err != nil {
		return nil, fmt.Errorf("runs of an identity: %w", err)
	}
	return runs, nil
}

// AddRunOf implements run.Tx.
func (tx *Tx) AddRunOf(identity string, r id.Run) error {
	key := identityKey(identity)
	if err := tx.Exec(ForgetRunsOf, key); err != nil {
		return fmt.Errorf("runs of an identity: %w", err)
	}
	if err := tx.Exec(insertRunOf, key, r); err != nil {
		return fmt.Errorf("runs of an identity: %w", err)
	}
	return nil
}
