package app

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"understudy/auth"
	"understudy/internal/config"
	"understudy/internal/oidctest"
	"understudy/storage/postgres/migratedtest"
)

// agents is where browsers reach the servers of a test.
const agents = "http://agents.example"

// browser is a client with cookies for which agents is one of the servers, in turns. It follows no redirects.
type browser struct {
	t *testing.T
	*http.Client
	csrf string // is sent
}

func newBrowser(t *testing.T, servers []*Server) *browser {
	t.Helper()
	var turn atomic.Int64
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "agents.example:80" {
			address = servers[int(turn.Add(1))%len(servers)].Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	return &browser{t, &http.Client{Jar: jar, Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, ""}
}

type page struct {
	status   int
	location string
	body     string
	header   http.Header
	cookies  map[string]*http.Cookie
}

func (b *browser) open(method, address string, headers ...string) page {
	b.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = agents + address
	}
	body := ""
	if method != http.MethodGet {
		body = "{}"
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(body))
	require.NoError(b.t, err)
	req.Header.Set("Content-Type", "application/json")
	if b.csrf != "" {
		req.Header.Set("X-CSRF-Token", b.csrf)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.Do(req)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, err)
	p := page{resp.StatusCode, resp.Header.Get("Location"), string(text), resp.Header, map[string]*http.Cookie{}}
	for _, c := range resp.Cookies() {
		p.cookies[c.Name] = c
	}
	return p
}

// stream opens a stream that lasts as long as the session.
func (b *browser) stream(path string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, agents+path, nil)
	require.NoError(b.t, err)
	patient := *b.Client
	patient.Timeout = time.Minute
	res, err := patient.Do(req)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(b.t, 200, res.StatusCode)
	return res
}

// begin goes to the provider and returns the address to which that sends the browser back.
func (b *browser) begin(next string) string {
	b.t.Helper()
	p := b.open("GET", "/auth/login?next="+url.QueryEscape(next))
	require.Equal(b.t, http.StatusSeeOther, p.status, p.body)
	require.True(b.t, p.cookies["understudy_signin"].HttpOnly)
	p = b.open("GET", p.location)
	require.Equal(b.t, http.StatusFound, p.status, p.body)
	return p.location
}

// signIn signs in and continues with the CSRF token of the session.
func (b *browser) signIn(next string) page {
	b.t.Helper()
	p := b.open("GET", b.begin(next))
	require.Equal(b.t, http.StatusSeeOther, p.status, p.body)
	require.Equal(b.t, next, p.location)
	session, csrf := p.cookies["understudy_session"], p.cookies["understudy_csrf"]
	require.True(b.t, session.HttpOnly)
	require.Equal(b.t, http.SameSiteLaxMode, session.SameSite)
	require.False(b.t, csrf.HttpOnly)
	require.Equal(b.t, http.SameSiteStrictMode, csrf.SameSite)
	require.NotContains(b.t, csrf.Value, session.Value)
	require.True(b.t, p.cookies["understudy_signin"].Expires.Before(time.Now()), "it ends")
	b.csrf = csrf.Value
	return p
}

func oidcServers(t *testing.T, n int, flags map[string]string, provider *oidctest.Provider, change func(*config.OIDC)) []*Server {
	t.Helper()
	var out []*Server
	for range n {
		all := map[string]string{"port": "0", "data": t.TempDir(), "studio": "true"}
		maps.Copy(all, flags)
		settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: all, Lookup: func(string) (string, bool) { return "", false }})
		require.NoError(t, err)
		o := &config.OIDC{Issuer: provider.URL, ClientID: provider.ClientID, ClientSecret: provider.ClientSecret, Name: "Test", URL: agents, Session: time.Hour, Idle: time.Hour}
		if change != nil {
			change(o)
		}
		settings.Auth = config.Auth{OIDC: o, Keys: true}
		out = append(out, runWith(t, Config{Settings: settings, Log: slog.New(slog.DiscardHandler)}, "talk", talking(t, nil)))
	}
	return out
}

