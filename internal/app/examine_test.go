package app

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"understudy/internal/app/doctor"
	"understudy/internal/finding"
)

// However many ask at once, one examination runs; one whose request ends is begun anew for those that wait.
func TestExaminationsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun, running atomic.Int32
		goOn := make(chan struct{})
		e := &examiner{examine: func(ctx context.Context, _ doctor.Examination) []finding.Finding {
			require.EqualValues(t, 1, running.Add(1))
			defer running.Add(-1)
			begun.Add(1)
			select {
			case <-goOn:
				return []finding.Finding{{Text: "whole"}}
			case <-ctx.Done():
				return []finding.Finding{{Text: "cut short"}}
			}
		}}
		type answer struct {
			findings []finding.Finding
			err      error
		}
		answers := make(chan answer)
		ask := func(ctx context.Context) {
			list, err := e.Examine(ctx)
			answers <- answer{list, err}
		}
		first, leave := context.WithCancel(t.Context())
		go ask(first)
		synctest.Wait()
		bored, forget := context.WithCancel(t.Context())
		go ask(bored)
		for range 20 {
			go ask(t.Context())
		}
		synctest.Wait()
		require.EqualValues(t, 1, begun.Load())
		forget()
		require.ErrorIs(t, (<-answers).err, context.Canceled)
		leave()
		require.ErrorIs(t, (<-answers).err, context.Canceled)
		synctest.Wait()
		require.EqualValues(t, 2, begun.Load(), "one of those that wait begins anew")
		close(goOn)
		for range 20 {
			require.Equal(t, answer{findings: []finding.Finding{{Text: "whole"}}}, <-answers)
		}
		require.EqualValues(t, 2, begun.Load())
		_, err := e.Examine(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 3, begun.Load(), "later ones look anew")
	})
}
