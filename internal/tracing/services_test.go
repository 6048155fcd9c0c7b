package tracing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
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
		getenv := func(name string) string { return c.env[name] }
		clients, err := clientsOf(getenv, getenv)
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
	clients, err := clientsOf(func(name string) string { return with(smith, fuse)[name] }, nil)
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
	p, err := FromEnv(t.Context(), "1", os.Getenv)
	require.NoError(t, err)
	_, span := p.Tracer("x").Start(t.Context(), "run")
	span.End()
	require.NoError(t, p.Shutdown(t.Context()))
	require.ElementsMatch(t, []string{"/otel/v1/traces k", "/api/public/otel/v1/traces Basic cGs6c2s="}, []string{<-got, <-got})
}

// destinations returns a client for each kind of destination, all at one address, with secrets in the address and in headers.
func destinations(t *testing.T, address string) []*client {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User = url.UserPassword("s3cret", "s3cret")
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": u.String(), "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=s3cret", "LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "s3cret", "LANGSMITH_ENDPOINT": u.String(),
		"LANGFUSE_TRACING": "true", "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "s3cret", "LANGFUSE_BASE_URL": u.String(),
	}
	getenv := func(name string) string { return env[name] }
	clients, err := clientsOf(getenv, getenv)
	require.NoError(t, err)
	require.Len(t, clients, 3)
	return clients
}

// Neither keys nor spans follow a redirect, wherever it leads.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Error("followed to", r.URL, r.Header) }))
	defer elsewhere.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.Header.Get("Code"))
		if err != nil {
			t.Error(err)
		}
		http.Redirect(w, r, elsewhere.URL+"/new?s3cret", code)
	}))
	defer first.Close()
	for i, c := range destinations(t, first.URL) {
		for _, code := range []int{301, 302, 303, 307, 308} {
			c.header.Set("Code", strconv.Itoa(code))
			err := c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{}})
			require.ErrorContains(t, err, "its address redirects to "+elsewhere.URL+", which is not followed; set "+[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "LANGSMITH_ENDPOINT", "LANGFUSE_BASE_URL"}[i])
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
}

// An error names its destination, and the variable to correct.
func TestErrorsNameTheDestination(t *testing.T) {
	t.Parallel()
	var code atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }))
	clients := destinations(t, srv.URL)
	names, keys := []string{"the collector", "LangSmith", "Langfuse"}, []string{"OTEL_EXPORTER_OTLP_HEADERS", "LANGSMITH_API_KEY", "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"}
	addresses := []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "LANGSMITH_ENDPOINT", "LANGFUSE_BASE_URL"}
	says := func(want func(i int) string) {
		for i, c := range clients {
			c.http.RetryMax = 0
			err := c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{}})
			require.ErrorContains(t, err, names[i])
			require.ErrorContains(t, err, want(i))
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
	for _, refused := range []int{401, 403} {
		code.Store(int64(refused))
		says(func(i int) string { return " answered " + strconv.Itoa(refused) + ": check " + keys[i] })
	}
	code.Store(404)
	says(func(i int) string { return " answered 404: check " + addresses[i] })
	code.Store(500)
	says(func(int) string { return " answered 500" })
	srv.Close()
	says(func(i int) string { return "; check " + addresses[i] })
}

// Variables of the services come from where the caller looks, such as env of langgraph.json; and those of OpenTelemetry from the process.
func TestServicesHaveVariablesOfTheirOwn(t *testing.T) {
	t.Parallel()
	in := map[string]string{"LANGFUSE_TRACING": "1", "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}
	clients, err := clientsOf(func(string) string { return "" }, func(name string) string { return in[name] })
	require.NoError(t, err)
	require.Len(t, clients, 1)
	require.Equal(t, "Langfuse", clients[0].place.name)
}

// What cannot be sent leaves no goroutine.
func TestErrorsLeaveNothing(t *testing.T) { // sets variables of the environment
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_RESOURCE_ATTRIBUTES": "nonsense"} {
		t.Setenv(name, value)
	}
	before := goleak.IgnoreCurrent()
	for range 3 {
		p, err := FromEnv(t.Context(), "1", nil)
		require.Error(t, err)
		require.Nil(t, p)
	}
	goleak.VerifyNone(t, before)
}
