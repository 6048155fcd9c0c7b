package postgres

import (
	"testing"

	"understudy/id"
	"understudy/run"
	"understudy/storage/storagetest"
)

func TestSealCompletions(t *testing.T) {
	t.Parallel()
	s := setup(t)
	storagetest.SealsCompletions(t, func(fn func(func(id.Run, *run.Completion) error) error) error {
		return s.write(t.Context(), func(tx *Tx) error { return fn(tx.PutCompletion) })
	}, s)
}
