package thread

import (
	"encoding/json"
	"fmt"

	"understudy/internal/contain"
	"understudy/internal/fault"
)

// Condition is what must hold of a thread in the transaction that changes it, so that one that was found by it and changed meanwhile is left alone. Zero fields do
// not restrict.
type Condition struct {
	Status   Status
	Metadata json.RawMessage // containment
}

// ready returns whether a row meets the condition; nil is met by all.
func (c *Condition) ready() (func(*Thread) bool, error) {
	if c == nil {
		return func(*Thread) bool { return true }, nil
	}
	match, err := contain.Parse(c.Metadata)
	if err != nil {
		return nil, fault.Newf(fault.Unprocessable, "where: %v", err)
	}
	return func(row *Thread) bool { return (c.Status == "" || c.Status == row.Status) && match.Match(row.Metadata) }, nil
}

// check refuses a change of a thread that does not meet the condition.
func (c *Condition) check(row *Thread) error {
	meets, err := c.ready()
	if err == nil && !meets(row) {
		err = fault.New(fault.Conflict, fmt.Sprintf("Thread with ID %s does not match `where`", row.ID))
	}
	return err
}

// Pruned is what became of the threads to prune, apart from those that do not exist or have active runs.
type Pruned struct {
	Count     int
	Unmatched int // they did not meet the condition
}
