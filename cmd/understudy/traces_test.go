package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

// Variables of LangSmith and Langfuse in env of langgraph.json count, as DeerFlow's others do.
func TestTracesReadEnvOfTheFile(t *testing.T) { // sets variables of the environment
	for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "LANGSMITH_TRACING", "LANGFUSE_TRACING"} {
		t.Setenv(name, "")
	}
	paths := make(chan string, 2)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	defer service.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}, "env": {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "k", "LANGSMITH_ENDPOINT": "`+service.URL+`",
		"LANGFUSE_TRACING": "true", "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "LANGFUSE_BASE_URL": "`+service.URL+`"}}`), 0o600))
	deerflow := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(deerflow, []byte("models: []\n"), 0o600))
	cfg, _, err := config.Load(config.Source{Mode: config.Serve, File: file, Flags: map[string]string{"deerflow": deerflow}})
	require.NoError(t, err)
	provider, flush := startTraces(t.Context(), slog.New(slog.NewTextHandler(io.Discard, nil)), cfg)
	require.NotNil(t, provider)
	_, span := provider.Tracer("x").Start(t.Context(), "run")
	span.End()
	flush()
	require.ElementsMatch(t, []string{"/otel/v1/traces", "/api/public/otel/v1/traces"}, []string{<-paths, <-paths})
}