// People sign in with a browser, on any of the servers in turns, act as who the provider says, and sign out everywhere.
func TestSignIn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		servers int
		flags   map[string]string
	}{
		"one server on SQLite":    {1, nil},
		"two servers on Postgres": {2, map[string]string{"database-url": migratedtest.Database(t), "database-connections": "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := oidctest.New(t)
			servers := oidcServers(t, tt.servers, tt.flags, provider, nil)
			ada := newBrowser(t, servers)
			require.Equal(t, `{"api_key":true,"token":false,"providers":[{"name":"Test","login":"/auth/login"}]}`, ada.open("GET", "/auth/methods").body)
			require.Equal(t, 401, ada.open("GET", "/auth/session").status)
			require.Equal(t, 401, ada.open("POST", "/threads").status)
			for range 2 { // and again, with another session
				ada.signIn("/studio/t/1?a=b#c")
			}
			require.Contains(t, ada.open("GET", "/auth/session").body, `{"identity":"ada","name":"Ada Lovelace","ends_at":"`)
			made := ada.open("POST", "/threads")
			require.Equal(t, 200, made.status, made.body)
			require.Contains(t, made.body, `"owner":"ada"`)
			thread := made.body[strings.Index(made.body, `"thread_id":"`)+13:][:36]
			require.Equal(t, 200, ada.open("GET", "/threads/"+thread).status)

			provider.User(map[string]any{"sub": "bob"})
			bob := newBrowser(t, servers)
			bob.signIn("/")
			require.Equal(t, 404, bob.open("GET", "/threads/"+thread).status)
			require.Equal(t, "[]", bob.open("POST", "/threads/search").body)

			// What another site could send is refused, and what it could read is not changed by it.
			for _, token := range []string{"", "wrong", bob.csrf} {
				p := ada.open("POST", "/threads", "X-CSRF-Token", token)
				require.Equal(t, 403, p.status, "%q: %s", token, p.body)
				require.Equal(t, 403, ada.open("POST", "/auth/logout", "X-CSRF-Token", token).status)
				require.Equal(t, 403, ada.open("DELETE", "/threads/"+thread, "X-CSRF-Token", token).status)
			}
			upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Origin"}
			socket := "/threads/" + thread + "/stream/events"
			require.Equal(t, 403, ada.open("GET", socket, append(upgrade, "http://evil.example")...).status)
			require.Equal(t, 403, ada.open("GET", socket, append(upgrade, "null")...).status)

			streams := []*http.Response{ada.stream("/threads/" + thread + "/stream"), ada.stream("/threads/" + thread + "/stream")} // one of each server
			session := ada.Jar.Cookies(&url.URL{Scheme: "http", Host: "agents.example"})
			require.Equal(t, 204, ada.open("POST", "/auth/logout").status)
			require.Equal(t, 401, ada.open("GET", "/threads/"+thread).status)
			require.Eventually(t, func() bool { // with the cookies of before too, on every server
				ada.Jar.SetCookies(&url.URL{Scheme: "http", Host: "agents.example"}, session)
				for range servers {
					if ada.open("GET", "/threads/"+thread).status != 401 {
						return false
					}
				}
				return true
			}, 2*auth.Fresh, 50*time.Millisecond)
			for _, res := range streams {
				_, err := io.Copy(io.Discard, res.Body)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "streams end too")
			}
			require.Equal(t, 200, bob.open("POST", "/threads/search").status)
		})
	}
}

