package storagetest

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/auth"
)

var sessionCases = map[string]func(*testing.T, Backend){
	"sessions": func(t *testing.T, b Backend) {
		t.Helper()
		session := func(id string, expires, ends int) *auth.Session {
			return &auth.Session{ID: id, Identity: "ada 😀", Content: []byte(`{"name":"Ada"}`), CreatedAt: at(1), Renewed: at(2), Expires: at(expires), Ends: at(ends)}
		}
		x := session("a", 10, 50)
		require.NoError(t, b.Sessions.InsertSession(ctx, x))
		require.Error(t, b.Sessions.InsertSession(ctx, x), "an ID is of one session")
		require.NoError(t, b.Sessions.InsertSession(ctx, session("b", 5, 50)))
		get := func(ids ...string) (list []*auth.Session) {
			t.Helper()
			list, err := b.Sessions.SessionsOf(ctx, ids)
			require.NoError(t, err)
			for _, s := range list {
				for _, at := range []*time.Time{&s.CreatedAt, &s.Renewed, &s.Expires, &s.Ends} {
					*at = at.UTC()
				}
			}
			return list
		}
		b = b.reopen(t)
		require.Equal(t, []*auth.Session{x}, get("a", "none"))
		require.Empty(t, get())
		require.Len(t, get("a", "b"), 2)

		require.NoError(t, b.Sessions.ExtendSession(ctx, "a", at(20)))
		require.NoError(t, b.Sessions.ExtendSession(ctx, "a", at(15)), "another server was later")
		require.NoError(t, b.Sessions.ExtendSession(ctx, "none", at(15)))
		require.Equal(t, at(20), get("a")[0].Expires)

		// Of servers that replace a session at once one does.
		content := json.RawMessage(`{"replaced":true}`)
		var wins atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				won, err := b.Sessions.ReplaceSession(ctx, "a", content, session(fmt.Sprint("next", i), 30, 50), at(12))
				if err != nil {
					t.Error(err)
				}
				if won {
					wins.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, wins.Load())
		require.Len(t, get("next0", "next1", "next2", "next3", "next4", "next5", "next6", "next7"), 1)
		require.NoError(t, b.Sessions.ExtendSession(ctx, "a", at(40)))
		require.Equal(t, at(12), get("a")[0].Expires, "it was replaced")
		require.Equal(t, content, get("a")[0].Content)
		won, err := b.Sessions.ReplaceSession(ctx, "none", content, session("c", 30, 50), at(12))
		require.NoError(t, err)
		require.False(t, won)
		require.Empty(t, get("c"))
		won, err = b.Sessions.ReplaceSession(ctx, "b", content, session("d", 30, 50), at(12))
		require.NoError(t, err)
		require.True(t, won)
		require.Equal(t, at(5), get("b")[0].Expires, "it ended before")

		n, err := b.Sessions.SweepSessions(ctx, at(13), 1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Empty(t, get("b"), "the oldest")
		n, err = b.Sessions.SweepSessions(ctx, at(13), 9)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, b.Sessions.EndSession(ctx, "d"))
		require.NoError(t, b.Sessions.EndSession(ctx, "d"))
		require.Empty(t, get("a", "b", "c", "d"))
	},
}
