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