// Whatever is wrong with a sign-in, no session is opened, the browser gets a page that says so in time, and the next sign-in works.
func TestSignInThatFails(t *testing.T) {
	t.Parallel()
	claim := func(name string, value any) func(*oidctest.Provider, string, *browser) string {
		return func(p *oidctest.Provider, back string, _ *browser) string {
			p.Change(func(c jwt.MapClaims) {
				if value == nil {
					delete(c, name)
				} else {
					c[name] = value
				}
			})
			return back
		}
	}
	broken := func(path string, how http.HandlerFunc) func(*oidctest.Provider, string, *browser) string {
		return func(p *oidctest.Provider, back string, _ *browser) string {
			p.Hook(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == path {
					how(w, r)
				}
				return r.URL.Path == path
			})
			return back
		}
	}
	parameter := func(name, value string) func(*oidctest.Provider, string, *browser) string {
		return func(_ *oidctest.Provider, back string, _ *browser) string {
			u, _ := url.Parse(back)
			q := u.Query()
			q.Set(name, value)
			u.RawQuery = q.Encode()
			return u.String()
		}
	}
	status := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
	}
	ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
	for name, tt := range map[string]struct {
		change func(p *oidctest.Provider, back string, b *browser) string
		status int
		text   string
	}{
		"wrong state":  {parameter("state", "x"), 403, "not begun in this browser"},
		"no state":     {parameter("state", ""), 403, "not begun in this browser"},
		"no code":      {parameter("code", ""), 403, "not begun in this browser"},
		"unknown code": {parameter("code", "x"), 401, "used before or has expired"},
		"refused":      {parameter("error", "access_denied"), 403, "cancelled or refused"},
		"its problem":  {parameter("error", "server_error"), 503, "has a problem"},
		"markup":       {parameter("error", "<script>alert(1)</script>"), 403, "refused: scriptalertscript"},
		"mix-up":       {parameter("iss", "https://other.example"), 401, "not accepted"},
		"replayed code": {func(_ *oidctest.Provider, back string, b *browser) string {
			ticket := b.Jar.Cookies(&url.URL{Scheme: "http", Host: "agents.example"})
			require.Equal(b.t, 303, b.open("GET", back).status)
			b.Jar, _ = cookiejar.New(nil)
			b.Jar.SetCookies(&url.URL{Scheme: "http", Host: "agents.example"}, ticket)
			return back
		}, 401, "used before or has expired"},
		"another browser": {func(_ *oidctest.Provider, back string, b *browser) string {
			b.Jar, _ = cookiejar.New(nil)
			return back
		}, 403, "not begun in this browser"},
		"broken cookie": {func(_ *oidctest.Provider, back string, b *browser) string {
			b.Jar.SetCookies(&url.URL{Scheme: "http", Host: "agents.example"}, []*http.Cookie{{Name: "understudy_signin", Value: "x.%%.y", Path: "/"}})
			return back
		}, 403, "not begun in this browser"},
		"wrong nonce":         {claim("nonce", "x"), 401, "not accepted"},
		"no nonce":            {claim("nonce", nil), 401, "not accepted"},
		"expired":             {claim("exp", ago(time.Minute)), 401, "took too long, or the clocks"},
		"of the future":       {claim("iat", ago(-time.Hour)), 401, "not accepted"},
		"another audience":    {claim("aud", "other"), 401, "not accepted"},
		"another party":       {claim("azp", "other"), 401, "not accepted"},
		"another issuer":      {claim("iss", "https://other.example"), 401, "not accepted"},
		"nobody":              {claim("sub", nil), 401, "no claim sub"},
		"tokens are down":     {broken("/token", status(503)), 503, "does not answer"},
		"tokens are no JSON":  {broken("/token", status(200)), 401, "not accepted"},
		"the client is wrong": {broken("/token", status(401)), 401, "not accepted"},
		"keys are down":       {broken("/keys", status(500)), 401, "not accepted"},
		"connections break":   {broken("/token", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }), 503, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := oidctest.New(t)
			b := newBrowser(t, oidcServers(t, 1, nil, provider, nil))
			back := tt.change(provider, b.begin("/"), b)
			p := b.open("GET", back)
			require.Equal(t, tt.status, p.status, p.body)
			require.Contains(t, p.body, tt.text)
			require.Contains(t, p.body, `<a href="/auth/login">Try again</a>`)
			require.Contains(t, p.header.Get("Content-Security-Policy"), "default-src 'none'")
			require.Nil(t, p.cookies["understudy_session"])
			require.Equal(t, 401, b.open("POST", "/threads").status)
			provider.Hook(nil)
			provider.Change(nil)
			b.signIn("/")
		})
	}
}

// A server starts without its provider. A browser gets a page after a few seconds at most, and is let in as soon as the provider answers.
func TestSignInWithoutAProvider(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(w http.ResponseWriter, r *http.Request, ended <-chan struct{}){
		"refuses": func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) { w.WriteHeader(500) },
		"is silent": func(_ http.ResponseWriter, r *http.Request, ended <-chan struct{}) {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		},
		"is another one": func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
			_, _ = io.WriteString(w, `{"issuer":"https://other.example"}`)
		},
		"never ends": func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
			for range 3 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider, ended := oidctest.New(t), make(chan struct{})
			t.Cleanup(func() { close(ended) })
			provider.Hook(func(w http.ResponseWriter, r *http.Request) bool { how(w, r, ended); return true })
			b := newBrowser(t, oidcServers(t, 1, nil, provider, nil))
			for range 2 {
				p := b.open("GET", "/auth/login")
				require.Equal(t, 503, p.status)
				require.Contains(t, p.body, "does not answer")
				require.NotContains(t, p.body, provider.URL)
				require.NotEmpty(t, p.header.Get("Retry-After"))
			}
			provider.Hook(nil)
			require.Eventually(t, func() bool { return b.open("GET", "/auth/login").status == 303 }, 20*time.Second, 100*time.Millisecond)
			b.signIn("/")
		})
	}
}

// Clocks may differ by half a minute; keys of the provider may change; a client may authenticate in either way.
func TestSignInAtOtherProviders(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oidctest.Provider){
		"its clock is slow": func(p *oidctest.Provider) {
			p.Change(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-20 * time.Second).Unix() })
		},
		"its clock is fast": func(p *oidctest.Provider) {
			p.Clock(func() time.Time { return time.Now().Add(20 * time.Second) })
		},
		"new keys": func(p *oidctest.Provider) { p.Rotate() },
		"post":     func(p *oidctest.Provider) { p.Methods = []string{"client_secret_post"} },
		"basic":    func(p *oidctest.Provider) { p.Methods = []string{"client_secret_post", "client_secret_basic"} },
		"two audiences": func(p *oidctest.Provider) {
			p.Change(func(c jwt.MapClaims) { c["aud"], c["azp"] = []string{"other", p.ClientID}, p.ClientID })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider := oidctest.New(t)
			b := newBrowser(t, oidcServers(t, 1, nil, provider, nil))
			if name == "new keys" {
				b.signIn("/")
			}
			change(provider)
			asked := provider.Asked()
			b.signIn("/")
			require.Equal(t, asked+1, provider.Asked(), "a code is sent once")
		})
	}
}

