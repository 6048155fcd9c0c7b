package certs_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/internal/certs"
	"understudy/internal/certstest"
	"understudy/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type place struct {
	ca    *certstest.CA
	files []string // certificate, key, client CA
	log   logtest.Buffer
	now   atomic.Pointer[time.Time]
	certs *certs.Certificates
	addr  string
}

// serve serves HTTP with certificates that are looked at every millisecond. With clients they need one.
func serve(t *testing.T, until time.Duration, clients bool) *place {
	t.Helper()
	p := &place{ca: certstest.New(t)}
	now := time.Now()
	p.now.Store(&now)
	cert, key := p.ca.Issue(t, "first", now.Add(until))
	p.files = certstest.Files(t, cert, key, p.ca.PEM)
	o := certs.Options{Cert: p.files[0], Key: p.files[1], Log: slog.New(slog.NewTextHandler(&p.log, nil)), Now: func() time.Time { return *p.now.Load() }, Every: time.Millisecond}
	if clients {
		o.ClientCA = p.files[2]
	}
	var err error
	p.certs, err = certs.Load(o)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.addr = ln.Addr().String()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- srv.Serve(p.certs.Listen(ln)) }()
	go func() { ended <- p.certs.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, srv.Close())
		<-ended
		<-ended
	})
	return p
}

// dial connects, and returns the name in the server's certificate.
func (p *place) dial(t *testing.T, config *tls.Config) (*tls.Conn, string) {
	t.Helper()
	c, err := tls.Dial("tcp", p.addr, config)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// refuses requires that the server refuses a client.
func (p *place) refuses(t *testing.T, config *tls.Config) {
	t.Helper()
	c, err := tls.Dial("tcp", p.addr, config)
	if err == nil { // with TLS 1.3 the client learns it with its first read
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	require.Error(t, err)
}

func ask(t *testing.T, c io.ReadWriter, text string) {
	t.Helper()
	_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "+"5"+"\r\n\r\n"+text)
	require.NoError(t, err)
	b := make([]byte, 4096)
	for got := ""; !strings.HasSuffix(got, text); {
		n, err := c.Read(b)
		require.NoError(t, err)
		got += string(b[:n])
	}
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	p := serve(t, 60*24*time.Hour, false)
	open, name := p.dial(t, p.ca.Client(t, nil, nil))
	require.Equal(t, "first", name)
	ask(t, open, "hello")

	cert, key := p.ca.Issue(t, "second", time.Now().Add(80*24*time.Hour))
	require.NoError(t, os.WriteFile(p.files[0], cert, 0o600))
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "the new certificate is not usable") }, 10*time.Second, time.Millisecond)
	_, name = p.dial(t, p.ca.Client(t, nil, nil))
	require.Equal(t, "first", name, "without the key that belongs to it, a new certificate is not served")
	require.NoError(t, os.WriteFile(p.files[1], key, 0o600))
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "certificate reloaded") }, 10*time.Second, time.Millisecond)
	_, name = p.dial(t, p.ca.Client(t, nil, nil))
	require.Equal(t, "second", name)
	ask(t, open, "again")

	require.NoError(t, os.Remove(p.files[1]))
	require.Eventually(t, func() bool { return strings.Count(p.log.String(), "not usable") == 2 }, 10*time.Second, time.Millisecond)
	require.Never(t, func() bool { return strings.Count(p.log.String(), "not usable") > 2 }, 30*time.Millisecond, 5*time.Millisecond, "said once")
	_, name = p.dial(t, p.ca.Client(t, nil, nil))
	require.Equal(t, "second", name)
}

