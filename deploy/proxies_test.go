package deploy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/stretchr/testify/require"

	"understudy/auth"
)

// key is as long as keys are that "understudy keys create" makes.
var key = func() string {
	_, text := auth.New("proxies", "", nil, time.Now(), time.Time{})
	return text
}()

// What stands in front of a server asks for a key and passes each event on as it is sent.
func TestProxies(t *testing.T) {
	t.Parallel()
	t.Run("nginx", func(t *testing.T) {
		t.Parallel()
		nginx, dir := tool(t, "nginx", "UNDERSTUDY_TEST_NGINX"), t.TempDir()
		server, stop := upstream(t)
		text, err := os.ReadFile("nginx/understudy.conf")
		require.NoError(t, err)
		certificate(t, filepath.Join(dir, "understudy.crt"), filepath.Join(dir, "understudy.key"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "understudy.keys"), []byte("\""+key+"\" 1;\n"), 0o600))
		plain, address := free(t), free(t)
		conf := strings.NewReplacer("/etc/nginx/", dir+"/", "127.0.0.1:2024", server, "listen 80;", "listen "+plain+";", "listen 443 ", "listen "+address+" ", "300m", "1m").Replace(string(text))
		temp := ""
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			temp += kind + "_temp_path " + dir + "/" + kind + "; "
		}
		conf = "daemon off; pid " + dir + "/pid; error_log stderr; events {} http { access_log off; " + temp + conf + "}"
		whole := filepath.Join(dir, "nginx.conf")
		require.NoError(t, os.WriteFile(whole, []byte(conf), 0o600))
		serve(t, nil, nginx, "-e", "stderr", "-c", whole)
		behaves(t, "https://"+address)
		require.Equal(t, 413, explained(t, "https://"+address, make([]byte, 2<<20)))
		stop()
		require.Equal(t, 502, explained(t, "https://"+address, nil))
	})
	t.Run("nginx in front of several", func(t *testing.T) {
		t.Parallel()
		nginx, dir := tool(t, "nginx", "UNDERSTUDY_TEST_NGINX"), t.TempDir()
		server, stop := upstream(t)
		text, err := os.ReadFile("nginx.conf")
		require.NoError(t, err)
		address := free(t)
		// Without Docker's names, as its comment says for older versions.
		conf := strings.NewReplacer("/tmp/", dir+"/", "/dev/stderr", "stderr", "listen 8080", "listen "+address, "zone understudy 64k;", "", "resolver 127.0.0.11 valid=5s;", "",
			"one:2024 resolve", server, "server two:2024 resolve max_fails=2 fail_timeout=5s;", "", "300m", "1m").Replace(string(text))
		whole := filepath.Join(dir, "nginx.conf")
		require.NoError(t, os.WriteFile(whole, []byte("daemon off;\n"+conf), 0o600))
		serve(t, nil, nginx, "-e", "stderr", "-c", whole)
		starts(t, "http://"+address)
		socket(t, "http://"+address)
		require.Equal(t, 413, explained(t, "http://"+address, make([]byte, 2<<20)))
		stop()
		require.Equal(t, 502, explained(t, "http://"+address, nil))
	})
	t.Run("caddy", func(t *testing.T) {
		t.Parallel()
		caddy, dir, address := tool(t, "caddy", "UNDERSTUDY_TEST_CADDY"), t.TempDir(), free(t)
		server, stop := upstream(t)
		text, err := os.ReadFile("caddy/Caddyfile")
		require.NoError(t, err)
		// Its own authority signs, and is not installed; nothing else is listened on.
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		text = append([]byte("{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n"), text...)
		file := filepath.Join(dir, "Caddyfile")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		serve(t, []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "SITE=localhost:" + port, "API_KEY=" + key, "UPSTREAMS=" + server},
			caddy, "run", "--adapter", "caddyfile", "--config", file)
		behaves(t, "https://localhost:"+port)
		stop()
		require.Contains(t, []int{502, 503}, explained(t, "https://localhost:"+port, nil)) // 503 once a probe has failed
	})
}

