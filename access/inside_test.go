package access_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/jsonobj"
)

func TestInsideCredentialsAreOfOneProcess(t *testing.T) {
	t.Parallel()
	a := &access.Actor{Identity: "ada", DisplayName: "Ada", Authenticated: true, Permissions: []string{"p"}, User: json.RawMessage(`{"identity":"ada"}`)}
	here, there := access.NewInside(), access.NewInside()
	credential := here.Credential(a)
	require.Equal(t, a, here.Actor(credential))
	require.Nil(t, there.Actor(credential))
	for i := range credential {
		forged := []byte(credential)
		forged[i] ^= 1
		require.Nil(t, here.Actor(string(forged)))
	}
	require.Nil(t, here.Actor(""))
}

// What the configuration of a run says of its actor gives their credential, each time, and that of no other.
func TestInsideCredentialsOfRuns(t *testing.T) {
	t.Parallel()
	inside := access.NewInside()
	for range 2 { // made, then kept
		for _, a := range []*access.Actor{
			{Identity: "ada", DisplayName: "ada", Authenticated: true, Permissions: []string{"p"}, User: json.RawMessage(`{"identity":"ada","is_authenticated":true}`)},
			{Identity: "ada", DisplayName: "ada", Authenticated: true, Permissions: []string{}, User: json.RawMessage(`{"identity":"ada","is_authenticated":true}`)},
			{Identity: "ben", DisplayName: "B", Permissions: []string{}, User: json.RawMessage(`{"identity":"ben","display_name":"B"}`)},
			{Identity: "\"", DisplayName: "B", Permissions: []string{}, User: json.RawMessage(`{"identity":"ben","display_name":"B"}`)},
		} {
			configurable := jsonobj.Of(json.RawMessage(`{"thread_id":"t","langgraph_auth_user_i\u0064":"eve"}`))
			access.Write(configurable, a)
			config := json.RawMessage(`{"Configurable":{"langgraph_auth_user_id":"eve"},"configurable":` + string(configurable.JSON()) + `}`)
			require.Equal(t, a, access.OfRun(config))
			require.NotEqual(t, "null", string(configurable.Get(access.PermissionsKey)))
			require.Equal(t, a.Identity, access.IdentityOfRun(config))
			require.Equal(t, a, inside.Actor(inside.OfRun(config)))
			configurable.Set(access.ApartKey, json.RawMessage("true"))
			require.Empty(t, inside.OfRun(json.RawMessage(`{"configurable":`+string(configurable.JSON())+`}`)))
		}
		for _, config := range []string{``, `null`, `[]`, `{}`, `{"configurable":{}}`, `{"configurable":{"langgraph_auth_user_id":""}}`, `{"configurable":{"langgraph_auth_user_id":7}}`} {
			require.Nil(t, access.OfRun(json.RawMessage(config)), config)
			require.Empty(t, inside.OfRun(json.RawMessage(config)), config)
		}
	}
}

// Graphs of actors whom another policy than the server's decides about get no credential: the server would ask its own, which does not know them.
func TestActorsApart(t *testing.T) {
	t.Parallel()
	configurable := &jsonobj.Object{}
	ann := &access.Actor{Identity: "ann", Authenticated: true, User: json.RawMessage(`{}`)}
	access.Write(configurable, access.From(access.EnterUnder(t.Context(), ann, "", access.Owner{Key: "owner"})))
	require.False(t, ann.Apart, "elsewhere the server's policy decides about them")
	a := access.OfRun(json.RawMessage(`{"configurable":` + string(configurable.JSON()) + `}`))
	require.True(t, a.Apart)
	require.Empty(t, access.NewInside().Credential(a))
	require.NotEmpty(t, access.NewInside().Credential(&access.Actor{Identity: "ann", User: json.RawMessage(`{}`)}))
}