// Each mistake in the files is in the log, also one that follows another, and so is that they are good again.
func TestRenewalMistakes(t *testing.T) {
	t.Parallel()
	p := serve(t, 60*24*time.Hour, false)
	good, err := os.ReadFile(p.files[0])
	require.NoError(t, err)
	other, _ := p.ca.Issue(t, "second", time.Now().Add(80*24*time.Hour))
	last := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			return strings.Contains(lines[len(lines)-1], text)
		}, 20*time.Second, time.Millisecond, text)
	}
	for _, c := range []struct {
		text []byte // nil: the file is removed
		want string
	}{
		{nil, "no such file"},
		{other, "private key does not match"},
		{[]byte("garbage"), "failed to find any PEM data"},
		{good, "are again those that are served"},
		{[]byte("garbage"), "failed to find any PEM data"},
		{good, "are again those that are served"},
	} {
		if c.text == nil {
			require.NoError(t, os.Remove(p.files[0]))
		} else {
			require.NoError(t, os.WriteFile(p.files[0], c.text, 0o600))
		}
		last(c.want)
	}
}

func TestClientsNeedCertificates(t *testing.T) {
	t.Parallel()
	p := serve(t, 60*24*time.Hour, true)
	cert, key := p.ca.Issue(t, "ann", time.Now().Add(time.Hour))
	c, _ := p.dial(t, p.ca.Client(t, cert, key))
	ask(t, c, "hello")
	other := certstest.New(t)
	otherCert, otherKey := other.Issue(t, "eve", time.Now().Add(time.Hour))
	expired, expiredKey := p.ca.Issue(t, "old", time.Now().Add(-time.Hour))
	for _, config := range []*tls.Config{p.ca.Client(t, nil, nil), p.ca.Client(t, otherCert, otherKey), p.ca.Client(t, expired, expiredKey)} {
		p.refuses(t, config)
	}
	require.Contains(t, p.log.String(), "without a valid certificate")
}

func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	p := serve(t, 60*24*time.Hour, false)
	for range 3 {
		res, err := http.Post("http://"+p.addr+"/threads", "application/json", strings.NewReader(strings.Repeat("x", 10_000)))
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusBadRequest, res.StatusCode)
		require.Contains(t, string(body), "use https://")
	}
	require.Equal(t, 1, strings.Count(p.log.String(), "speaks plain HTTP"))
	c, err := net.Dial("tcp", p.addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "\x00\x01 nonsense")
	require.NoError(t, err)
	rest, err := io.ReadAll(c)
	require.NoError(t, err)
	require.NotContains(t, string(rest), "HTTP", "what is neither TLS nor HTTP gets no HTTP")
	http.DefaultClient.CloseIdleConnections()
}

func TestExpiryIsLogged(t *testing.T) {
	t.Parallel()
	p := serve(t, 20*24*time.Hour, false)
	pass := func(d time.Duration) {
		later := p.now.Load().Add(d)
		p.now.Store(&later)
	}
	lines := func(what string, n int) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Count(p.log.String(), what) == n }, 10*time.Second, time.Millisecond, "%s", p.log.String())
	}
	lines("expires soon", 0)
	pass(7 * 24 * time.Hour)
	lines("expires soon", 1)
	pass(time.Hour)
	pass(24 * time.Hour)
	lines("expires soon", 2)
	pass(30 * 24 * time.Hour)
	lines("has expired", 1)
	cert, key := p.ca.Issue(t, "second", p.now.Load().Add(80*24*time.Hour))
	require.NoError(t, os.WriteFile(p.files[0], cert, 0o600))
	require.NoError(t, os.WriteFile(p.files[1], key, 0o600))
	lines("certificate reloaded", 1)
	pass(48 * time.Hour)
	require.Never(t, func() bool { return strings.Count(p.log.String(), "expires soon") > 2 }, 20*time.Millisecond, 5*time.Millisecond)
}

