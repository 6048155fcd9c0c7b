package compose

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/assistant"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/thread"
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
		server := jsonobj.Of(nil)
		identify(server, actor, c.Get("user_id"))
		c.Merge(server)
		got := string(c.JSON())
		require.Contains(t, got, tt.want)
		require.Contains(t, got, `"langgraph_auth_user_id":"`+tt.known+`"`)
	}
}

// The schema of a graph decides about keys of the request's context and of the assistant's, and never about those that the server writes, whatever
// their values are.
func TestContextKeys(t *testing.T) {
	t.Parallel()
	known := &access.Actor{Identity: "ann", User: json.RawMessage(`{}`)}
	for _, tt := range []struct {
		assistant, context string
		actor              *access.Actor
		want               []string
	}{
		{`{}`, `{}`, nil, nil},
		{`{"a":1}`, `{}`, nil, nil},
		{`{"a":1}`, `{"b":2}`, nil, []string{"a", "b"}},
		{`{"a":1}`, `{"a":2}`, nil, []string{"a"}},
		{`{"run_id":"r"}`, `{"thread_id":"t","graph_id":"g","assistant_id":"x","b":1}`, nil, []string{"b"}},
		{`{}`, `{"user_id":"mallory","b":1}`, nil, []string{"user_id", "b"}},
		{`{}`, `{"user_id":"mallory","b":1}`, known, []string{"b"}},
	} {
		r := &run.Run{ID: "r", Thread: "t"}
		as := &assistant.Assistant{GraphID: "g", Context: []byte(tt.assistant)}
		require.NoError(t, configure(r, as, &thread.Thread{}, &run.Request{Arguments: run.Arguments{Context: []byte(tt.context)}, Actor: tt.actor}, false, time.Time{}))
		require.Equal(t, tt.want, r.Kwargs.ContextKeys, "%s under %s", tt.assistant, tt.context)
	}
}
