package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
)

func parse(t *testing.T, raw string) *access.Filter {
	t.Helper()
	f, err := access.ParseFilter(json.RawMessage(raw))
	require.NoError(t, err)
	return f
}

func TestFiltersCompareAsTheContractSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, metadata string
		want             bool
	}{
		{`{"owner":"a"}`, `{"owner":"a","x":1}`, true},
		{`{"owner":"a"}`, `{"owner":"b"}`, false},
		{`{"owner":"a"}`, `{}`, false},
		{`{"owner":{"$eq":"a"}}`, `{"owner":"a"}`, true},
		{`{"level":3}`, `{"level":"3"}`, false},
		{`{"level":3}`, `{"level":3.0}`, true},
		{`{"level":true}`, `{"level":1}`, false},
		{`{"who":{"$contains":"a"}}`, `{"who":["b","a"]}`, true},
		{`{"who":{"$contains":"a"}}`, `{"who":"a b"}`, false},
		{`{"who":{"$contains":["a","b"]}}`, `{"who":["b","x","a"]}`, true},
		{`{"who":{"$contains":["a","b"]}}`, `{"who":["a"]}`, false},
		{`{"$or":[{"owner":"a"},{"who":{"$contains":"a"}}]}`, `{"who":["a"]}`, true},
		{`{"$or":[{"owner":"a"},{"who":{"$contains":"a"}}]}`, `{"who":[]}`, false},
		{`{"team":"red","$or":[{"owner":"a"},{"owner":"b"}]}`, `{"owner":"b"}`, false},
		{`{"$and":[{"owner":"a"},{"$or":[{"t":1},{"t":2}]}]}`, `{"owner":"a","t":2}`, true},
		{`{"o":{"x":1}}`, `{"o":{"x":1,"y":2}}`, false},
		{`{"o":{"x":1,"y":2}}`, `{"o":{"y":2,"x":1}}`, true},
		{`{"n":null}`, `{"n":null}`, true},
		{`{"n":null}`, `{}`, false},
		{`{}`, `{}`, true},
	} {
		require.Equal(t, c.want, parse(t, c.filter).Match(json.RawMessage(c.metadata)), "%s on %s", c.filter, c.metadata)
	}
}

// What is not understood must not match all.
func TestOddFiltersAreRefused(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`[]`, `"x"`, `7`, `true`, `{"a":{"$ne":1}}`, `{"$not":{"a":1}}`, `{"$or":[{"a":1}]}`, `{"$or":{}}`, `{"$and":[]}`, `{"$or":[1,2]}`, `{"a":{"$eq":1,"$gt":2}}`,
		`{"$and":[{"a":1},{"$or":[{"b":1},{"$and":[{"c":1},{"c":1}]}]}]}`,
	} {
		_, err := access.ParseFilter(json.RawMessage(raw))
		var refusal *access.Refusal
		require.True(t, errors.As(err, &refusal), raw)
		require.Equal(t, 500, refusal.Status)
		require.Contains(t, string(refusal.Detail), "filter")
	}
}

// Equalities never say more than the filter: what an index leaves out, the filter refuses as well.
func TestEqualitiesFollowFromTheFilter(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	value := func() string {
		return []string{`"a"`, `"b"`, `1`, `"1"`, `true`, `null`, `["a"]`, `["a","b"]`, `{"x":1}`}[r.IntN(9)]
	}
	condition := func() string {
		key := []string{"p", "q", "r"}[r.IntN(3)]
		switch r.IntN(3) {
		case 0:
			return fmt.Sprintf(`%q:%s`, key, value())
		case 1:
			return fmt.Sprintf(`%q:{"$eq":%s}`, key, value())
		}
		return fmt.Sprintf(`%q:{"$contains":%s}`, key, value())
	}
	for range 5000 {
		text := `{` + condition()
		if r.IntN(2) == 0 {
			text += fmt.Sprintf(`,"$or":[{%s},{%s}]`, condition(), condition())
		}
		f := parse(t, text+`}`)
		doc := fmt.Sprintf(`{"p":%s,"q":%s,"r":%s}`, value(), value(), value())
		terms, complete := f.Equalities()
		match := f.Match(json.RawMessage(doc))
		only := parse(t, string(terms)).Match(json.RawMessage(doc))
		if match {
			require.True(t, only, "%s} on %s", text, doc)
		}
		if complete {
			require.Equal(t, match, only, "%s} on %s", text, doc)
		}
	}
}

func TestNarrowingAddsUp(t *testing.T) {
	t.Parallel()
	ctx := access.Narrow(context.Background(), access.Threads, parse(t, `{"a":1}`))
	ctx = access.Narrow(ctx, access.Threads, parse(t, `{"b":2}`))
	require.True(t, access.Reach(ctx, access.Threads).Match(json.RawMessage(`{"a":1,"b":2}`)))
	require.False(t, access.Reach(ctx, access.Threads).Match(json.RawMessage(`{"a":1}`)))
	require.Nil(t, access.Reach(ctx, access.Crons))
	require.Nil(t, access.Reach(access.Everything(ctx), access.Threads))
}

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