// upstream sends an event, and another one when /next was asked; and it echoes what a WebSocket says. stop ends it.
func upstream(t *testing.T) (address string, stop func()) {
	t.Helper()
	next := make(chan struct{})
	mux := http.NewServeMux()
	for _, route := range []string{"GET /ok", "GET /readyz", "OPTIONS /threads"} {
		mux.HandleFunc(route, func(http.ResponseWriter, *http.Request) {})
	}
	mux.HandleFunc("POST /next", func(http.ResponseWriter, *http.Request) { close(next) })
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: one\n\n"))
		w.(http.Flusher).Flush()
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
		_, _ = w.Write([]byte("data: two\n\n"))
	})
	mux.HandleFunc("GET /socket", func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return // it has answered
		}
		defer conn.Close()
		if text, err := wsutil.ReadClientText(conn); err == nil {
			_ = wsutil.WriteServerText(conn, text)
		}
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(path.Clean(r.URL.Path), "/metrics") {
			return // 200: the servers themselves are stricter
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), func() {
		s.CloseClientConnections()
		s.Close()
	}
}

func unverified() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // their certificates are their own
}

// insecure returns a client of a proxy.
func insecure(t *testing.T) *http.Client {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: unverified(), ForceAttemptHTTP2: true}, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// starts waits until a proxy serves.
func starts(t *testing.T, url string) {
	t.Helper()
	client := insecure(t)
	require.Eventually(t, func() bool {
		res, err := client.Get(url + "/ok")
		return err == nil && res.Body.Close() == nil && res.StatusCode == 200
	}, 30*time.Second, 20*time.Millisecond, "it starts")
}

// socket uses a WebSocket through a proxy.
func socket(t *testing.T, url string) {
	t.Helper()
	dialer := ws.Dialer{Header: ws.HandshakeHeaderHTTP{"X-Api-Key": {key}}, TLSConfig: unverified(), Timeout: time.Minute}
	conn, _, _, err := dialer.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/socket")
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, wsutil.WriteClientText(conn, []byte("hello")))
	text, err := wsutil.ReadServerText(conn)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
}

// explained returns the status with which a proxy refuses a request by itself. A page of another origin can read why.
func explained(t *testing.T, url string, body []byte) int {
	t.Helper()
	client := insecure(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/next", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", key)
	req.Header.Set("Expect", "100-continue") // it is refused before it was sent
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	var problem struct{ Detail string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&problem))
	require.NotEmpty(t, problem.Detail)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	require.Equal(t, []string{"*"}, res.Header.Values("Access-Control-Allow-Origin"))
	return res.StatusCode
}

// serve runs a program until the test ends.
func serve(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // by a signal
	})
}

func behaves(t *testing.T, url string) {
	t.Helper()
	client := insecure(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func(method, path, key string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, url+path, nil)
		require.NoError(t, err)
		if key != "" {
			req.Header.Set("X-Api-Key", key)
		}
		return client.Do(req)
	}
	status := func(method, path, key string) int {
		res, err := ask(method, path, key)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	starts(t, url)
	socket(t, url)
	require.Equal(t, 200, status("OPTIONS", "/threads", ""))
	require.Equal(t, 401, status("GET", "/stream", ""))
	require.Equal(t, 401, status("GET", "/stream", key[:len(key)-1]))
	refused, err := ask("GET", "/stream", "")
	require.NoError(t, err)
	text, err := io.ReadAll(refused.Body)
	require.NoError(t, err)
	require.NoError(t, refused.Body.Close())
	require.JSONEq(t, `{"detail":"X-Api-Key is missing or unknown"}`, string(text))
	require.Equal(t, "application/json", refused.Header.Get("Content-Type"))
	require.Equal(t, []string{"*"}, refused.Header.Values("Access-Control-Allow-Origin"), "a page of another origin may read why")
	for _, prefix := range []string{"", "/api/langgraph", "/understudy"} {
		for _, form := range []string{"/metrics", "/metrics?format=json", "//metrics", "/./metrics", "/a/../metrics", "/%6detrics", "/%2Fmetrics", "/x%2F..%2Fmetrics"} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				require.Contains(t, []int{400, 404}, status(method, prefix+form, key), "%s %s", method, prefix+form)
			}
		}
	}
	res, err := ask("GET", "/stream", key)
	require.NoError(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	require.True(t, lines.Scan())
	require.Equal(t, "data: one", lines.Text()) // before the server has sent the second
	require.Equal(t, 200, status("POST", "/next", key))
	require.True(t, lines.Scan())
	require.Empty(t, lines.Text())
	require.True(t, lines.Scan())
	require.Equal(t, "data: two", lines.Text())
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func certificate(t *testing.T, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	signed, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
