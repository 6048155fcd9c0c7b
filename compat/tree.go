package compat

import (
	"understudy/id"
	"understudy/thread"
)

const (
	defaultSteps = 1000
	maxSteps     = 10_000
)

// TreeQuery reads the query of the route that lists the checkpoints of a thread. get returns all values of a parameter; the last one counts.
func TreeQuery(get func(name string) []string) (before id.Checkpoint, limit int, err error) {
	if limit, err = params(get).limit(defaultSteps, maxSteps); err != nil {
		return "", 0, err
	}
	uuid, err := params(get).before()
	return id.Checkpoint(uuid), limit, err
}

// AppendStep appends a checkpoint without its values.
func AppendStep(dst []byte, s thread.Step) []byte {
	r := newRow(dst, nil)
	r.text("checkpoint_id", string(s.ID))
	r.textOrNull("parent_checkpoint_id", string(s.Parent))
	at, _ := s.ID.Time()
	r.timeOrNull("created_at", orNil(at))
	r.int("step", s.Number)
	r.text("source", s.Source)
	r.textOrNull("run_id", string(s.Run))
	return r.end()
}
