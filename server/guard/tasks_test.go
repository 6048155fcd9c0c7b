package guard

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/server"
	"understudy/server/deerflow/gateway"
)

// triggered counts triggers of scheduled tasks.
type triggered struct {
	gateway.Tasks
	times int
}

func (s *triggered) TriggerTask(context.Context, string, string) error {
	s.times++
	return nil
}

// Triggers of scheduled tasks count for the number of runs in a minute, for each account.
func TestTriggersArePaced(t *testing.T) {
	t.Parallel()
	var inner triggered
	o := &server.Options{Tasks: &inner}
	(&Guard{Pace: Pace{PerMinute: 2}}).Wrap(o)
	for range 2 {
		require.NoError(t, o.Tasks.TriggerTask(t.Context(), "ann", "task"))
	}
	var refusal *access.Refusal
	require.ErrorAs(t, o.Tasks.TriggerTask(t.Context(), "ann", "task"), &refusal)
	require.Equal(t, http.StatusTooManyRequests, refusal.Status)
	require.NoError(t, o.Tasks.TriggerTask(t.Context(), "ben", "task"))
	require.Equal(t, 3, inner.times)
}
