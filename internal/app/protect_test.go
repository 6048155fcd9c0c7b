package app

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
	"understudy/run"
	"understudy/server/deerflow/gateway"
	"understudy/server/guard"
)

// Runs of scheduled tasks act as their account, and belong to it. Policies of others, which know no accounts of DeerFlow, are not asked.
func TestActorsOfTasks(t *testing.T) {
	t.Parallel()
	task := &run.Cron{Account: "ann", Payload: json.RawMessage(`{"config":{"configurable":{"langgraph_auth_user":{"identity":"ann"},"langgraph_auth_user_id":"ann","langgraph_auth_permissions":[]}}}`)}
	for name, policy := range map[string]Auth{
		"of accounts": accounts{Owner: gateway.Owners},
		"another": struct {
			*auth.Native
			auth.Policy
		}{Policy: auth.Policy{Owner: &access.Owner{Key: "owner"}}},
	} {
		s := &Server{protection: protection{auth: policy, guard: &guard.Guard{Policy: policy}}}
		req := run.Request{Metadata: json.RawMessage(`{}`), Arguments: run.Arguments{Config: json.RawMessage(`{"configurable":{"langgraph_auth_user_id":"ann"}}`)}}
		require.NoError(t, s.admitCron()(t.Context(), task, &req), name)
		require.Equal(t, "ann", req.Actor.Identity)
		require.JSONEq(t, `{"configurable":{}}`, string(req.Config))
		require.JSONEq(t, `{"user_id":"ann"}`, string(req.Metadata), name)
	}
}

// Where everyone is one user, a client for another one is refused: it would see the files of all.
func TestClientOfAnOpenDeerFlow(t *testing.T) {
	t.Parallel()
	s := &Server{deerflowParts: deerflowParts{deerflow: &gateway.Installation{Open: true}}}
	_, err := s.DeerFlowClient("ann")
	require.ErrorContains(t, err, "DEER_FLOW_AUTH_DISABLED")
}
