package tracing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The variables of LangSmith and Langfuse count as in DeerFlow; without a key the others are sent all the same, and no error has a secret.
func TestServices(t *testing.T) {
	t.Parallel()
	type sent struct{ url, key, project string }
	smith, fuse := map[string]string{"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "s3cret"}, map[string]string{"LANGFUSE_TRACING": "1", "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "s3cret"}
	with := func(sets ...map[string]string) map[string]string {
		all := map[string]string{}
		for _, set := range sets {
			for k, v := range set {
				all[k] = v
			}
		}
		return all
	}
	toSmith, toFuse := sent{"https://api.smith.langchain.com/otel/v1/traces", "s3cret", "deer-flow"}, sent{url: "https://cloud.langfuse.com/api/public/otel/v1/traces", key: "Basic cGs6czNjcmV0"}
	for name, c := range map[string]struct {
		env   map[string]string
		want  []sent
		wrong string
	}{
		"nothing":               {nil, nil, ""},
		"off":                   {with(smith, map[string]string{"LANGSMITH_TRACING": "false"}), nil, ""},
		"the older name of off": {map[string]string{"LANGCHAIN_TRACING_V2": "no", "LANGCHAIN_TRACING": "true", "LANGCHAIN_API_KEY": "x"}, nil, ""},
		"LangSmith":             {smith, []sent{toSmith}, ""},
		"older names":           {map[string]string{"LANGCHAIN_TRACING": "on", "LANGCHAIN_API_KEY": "k", "LANGCHAIN_PROJECT": "p", "LANGCHAIN_ENDPOINT": "https://own/"}, []sent{{"https://own/otel/v1/traces", "k", "p"}}, ""},
		"Langfuse":              {fuse, []sent{toFuse}, ""},
		"its own server":        {with(fuse, map[string]string{"LANGFUSE_BASE_URL": "http://lf:3000/"}), []sent{{"http://lf:3000/api/public/otel/v1/traces", toFuse.key, ""}}, ""},
		"all":                   {with(smith, fuse, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}), []sent{{url: "http://c/v1/traces"}, toSmith, toFuse}, ""},
		"disabled":              {with(smith, fuse, map[string]string{"OTEL_SDK_DISABLED": "true"}), nil, ""},
		"no collector":          {with(smith, map[string]string{"OTEL_TRACES_EXPORTER": "none"}), []sent{toSmith}, ""},
		"no key":                {with(fuse, map[string]string{"LANGSMITH_TRACING": "1"}), []sent{toFuse}, "LANGSMITH_API_KEY"},
		"half a key":            {with(smith, map[string]string{"LANGFUSE_TRACING": "1", "LANGFUSE_SECRET_KEY": "s3cret"}), []sent{toSmith}, "LANGFUSE_PUBLIC_KEY"},
		"no address":            {with(fuse, map[string]string{"LANGFUSE_BASE_URL": "s3cret"}), nil, "LANGFUSE_BASE_URL"},
	} {
		clients, err := clientsOf(func(name string) string { return c.env[name] }, true)
		var got []sent
		for _, one := range clients {
			got = append(got, sent{one.url, one.header.Get("X-Api-Key") + one.header.Get("Authorization"), one.header.Get("Langsmith-Project")})
		}
		require.Equal(t, c.want, got, name)
		if c.wrong == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.wrong, name)
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
	clients, err := clientsOf(func(name string) string { return with(smith, fuse)[name] }, false)
	require.NoError(t, err)
	require.Empty(t, clients)
}

// Spans reach each service with its key.
func TestSpansReachServices(t *testing.T) { // sets variables of the environment
	got := make(chan string, 2)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body) > 0 {
			got <- r.URL.Path + " " + r.Header.Get("X-Api-Key") + r.Header.Get("Authorization")
		}
	}))
	defer service.Close()
	for name, value := range map[string]string{
		"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "k", "LANGSMITH_ENDPOINT": service.URL, "LANGFUSE_TRACING": "true", "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk",
		"LANGFUSE_BASE_URL": service.URL, "OTEL_SDK_DISABLED": "", "OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "",
	} {
		t.Setenv(name, value)
	}
	p, err := FromEnv(t.Context(), "1", true)
	require.NoError(t, err)
	_, span := p.Tracer("x").Start(t.Context(), "run")
	span.End()
	require.NoError(t, p.Shutdown(t.Context()))
	require.ElementsMatch(t, []string{"/otel/v1/traces k", "/api/public/otel/v1/traces Basic cGs6c2s="}, []string{<-got, <-got})
}
