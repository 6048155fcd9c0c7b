package access_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
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
