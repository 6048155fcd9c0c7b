package tracing

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, c := range []struct {
		env   map[string]string
		want  bool
		wrong string
	}{
		{nil, false, ""},
		{map[string]string{endpoint: "http://c"}, true, ""},
		{map[string]string{traces: "http://c/v1/traces"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{map[string]string{endpoint: "http://c", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		{map[string]string{endpoint: "http://c", "OTEL_SDK_DISABLED": "True"}, false, ""},
		{map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, ""},
		{map[string]string{endpoint: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "http/protobuf"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, "otlp or none"},
	} {
		got, err := wanted(func(name string) string { return c.env[name] })
		require.Equal(t, c.want, got, c.env)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestClientReadsItsVariables(t *testing.T) {
	t.Parallel()
	read := func(env map[string]string) (*client, error) {
		return newClient(func(name string) string { return env["OTEL_EXPORTER_OTLP_"+name[len("OTEL_EXPORTER_OTLP_"):]] })
	}
	c, err := read(nil)
	require.NoError(t, err)
	require.Equal(t, []any{"http://localhost:4318/v1/traces", 10 * time.Second}, []any{c.url, c.timeout})
	c, err = read(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:1/base/", "OTEL_EXPORTER_OTLP_HEADERS": "a=1, authorization = Bearer%20x", "OTEL_EXPORTER_OTLP_TIMEOUT": "250",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
	})
	require.NoError(t, err)
	require.Equal(t, []any{"https://c:1/base/v1/traces", 250 * time.Millisecond, true, "1", "Bearer x"}, []any{c.url, c.timeout, c.zip, c.header.Get("A"), c.header.Get("Authorization")})
	c, err = read(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "1"})
	require.NoError(t, err)
	require.Equal(t, []any{"http://t/x", time.Millisecond}, []any{c.url, c.timeout})
	for name, value := range map[string]string{
		"ENDPOINT": "c:s3cret", "HEADERS": "s3cret", "TIMEOUT": "soon", "COMPRESSION": "zip", "CERTIFICATE": "/nowhere", "CLIENT_CERTIFICATE": "/nowhere",
	} {
		_, err := read(map[string]string{"OTEL_EXPORTER_OTLP_" + name: value})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// What a collector gets is whole, over TLS, compressed, and sent again when it was busy.
func TestUpload(t *testing.T) {
	t.Parallel()
	tries := 0
	var got tracepb.TracesData
	collector := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		text, err := io.ReadAll(z)
		if err != nil || proto.Unmarshal(text, &got) != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Error(err, r.Header)
		}
	}))
	t.Cleanup(collector.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: collector.Certificate().Raw}), 0o600))
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_CERTIFICATE": ca, "OTEL_EXPORTER_OTLP_TIMEOUT": "60000",
	}
	c, err := newClient(func(name string) string { return env[name] })
	require.NoError(t, err)
	sent := []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "s"}}}}}}
	require.NoError(t, c.UploadTraces(t.Context(), sent))
	require.Equal(t, 2, tries)
	require.Equal(t, "s", got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName())
	require.NoError(t, c.Stop(context.Background()))
}

// The address of an unreachable collector is not logged: it may contain secrets.
func TestUploadTellsNoSecrets(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": strings.Replace(away.URL, "://", "://s3cret@", 1) + "/?api_key=s3cret", "OTEL_EXPORTER_OTLP_TIMEOUT": "100",
	}
	c, err := newClient(func(name string) string { return env[name] })
	require.NoError(t, err)
	for _, retries := range []int{0, 5} { // refused, and out of time
		c.http.RetryMax = retries
		err = c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{}})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