// No sign-in leads a browser to another server.
func TestSignInRedirectsWithinTheServer(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	servers := oidcServers(t, 1, nil, provider, nil)
	for _, next := range []string{
		"https://evil.example", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`, "/\t/evil.example", "/\n/evil.example", "\t//evil.example", "javascript:alert(1)",
		"data:text/html,x", "evil.example", "", "studio/", "/%zz", " /studio/", "/ /evil.example", "/\u0000", "http:evil.example", "/" + strings.Repeat("a", 5000), "https:/evil.example",
	} {
		b := newBrowser(t, servers)
		if next != "" {
			p := b.open("GET", "/auth/login?next="+url.QueryEscape(next))
			require.Equal(t, 400, p.status, "%q", next)
			require.Empty(t, p.location)
			require.Nil(t, p.cookies["understudy_signin"])
		}
		// In the cookie, where a page of a neighbor could put it.
		back := b.begin("/")
		at := &url.URL{Scheme: "http", Host: "agents.example"}
		secret, _, _ := strings.Cut(b.Jar.Cookies(at)[0].Value, ".")
		b.Jar.SetCookies(at, []*http.Cookie{{Name: "understudy_signin", Value: secret + "." + base64.RawURLEncoding.EncodeToString([]byte(next)), Path: "/"}})
		p := b.open("GET", back)
		require.Equal(t, 303, p.status, p.body)
		require.Equal(t, "/studio/", p.location, "%q", next)
	}
	for _, next := range []string{"/", "/studio/", "/studio/t/1?q=https://a.example/#//b", "/a//b", "/%2F%2Fevil.example", "/.//x", "/@evil.example", "/ä"} {
		b := newBrowser(t, servers)
		p := b.open("GET", b.begin(next))
		u, err := url.Parse(agents)
		require.NoError(t, err)
		u, err = u.Parse(p.location)
		require.NoError(t, err)
		require.Equal(t, "agents.example", u.Host, "%q", next)
	}
}

// Over TLS cookies are for TLS and this host only, and those that another host may have set do not count.
func TestSignInOverTLS(t *testing.T) {
	t.Parallel()
	provider := oidctest.New(t)
	for name, tt := range map[string]struct {
		flags  map[string]string
		url    string
		secure bool
	}{
		"a proxy that is trusted":     {map[string]string{"trusted-proxies": "127.0.0.1"}, "", true},
		"a proxy that is not trusted": {nil, "", false},
		"an address":                  {nil, "https://agents.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBrowser(t, oidcServers(t, 1, tt.flags, provider, func(o *config.OIDC) { o.URL = tt.url }))
			forwarded := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "agents.example"}
			p := b.open("GET", "/auth/login", forwarded...)
			require.Equal(t, 303, p.status, p.body)
			u, err := url.Parse(p.location)
			require.NoError(t, err)
			scheme := map[bool]string{true: "https", false: "http"}[tt.secure]
			require.Equal(t, scheme+"://agents.example/auth/callback", u.Query().Get("redirect_uri"))
			prefix := map[bool]string{true: "__Host-"}[tt.secure]
			ticket := p.cookies[prefix+"understudy_signin"]
			require.Equal(t, tt.secure, ticket.Secure)
			if !tt.secure {
				return
			}
			back := b.open("GET", p.location).location
			p = b.open("GET", strings.Replace(back, "https:", "http:", 1), append(forwarded, "Cookie", ticket.Name+"="+ticket.Value)...)
			require.Equal(t, 303, p.status, p.body)
			session := p.cookies["__Host-understudy_session"]
			require.True(t, session.Secure)
			require.Equal(t, "/", session.Path)
			require.Empty(t, session.Domain)
			require.True(t, p.cookies["understudy_csrf"].Secure)
			require.Equal(t, 200, b.open("GET", "/auth/session", append(forwarded, "Cookie", session.Name+"="+session.Value)...).status)
			require.Equal(t, 401, b.open("GET", "/auth/session", append(forwarded, "Cookie", "understudy_session="+session.Value)...).status)
			require.Equal(t, 401, b.open("GET", "/threads/x", append(forwarded, "Cookie", "understudy_session="+session.Value)...).status)
			require.NotEqual(t, 401, b.open("GET", "/threads/x", append(forwarded, "Cookie", session.Name+"="+session.Value)...).status)
		})
	}
}
