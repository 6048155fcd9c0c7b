package gateway

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/deerflow/account"
	"understudy/deerflow/settings"
)

// Runs of scheduled tasks act as the account that owns the task, unless sign-in is turned off.
func TestActorOfTasks(t *testing.T) {
	t.Parallel()
	who := &caller{User: &account.User{ID: "ann", Email: "ann@example.com"}, id: "ann"}
	for _, open := range []bool{false, true} {
		s := &taskHandlers{base: &base{DeerFlow: &Installation{Open: open}}}
		payload, err := s.taskPayload(&settings.Settings{}, who, "hello")
		require.NoError(t, err)
		actor := access.OfRun([]byte(gjson.GetBytes(payload, "config").Raw))
		if open {
			require.Nil(t, actor)
			continue
		}
		require.Equal(t, who.actor(), actor)
	}
}
