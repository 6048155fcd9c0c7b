package app

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/config"
	"understudy/internal/logtest"
	"understudy/internal/redistest"
	"understudy/internal/tracing"
	"understudy/storage/postgres/migratedtest"
)

// saves is a graph that saves one checkpoint. Only Stream is used.
type saves struct{ graph.Graph }

func (saves) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		err := inv.Saver.Save(ctx, graph.Save{Put: &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
			Key:  checkpointer.Key{Thread: inv.Thread, ID: "1f000000-0000-6000-8000-000000000001"},
			Data: json.RawMessage(`{"channel_values":{},"channel_versions":{}}`), Metadata: json.RawMessage(`{}`), Run: inv.Run,
		}}})
		if err != nil {
			yield(graph.Event{}, err)
			return
		}
		yield(graph.Event{Name: "values", Data: json.RawMessage(`{}`)}, nil)
	}
}

// operate serves a graph with settings until the test ends.
func operate(t *testing.T, g graph.Graph, c Config, flags map[string]string) (address string) {
	t.Helper()
	all := map[string]string{"port": "0", "data": t.TempDir()}
	for name, value := range flags {
		all[name] = value
	}
	var err error
	c.Settings, _, err = config.Load(config.Source{Mode: config.Serve, Flags: all, Lookup: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	return runWith(t, c, "g", g).url()
}

// collectSpans is an OTLP collector. It returns the received spans by name.
func collectSpans(t *testing.T) (address string, spans func() map[string]*tracepb.Span) {
	t.Helper()
	var mu sync.Mutex
	all := map[string]*tracepb.Span{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = unzipped
		}
		text, err := io.ReadAll(body)
		var got tracepb.TracesData
		if err != nil || proto.Unmarshal(text, &got) != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Api-Key") != "k" {
			t.Errorf("%s %v: %v", r.URL, r.Header, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range got.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					all[s.GetName()] = s
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string]*tracepb.Span {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// A request to one server, whose client is in a trace, and the run that another server executes are in that trace.
func TestTraces(t *testing.T) {
	address, spans := collectSpans(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k")
	provide := func() trace.TracerProvider {
		p, err := tracing.FromEnv(t.Context(), "1", nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
		return p
	}
	database, redis := migratedtest.Database(t), redistest.Start(t)
	shared := map[string]string{"database-url": database, "database-connections": "4", "redis-url": redis.URL}
	serving, working := provide(), provide()
	executes := operate(t, saves{}, Config{Tracing: working}, shared)
	shared["concurrency"] = "0"
	only := operate(t, saves{}, Config{Tracing: serving}, shared)

	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ask := func(method, target, body string) map[string]any {
		req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Traceparent", parent)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var answer map[string]any
		require.NoError(t, json.NewDecoder(res.Body).Decode(&answer))
		return answer
	}
	thread, _ := ask("POST", only+"/threads", `{}`)["thread_id"].(string)
	made := ask("POST", only+"/threads/"+thread+"/runs", `{"assistant_id":"g","input":{}}`)
	ask("GET", executes+"/threads/"+thread+"/runs/"+made["run_id"].(string)+"/join", "")
	for _, p := range []trace.TracerProvider{serving, working} {
		flush := p.(interface{ ForceFlush(context.Context) error })
		require.Eventually(t, func() bool {
			require.NoError(t, flush.ForceFlush(t.Context()))
			got := spans()
			return p == serving && got["POST /threads/{thread_id}/runs"] != nil || got["run g"] != nil
		}, time.Minute, 10*time.Millisecond)
	}
	got := spans()
	for _, name := range []string{"POST /threads", "POST /threads/{thread_id}/runs", "run g", "queue", "save"} {
		require.NotNil(t, got[name], name)
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(got[name].GetTraceId()), name)
	}
	request, attempt := got["POST /threads/{thread_id}/runs"], got["run g"]
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(request.GetParentSpanId()))
	require.Equal(t, request.GetSpanId(), attempt.GetParentSpanId())
	require.Equal(t, request.GetSpanId(), got["queue"].GetParentSpanId())
	require.Equal(t, attempt.GetSpanId(), got["save"].GetParentSpanId())
	require.LessOrEqual(t, got["queue"].GetStartTimeUnixNano(), got["queue"].GetEndTimeUnixNano())
	require.Equal(t, []any{made["run_id"], thread, "success"}, []any{attribute(attempt, "run_id"), attribute(attempt, "thread_id"), attribute(attempt, "outcome")})
	require.Equal(t, []string{thread, thread, "g", "AGENT"},
		[]string{attribute(attempt, "session.id"), attribute(attempt, "gen_ai.conversation.id"), attribute(attempt, "gen_ai.agent.name"), attribute(attempt, "openinference.span.kind")})
	require.Equal(t, made["run_id"], attribute(request, "run_id"))
	require.Nil(t, got["GET /readyz"])
}

// Without a collector there are no spans, and runs carry no trace.
func TestNoTraces(t *testing.T) {
	t.Parallel()
	p, err := tracing.FromEnv(t.Context(), "1", nil)
	require.NoError(t, err)
	require.Nil(t, p)
	address := operate(t, saves{}, Config{}, nil)
	thread, _ := call(t, "POST", address+"/threads", `{}`)["thread_id"].(string)
	made := call(t, "POST", address+"/threads/"+thread+"/runs", `{"assistant_id":"g","input":{}}`)
	text, err := json.Marshal(made)
	require.NoError(t, err)
	require.NotContains(t, string(text), "otel")
}

// fails is a graph whose every run fails in a way that is logged.
type fails struct{ graph.Graph }

func (fails) Stream(context.Context, graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		yield(graph.Event{}, &graph.Failure{Type: "ValueError", Message: "boom", Detail: "Traceback: boom"})
	}
}

// Every line about a run says which run of which thread it is about, and which request made it; no line has a secret in it, also not when what the
// secrets are for does not work.
func TestLog(t *testing.T) {
	t.Parallel()
	const secret = "pa55w0rd-s3cret"
	var log logtest.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	redis := redistest.Start(t, "--requirepass", secret)
	database := migratedtest.Database(t)
	u, err := url.Parse(database)
	require.NoError(t, err)
	if u.User != nil {
		u.User = url.UserPassword(u.User.Username(), secret) // tests accept any user
	} else {
		u.User = url.UserPassword(os.Getenv("USER"), secret)
	}
	address := operate(t, fails{}, Config{Log: logger}, map[string]string{
		"database-url": u.String(), "database-connections": "4", "redis-url": strings.Replace(redis.URL, "unix://", "unix://:"+secret+"@", 1),
	})
	req, err := http.NewRequestWithContext(t.Context(), "POST", address+"/threads", strings.NewReader(`{"metadata":{"note":"`+secret+`"}}`))
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", secret)
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("X-Request-Id", "asked-for-it")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	var made map[string]any
	require.NoError(t, json.NewDecoder(res.Body).Decode(&made))
	require.NoError(t, res.Body.Close())
	thread, _ := made["thread_id"].(string)
	req, err = http.NewRequestWithContext(t.Context(), "POST", address+"/threads/"+thread+"/runs", strings.NewReader(`{"assistant_id":"g","input":{"key":"`+secret+`"}}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", "asked-for-it")
	res, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(res.Body).Decode(&made))
	require.NoError(t, res.Body.Close())
	id, _ := made["run_id"].(string)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "run ended") }, time.Minute, 10*time.Millisecond)
	redis.Stop()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "redis read failed") }, time.Minute, 10*time.Millisecond)
	about := 0
	for line := range strings.Lines(log.String()) {
		var l map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		if msg, _ := l["msg"].(string); msg == "run ended" || msg == "graph raised" || strings.Contains(line, id) {
			about++
			require.Equal(t, []any{id, thread, "asked-for-it"}, []any{l["run_id"], l["thread_id"], l["request_id"]}, line)
		}
	}
	require.GreaterOrEqual(t, about, 3, "the request, what the graph raised, the end")
	require.NotContains(t, log.String(), secret)

	// What cannot be opened is named without its password.
	for _, flags := range []map[string]string{
		{"database-url": "postgres://u:" + secret + "@127.0.0.1:1/d?connect_timeout=1"},
		{"database-url": "postgres://u:" + secret + "@%zz/d"},
		{"database-url": database, "redis-url": "redis://:" + secret + "@host:port/x"},
	} {
		flags["port"] = "0"
		settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
		if err == nil {
			_, err = New(t.Context(), Config{Settings: settings, Log: logger})
		}
		require.Error(t, err)
		require.NotContains(t, err.Error(), secret)
	}
	require.NotContains(t, log.String(), secret)
}

// Every metric that a server has stands in the documentation, and what stands there a server has.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	address := operate(t, saves{}, Config{}, map[string]string{"database-url": migratedtest.Database(t), "database-connections": "4", "redis-url": redis.URL})
	thread, _ := call(t, "POST", address+"/threads", `{}`)["thread_id"].(string)
	call(t, "POST", address+"/threads/"+thread+"/runs/wait", `{"assistant_id":"g","input":{}}`)
	page, err := os.ReadFile("../../docs/monitoring.md")
	require.NoError(t, err)
	names := regexp.MustCompile(`\bunderstudy_[a-z_]+\b`)
	documented := map[string]bool{}
	for _, name := range names.FindAllString(string(page), -1) {
		documented[strings.TrimSuffix(name, "_bucket")] = true
	}
	res, err := http.Get(address + "/metrics")
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	exposed := map[string]bool{
		"understudy_workers": true, "understudy_worker_memory_bytes": true, "understudy_worker_deaths_total": true,
		"understudy_worker_blocked_total": true, "understudy_worker_blocked_seconds_total": true,
	} // of Python
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (understudy_\w+) `).FindAllStringSubmatch(string(text), -1) {
		exposed[m[1]] = true
		require.True(t, documented[m[1]], m[1])
	}
	for name := range documented {
		require.True(t, exposed[name], name)
	}
	// Dashboard and alerts ask for metrics that there are.
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		watched, err := os.ReadFile("../../deploy/monitoring/" + file)
		require.NoError(t, err)
		found := regexp.MustCompile(`\b(?:understudy|lg_api|process|go)_[a-z_]+\b`).FindAllString(string(watched), -1)
		require.NotEmpty(t, found)
		for _, name := range found {
			name = strings.TrimSuffix(name, "_bucket")
			require.True(t, exposed[name] || strings.Contains(string(text), "# TYPE "+name+" "), "%s: %s", file, name)
		}
	}
	require.Contains(t, string(text), "process_resident_memory_bytes")
	require.Contains(t, string(text), "lg_api_num_pending_runs 0\n")
}

// asks is a graph that ends at an interrupt, after it has streamed what the run asks for; one with the input {"answer": …} does not.
type asks struct{ graph.Graph }

func (asks) Stream(_ context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		if !yield(graph.Event{Name: "values", Data: json.RawMessage(`{"text":"about __interrupt__"}`)}, nil) || strings.Contains(string(inv.Input), "answer") {
			return
		}
		for _, mode := range []string{"updates", "values"} {
			if !yield(graph.Event{Name: mode, Data: json.RawMessage(`{"__interrupt__":[{"value":"go on?","id":"1"}]}`)}, nil) {
				return
			}
		}
	}
}

// The log says of runs without a thread too that they ended at an interrupt.
func TestLogOfInterruptedRuns(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/runs/wait", "/runs/stream", "/runs"} {
		for input, want := range map[string]string{"{}": "interrupted", `{"answer":1}`: "success"} {
			var log logtest.Buffer
			address := operate(t, asks{}, Config{Log: slog.New(slog.NewJSONHandler(&log, nil))}, nil)
			res, err := http.Post(address+path, "application/json", strings.NewReader(`{"assistant_id":"g","input":`+input+`}`))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, 200, res.StatusCode, path)
			require.Eventually(t, func() bool { return strings.Contains(log.String(), `"msg":"run ended"`) }, time.Minute, 10*time.Millisecond)
			require.Contains(t, log.String(), `"outcome":"`+want+`"`, "%s %s", path, input)
		}
	}
}
