package gate

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
)

// What authenticate returned is used again for requests with equal headers only, for a while, and by the same process only.
func TestRemembered(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Auth = "./odd.py:auth"
	o.Remember = Remembering{Headers: []string{"Authorization", "X-Org"}, TTL: time.Minute, Max: 100}
	g := start(t, o)
	now := time.Now()
	g.remembered.now = func() time.Time { return now }
	ask := func(path, token, org string) *access.Actor {
		t.Helper()
		r := bearer(token)
		r.Path = path
		if org != "" {
			r.Header["X-Org"] = []string{org}
		}
		actor, err := g.Authenticate(t.Context(), r)
		require.NoError(t, err)
		return actor
	}
	first := ask("/a", "echo", "acme")
	require.Same(t, first, ask("/b", "echo", "acme"))
	require.Contains(t, string(ask("/b", "echo", "other").User), `"path":"/b"`)
	require.Contains(t, string(ask("/c", "echo", "").User), `"path":"/c"`)
	now = now.Add(time.Minute)
	require.Contains(t, string(ask("/d", "echo", "acme").User), `"path":"/d"`)

	anonymous := &access.Request{Method: "GET", Path: "/a", Header: http.Header{"Cookie": {"a=b"}}, Client: "127.0.0.1:5000", Scheme: "http"}
	one, err := g.Authenticate(t.Context(), anonymous)
	require.NoError(t, err)
	other, err := g.Authenticate(t.Context(), anonymous)
	require.NoError(t, err)
	require.NotSame(t, one, other, "a request without the headers may be anyone's")
	for range 2 {
		_, err := g.Authenticate(t.Context(), bearer("status"))
		require.Equal(t, 401, refused(t, err).Status)
	}

	question := access.Question{Resource: "threads", Action: "create", Value: json.RawMessage(`{"do":"org"}`)}
	for i := range 2 { // handlers have the object of authenticate, also when it is used again
		foreseen := 0
		actor, answers, err := g.Admit(t.Context(), bearer("object"), func() []access.Expected {
			foreseen++
			return []access.Expected{{Question: question}}
		})
		require.NoError(t, err)
		require.Equal(t, "ann", actor.Identity)
		require.Equal(t, 1-i, foreseen, "who is remembered is asked about by the route")
		d, err := access.Decide(access.EnterForeseen(t.Context(), actor, "", access.NewForeseen(answers)), g, actor, question)
		require.NoError(t, err)
		require.JSONEq(t, `{"do":"org","org":"acme","secret":"ANN"}`, string(d.Value))
	}

	kept := ask("/e", "echo", "acme")
	_, err = g.Authenticate(t.Context(), bearer("die"))
	require.Error(t, err)
	require.Eventually(t, func() bool {
		_, err := g.Authenticate(t.Context(), bearer("ann"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.NotSame(t, kept, ask("/f", "echo", "acme"), "another process asks anew")
}

// Different headers never have the same name.
func TestRememberedHeaders(t *testing.T) {
	t.Parallel()
	r := newRemembered(Remembering{Headers: []string{"A", "B"}, TTL: time.Minute, Max: 10})
	seen := map[[32]byte]http.Header{}
	for _, h := range []http.Header{
		{"A": {"ab"}}, {"B": {"ab"}}, {"A": {"a"}, "B": {"b"}}, {"A": {"a", "b"}}, {"A": {"", "ab"}}, {"A": {"ab", ""}}, {"A": {""}}, {"A": {""}, "B": {""}}, {"A": {}, "B": {""}}, {"A": {"a"}, "B": {"b", ""}},
	} {
		key, ok := r.key(h)
		require.True(t, ok)
		require.NotContains(t, seen, key, "%v and %v", h, seen[key])
		seen[key] = h
	}
	_, ok := r.key(http.Header{"C": {"a"}})
	require.False(t, ok)
	require.Nil(t, newRemembered(Remembering{}))
}
