package storagetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// completionStore is a storage that can move the texts of completions.
type completionStore interface {
	SealCompletions(ctx context.Context) (int, error)
	Completions(ctx context.Context, runs ...id.Run) (map[id.Run]*run.Completion, error)
}

// SealsCompletions checks that all texts of completions move once and read the same. put writes completions in one transaction.
func SealsCompletions(t *testing.T, put func(fn func(put func(id.Run, *run.Completion) error) error) error, s completionStore) {
	t.Helper()
	const n = 1200 // some transactions
	want := map[id.Run]*run.Completion{}
	var runs []id.Run
	for i := range n {
		r := id.Run(fmt.Sprintf("run %04d", i))
		text := fmt.Sprint("text ü ", i)
		c := &run.Completion{FirstHuman: &text}
		for bit, to := range []**string{&c.LastAI, &c.Title, &c.Error} {
			if i>>bit&1 == 1 {
				*to = &text
			}
		}
		if i%3 == 1 {
			reason := graph.LoopCapped
			c.StopReason = &reason
		}
		if i%10 == 9 {
			c = &run.Completion{} // nothing is known
		}
		runs, want[r] = append(runs, r), c
	}
	require.NoError(t, put(func(put func(id.Run, *run.Completion) error) error {
		for _, r := range runs {
			if err := put(r, want[r]); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, moved := range []int{n * 9 / 10, 0} {
		changed, err := s.SealCompletions(t.Context())
		require.NoError(t, err)
		require.Equal(t, moved, changed)
		have, err := s.Completions(t.Context(), runs...)
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
}
