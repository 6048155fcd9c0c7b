package execute

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However often a run was started or handed back, as a suspect it keeps its server from claiming others for a minute at most.
func TestTurnsOfSuspectsAreBounded(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{20 * time.Millisecond, 4 * time.Second, 20 * time.Second, time.Hour} {
		s := &Executor{Options: Options{Lease: lease}}
		last := time.Duration(0)
		for attempt := range 1000 {
			now := s.turnTime(attempt)
			require.Positive(t, now)
			require.GreaterOrEqual(t, now, last)
			require.LessOrEqual(t, now, time.Minute)
			last = now
		}
	}
}
