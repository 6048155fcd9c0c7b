package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/auth"
)

// rooms is a store of sessions that several servers share.
type rooms struct {
	mu   sync.Mutex
	rows map[string]auth.Session
	gone map[string]bool // was replaced
}

func (m *rooms) InsertSession(_ context.Context, s *auth.Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[s.ID] = *s
	return nil
}

func (m *rooms) SessionsOf(_ context.Context, ids []string) (list []*auth.Session, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if s, ok := m.rows[id]; ok {
			list = append(list, &s)
		}
	}
	return list, nil
}

func (m *rooms) ExtendSession(_ context.Context, id string, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.rows[id]; ok && !m.gone[id] && expires.After(s.Expires) {
		s.Expires = expires
		m.rows[id] = s
	}
	return nil
}

func (m *rooms) ReplaceSession(_ context.Context, id string, content json.RawMessage, next *auth.Session, until time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.rows[id]
	if !ok || m.gone[id] {
		return false, nil
	}
	s.Expires, s.Content, m.gone[id] = until, content, true
	m.rows[id], m.rows[next.ID] = s, *next
	return true, nil
}

func (m *rooms) EndSession(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, id)
	return nil
}

func (m *rooms) SweepSessions(context.Context, time.Time, int) (int, error) { return 0, nil }

// Over any order of events on two servers a session opens the server while it is used and young enough, and never after it was closed, too old or idle.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	const longest, idle, minute = 6 * time.Hour, time.Hour, time.Minute
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		now := time.Unix(1e9, 0)
		store := &rooms{rows: map[string]auth.Session{}, gone: map[string]bool{}}
		var servers []*auth.Sessions
		for range 2 {
			servers = append(servers, auth.NewSessions(auth.SessionOptions{Store: store, Longest: longest, Idle: idle, Now: func() time.Time { return now }}))
		}
		opened, err := servers[0].Open(t.Context(), auth.Person{Identity: "ada", Name: "Ada", Permissions: []string{auth.Read}, Claims: []byte(`{"a":1}`)})
		require.NoError(t, err)
		var withdrawn []func(context.Context) bool // of answers that were open since the beginning
		for _, s := range servers {
			withdrawn = append(withdrawn, (&auth.Native{Sessions: s}).Follow(&access.Request{Header: http.Header{"Cookie": {auth.SessionCookie + "=" + opened.Secret}}}))
		}
		begin, used, secret := now, now, opened.Secret
		var old string
		var replaced, closed time.Time
		for step := range 100 {
			s := servers[r.IntN(2)]
			get := &access.Request{Method: http.MethodGet, Header: http.Header{}}
			at := fmt.Sprintf("seed %d, step %d", seed, step)
			switch r.IntN(6) {
			case 0:
				now = now.Add(time.Duration(r.IntN(70)) * minute)
			case 1:
				now = now.Add(time.Duration(r.IntN(100)) * time.Second)
			case 2:
				if closed.IsZero() && r.IntN(10) == 0 {
					require.NoError(t, s.Close(t.Context(), secret))
					closed = now
				}
			case 3:
				shown, err := s.Show(t.Context(), secret)
				if err == nil && shown.Secret != secret {
					require.NotEqual(t, opened.CSRF, shown.CSRF)
					old, replaced, secret = secret, now, shown.Secret
				}
				if err == nil {
					used = now
					require.Equal(t, begin.Add(longest), shown.Ends)
				}
			default:
				dead := now.Sub(begin) >= longest || now.Sub(used) >= idle+minute || !closed.IsZero() && now.Sub(closed) >= auth.Fresh
				alive := closed.IsZero() && now.Sub(begin) < longest && now.Sub(used) < idle*9/10
				over := withdrawn[r.IntN(2)](t.Context())
				who, err := s.Authenticate(t.Context(), get, secret)
				switch {
				case dead:
					require.Equal(t, 401, status(t, err), at)
					require.True(t, over, at)
				case alive:
					require.NoError(t, err, at)
					require.False(t, over, at)
					require.Equal(t, []string{auth.Read}, who.Permissions)
					require.JSONEq(t, `{"identity":"ada","display_name":"Ada","is_authenticated":true,"permissions":["understudy:read"],"claims":{"a":1}}`, string(who.User))
				}
				if err == nil {
					used = now
				}
			}
			if old != "" && now.Sub(replaced) >= time.Minute+auth.Fresh {
				_, err := s.Authenticate(t.Context(), get, old)
				require.Equal(t, 401, status(t, err), at)
			}
		}
	}
}

// Requests that change something need the token of their session, and no other one; a cookie alone lets pages of other sites do nothing.
func TestSessionsNeedTheirPage(t *testing.T) {
	t.Parallel()
	store := &rooms{rows: map[string]auth.Session{}, gone: map[string]bool{}}
	s := auth.NewSessions(auth.SessionOptions{Store: store, Longest: time.Hour, Idle: time.Hour, Now: time.Now})
	ada, err := s.Open(t.Context(), auth.Person{Identity: "ada"})
	require.NoError(t, err)
	bob, err := s.Open(t.Context(), auth.Person{Identity: "bob"})
	require.NoError(t, err)
	ask := func(method, token, origin string, socket bool) int {
		r := &access.Request{Method: method, Host: "agents.example:8080", WebSocket: socket, Header: http.Header{auth.CSRFHeader: {token}, "Origin": {origin}}}
		_, err := s.Authenticate(t.Context(), r, ada.Secret)
		return status(t, err)
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY"} {
		require.Equal(t, 200, ask(method, ada.CSRF, "", false))
		for _, token := range []string{"", "x", bob.CSRF, ada.Secret, ada.CSRF + "x", ada.CSRF[1:]} {
			require.Equal(t, 403, ask(method, token, "", false), "%s %q", method, token)
		}
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		require.Equal(t, 200, ask(method, "", "", false))
	}
	require.Equal(t, 200, ask("GET", "", "https://agents.example:8080", true))
	require.Equal(t, 200, ask("GET", "", "https://AGENTS.example:8080", true))
	for _, origin := range []string{"", "null", "https://evil.example", "https://agents.example", "https://agents.example:8080.evil.example", "agents.example:8080"} {
		require.Equal(t, 403, ask("GET", ada.CSRF, origin, true), origin)
	}
	for _, secret := range []string{"", "x", bob.Secret[:42] + "!", bob.Secret + "x"} {
		_, err := s.Authenticate(t.Context(), &access.Request{Method: "GET", Header: http.Header{}}, secret)
		require.Equal(t, 401, status(t, err))
	}
}