func TestUnusableFiles(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	cert, key := ca.Issue(t, "a", time.Now().Add(time.Hour))
	_, other := ca.Issue(t, "b", time.Now().Add(time.Hour))
	files := certstest.Files(t, cert, key, other, []byte("nonsense"))
	for _, tt := range []struct {
		cert, key, ca string
		want          string
	}{
		{files[0] + "x", files[1], "", "--tls-cert: open"},
		{files[0], files[1] + "x", "", "--tls-key: open"},
		{files[0], files[2], "", "private key does not match"},
		{files[3], files[1], "", "--tls-cert needs"},
		{files[1], files[0], "", "--tls-cert needs"},
		{files[0], files[1], files[3], "--tls-client-ca needs"},
		{files[0], files[1], files[3] + "x", "--tls-client-ca: open"},
	} {
		_, err := certs.Load(certs.Options{Cert: tt.cert, Key: tt.key, ClientCA: tt.ca})
		require.ErrorContains(t, err, tt.want)
	}
}

// Files that are written slowly, byte by byte, are served only when they are whole: no client gets half a chain, and none is refused because half of the authorities are
// there.
func TestFilesThatAreHalfWritten(t *testing.T) {
	t.Parallel()
	p := serve(t, 60*24*time.Hour, true)
	client, clientKey := p.ca.Issue(t, "ann", time.Now().Add(time.Hour))
	whole := func() int {
		t.Helper()
		c, err := tls.Dial("tcp", p.addr, p.ca.Client(t, client, clientKey))
		require.NoError(t, err)
		defer c.Close()
		ask(t, c, "hello")
		return len(c.ConnectionState().PeerCertificates)
	}
	require.Equal(t, 1, whole())
	cert, key := p.ca.Issue(t, "second", time.Now().Add(80*24*time.Hour))
	chain := append(append([]byte{}, cert...), p.ca.PEM...)
	require.NoError(t, os.WriteFile(p.files[1], key, 0o600))
	f, err := os.OpenFile(p.files[0], os.O_WRONLY|os.O_TRUNC, 0o600)
	require.NoError(t, err)
	half := len(cert) + len(p.ca.PEM)/2
	_, err = f.Write(chain[:half])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "its last certificate is cut off") }, 10*time.Second, time.Millisecond)
	require.Equal(t, 1, whole(), "the chain from before")
	_, err = f.Write(chain[half:])
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "certificate reloaded") }, 10*time.Second, time.Millisecond)
	require.Equal(t, 2, whole())

	other := certstest.New(t)
	authorities := append(append([]byte{}, other.PEM...), p.ca.PEM...)
	require.NoError(t, os.WriteFile(p.files[2], authorities[:len(other.PEM)+len(p.ca.PEM)/2], 0o600))
	require.Eventually(t, func() bool { return strings.Count(p.log.String(), "its last certificate is cut off") > 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 2, whole(), "whose authority is not there yet")
	require.NoError(t, os.WriteFile(p.files[2], authorities, 0o600))
	require.Eventually(t, func() bool { return strings.Count(p.log.String(), "certificate reloaded") > 1 }, 10*time.Second, time.Millisecond)
	stranger, strangerKey := other.Issue(t, "eve", time.Now().Add(time.Hour))
	c, err := tls.Dial("tcp", p.addr, p.ca.Client(t, stranger, strangerKey))
	require.NoError(t, err)
	defer c.Close()
	ask(t, c, "hello")
	require.Equal(t, 2, whole())
}

// A client whose authority was taken away does not come in again by resuming a session.
func TestResumedSessions(t *testing.T) {
	t.Parallel()
	p := serve(t, 60*24*time.Hour, true)
	client, clientKey := p.ca.Issue(t, "ann", time.Now().Add(time.Hour))
	config := p.ca.Client(t, client, clientKey)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	for n := range 2 {
		c, err := tls.Dial("tcp", p.addr, config)
		require.NoError(t, err)
		ask(t, c, "hello")
		require.Equal(t, n == 1, c.ConnectionState().DidResume)
		require.NoError(t, c.Close())
	}
	require.NoError(t, os.WriteFile(p.files[2], certstest.New(t).PEM, 0o600))
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "certificate reloaded") }, 10*time.Second, time.Millisecond)
	p.refuses(t, config)
}
