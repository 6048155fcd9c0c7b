// Package redistest starts Redis servers of tests: each is private, on a socket in a temporary folder, and can be stopped and started again.
package redistest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Dialing makes goleak ignore goroutines of the client that connect again for up to a second after it was closed.
var Dialing = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")

// Server is a Redis server.
type Server struct {
	URL string
	// Socket is the path of its socket.
	Socket string

	tb   testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
	done chan error
}

// Start starts a server with more arguments, such as "--requirepass", "secret". It keeps nothing over a restart unless they say so. Without
// redis-server on the path the test is left out; in CI that is a failure.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatal("no redis-server on the path")
		}
		tb.Skip("no redis-server on the path: apt-get install redis-server")
	}
	// Paths of sockets are short: those of tests' own folders may be too long.
	dir, err := os.MkdirTemp("", "redis-")
	require.NoError(tb, err)
	s := &Server{tb: tb, dir: dir, Socket: filepath.Join(dir, "s")}
	s.URL = "unix://" + s.Socket
	s.args = append([]string{
		"--port", "0", "--unixsocket", s.Socket, "--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning", "--logfile", filepath.Join(dir, "log"),
	}, args...)
	tb.Cleanup(func() {
		s.Stop()
		if tb.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			tb.Logf("redis: %s", log)
		}
		_ = os.RemoveAll(dir)
	})
	s.Restart()
	return s
}

// StartTLS starts a server that listens with TLS, and returns its address and a file with its CA certificate.
func StartTLS(tb testing.TB, args ...string) (s *Server, address, ca string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(tb, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(tb, err)
	dir := tb.TempDir()
	ca, secret := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	require.NoError(tb, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(tb, os.WriteFile(secret, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	address = free.Addr().String()
	require.NoError(tb, free.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(tb, err)
	s = Start(tb, append([]string{
		"--tls-port", port, "--tls-cert-file", ca, "--tls-key-file", secret, "--tls-ca-cert-file", ca, "--tls-auth-clients", "no",
	}, args...)...)
	return s, address, ca
}

// Stop kills the server, as a power cut would. It may be called when there is none.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
	_ = os.Remove(s.Socket)
}

// Pid is the id of its process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Restart stops the server if it runs, and starts it.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	s.cmd = exec.Command("redis-server", s.args...)
	s.done = make(chan error, 1)
	require.NoError(s.tb, s.cmd.Start())
	cmd, done := s.cmd, s.done
	go func() { done <- cmd.Wait() }()
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("unix", s.Socket)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case err := <-s.done:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.done <- err
			s.tb.Fatalf("redis-server ended: %v\n%s", err, log)
		case <-time.After(10 * time.Millisecond):
		}
		require.True(s.tb, time.Now().Before(deadline), "redis-server does not listen")
	}
}

// Client returns a client of the server, which the test closes.
func (s *Server) Client() *goredis.Client {
	s.tb.Helper()
	o, err := goredis.ParseURL(s.URL)
	require.NoError(s.tb, err)
	c := goredis.NewClient(o)
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Cut closes all connections of clients, which are free to come back.
func (s *Server) Cut() {
	s.tb.Helper()
	require.NoError(s.tb, s.Client().Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
}

// Info returns a field of INFO.
func (s *Server) Info(field string) string {
	s.tb.Helper()
	text, err := s.Client().Info(context.Background()).Result()
	require.NoError(s.tb, err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			return value
		}
	}
	s.tb.Fatalf("redis reports no %s", field)
	return ""
}
