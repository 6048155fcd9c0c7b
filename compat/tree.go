package compat

import (
	"strconv"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
)

const (
	defaultSteps = 1000
	maxSteps     = 10_000
)

// TreeQuery reads the query of the route that lists the checkpoints of a thread. get returns all values of a parameter; the last one counts.
func TreeQuery(get func(name string) []string) (before id.Checkpoint, limit int, err error) {
	limit = defaultSteps
	if given := get("limit"); len(given) > 0 {
		limit, err = strconv.Atoi(given[len(given)-1])
		if err != nil || limit < 1 || limit > maxSteps {
			return "", 0, fault.Newf(fault.Unprocessable, "Invalid limit: a number from 1 to %d", maxSteps)
		}
	}
	if given := get("before"); len(given) > 0 {
		if before = id.Checkpoint(id.Canonical(given[len(given)-1])); before == "" {
			return "", 0, fault.New(fault.Unprocessable, "Invalid before: must be a UUID")
		}
	}
	return before, limit, nil
}

// AppendStep appends a checkpoint without its values.
func AppendStep(dst []byte, s thread.Step) []byte {
	r := newRow(dst, nil)
	r.text("checkpoint_id", string(s.ID))
	r.textOrNull("parent_checkpoint_id", string(s.Parent))
	if at, ok := s.ID.Time(); ok {
		r.time("created_at", at)
	} else {
		r.raw("created_at", []byte("null"))
	}
	r.raw("step", strconv.AppendInt(nil, int64(s.Number), 10))
	r.text("source", s.Source)
	r.textOrNull("run_id", string(s.Run))
	return r.end()
}
