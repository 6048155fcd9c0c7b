package compose

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/jsonobj"
)

// The user that the server knows wins over the one that a client names; without authentication the client's stays.
func TestIdentify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ given, known, want string }{
		{`{}`, "", `"user_id":""`},
		{`{"user_id":"mallory"}`, "", `"user_id":"mallory"`},
		{`{"user_id":7}`, "", `"user_id":7`},
		{`{}`, "ann", `"user_id":"ann"`},
		{`{"user_id":"mallory","langgraph_auth_user_id":"mallory"}`, "ann", `"user_id":"ann"`},
	} {
		c := jsonobj.Of([]byte(tt.given))
		var actor *access.Actor
		if tt.known != "" {
			actor = &access.Actor{Identity: tt.known, User: json.RawMessage(`{}`)}
		}
		identify(c, actor)
		got := string(c.JSON())
		require.Contains(t, got, tt.want)
		require.Contains(t, got, `"langgraph_auth_user_id":"`+tt.known+`"`)
	}
}
