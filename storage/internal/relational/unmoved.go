package relational

import "fmt"

// CountUnmoved counts what an import leaves in a database: API keys that were not revoked, crons, and runs.
const CountUnmoved = "SELECT (SELECT count(*) FROM api_keys WHERE revoked_at IS NULL), (SELECT count(*) FROM crons), (SELECT count(*) FROM runs)"

// UnmovedNotes says what an import leaves in a database, and what to do about it.
func UnmovedNotes(keys, crons, runs int) (notes []string) {
	if keys > 0 {
		notes = append(notes, fmt.Sprintf("%d API keys are left out: clients get 401 until each has a new one (understudy keys create)", keys))
	}
	if crons > 0 {
		notes = append(notes, fmt.Sprintf("%d crons are left out: nothing runs on schedule until they are created again (POST /runs/crons)", crons))
	}
	if runs > 0 {
		notes = append(notes, fmt.Sprintf("%d runs are left out: what they did is in the threads, and those that have not ended do not continue", runs))
	}
	return notes
}
