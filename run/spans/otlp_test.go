package spans

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"understudy/graph"
	"understudy/run"
)

// A run that is read later is the same tree, with the same IDs each time, for whoever reads OTLP.
func TestOTLP(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)).UTC() }
	row := &run.Run{ID: "r", Thread: "t", Graph: "agent", Status: run.Error, CreatedAt: at(0), StartedAt: at(10), EndedAt: at(100), Attempt: 1}
	spans := func() []Span {
		return []Span{
			{ID: "q1", Attempt: 1, Kind: graph.QueueSpan, Name: "queue", Start: at(0), End: at(10), Status: graph.SpanSuccess},
			{ID: "1", Attempt: 1, Kind: graph.AttemptSpan, Name: "agent", Start: at(10), End: at(100), Status: graph.SpanError, Error: &graph.Failure{Type: "ValueError", Message: "wrong", Detail: "line 1"}},
			{
				ID: "1.2", Parent: "1.1", Attempt: 1, Kind: graph.ModelSpan, Name: "gpt", Start: at(20), First: at(25), End: at(50), Status: graph.SpanSuccess, Model: "gpt-5", Provider: "openai",
				Usage: &graph.SpanUsage{Input: 3, Output: 4, Total: 7}, Input: &graph.SpanContent{JSON: []byte(`[{"type":"human","content":"hello"}]`)}, Output: &graph.SpanContent{JSON: []byte(`{"type":"ai","content":"hi"}`)},
			},
			{ID: "1.1", Parent: "1", Attempt: 1, Kind: graph.NodeSpan, Name: "model", Node: "model", Start: at(20), End: at(60), Status: graph.SpanSuccess},
			{ID: "1.3", Parent: "1.9", Attempt: 1, Kind: graph.ToolSpan, Name: "search", Start: at(60), Status: graph.SpanRunning}, // whose node is not recorded
		}
	}
	ctx, traceIDs := t.Context(), map[string]bool{}
	read := func(list []Span, content bool) map[string]gjson.Result {
		body, err := OTLP(ctx, row, list, content, at(200))
		require.NoError(t, err)
		require.True(t, json.Valid(body))
		byName := map[string]gjson.Result{}
		for _, s := range gjson.GetBytes(body, "resourceSpans.0.scopeSpans.0.spans").Array() {
			require.Regexp(t, `^[0-9a-f]{32}$`, s.Get("traceId").Str)
			require.Regexp(t, `^[0-9a-f]{16}$`, s.Get("spanId").Str)
			traceIDs[s.Get("traceId").Str] = true
			byName[s.Get("name").Str] = s
		}
		return byName
	}
	attribute := func(s gjson.Result, name string) string {
		return s.Get(`attributes.#(key=="` + name + `").value.@values.0`).String()
	}
	got := read(spans(), true)
	require.Len(t, got, 6)
	for name, parent := range map[string]string{"queue": "invoke_agent agent", "attempt": "invoke_agent agent", "node model": "attempt", "chat gpt": "node model", "execute_tool search": "invoke_agent agent"} {
		require.Equal(t, got[parent].Get("spanId").Str, got[name].Get("parentSpanId").Str, name)
	}
	root, model := got["invoke_agent agent"], got["chat gpt"]
	require.Empty(t, root.Get("parentSpanId").Str)
	require.Equal(t, "t", attribute(root, "gen_ai.conversation.id"))
	require.Equal(t, []string{fmt.Sprint(at(0).UnixNano()), fmt.Sprint(at(100).UnixNano())}, []string{root.Get("startTimeUnixNano").Str, root.Get("endTimeUnixNano").Str})
	require.Equal(t, []string{"gpt-5", "3", "4", "openai"}, []string{attribute(model, "gen_ai.response.model"), attribute(model, "gen_ai.usage.input_tokens"), attribute(model, "gen_ai.usage.output_tokens"), attribute(model, "gen_ai.provider.name")})
	require.JSONEq(t, `[{"role":"user","parts":[{"type":"text","content":"hello"}]}]`, attribute(model, "gen_ai.input.messages"))
	require.EqualValues(t, 3, model.Get("kind").Int()) // a client, by number
	require.Equal(t, "first token", model.Get("events.0.name").Str)
	require.EqualValues(t, 2, got["attempt"].Get("status.code").Int())
	require.Equal(t, fmt.Sprint(at(200).UnixNano()), got["execute_tool search"].Get("endTimeUnixNano").Str) // it runs

	require.Equal(t, model.Get("spanId").Str, read(spans(), true)["chat gpt"].Get("spanId").Str)
	require.Empty(t, attribute(read(spans(), false)["chat gpt"], "gen_ai.input.messages"))

	// The request that asks for the run is traced too, and is no part of it.
	request, span := sdktrace.NewTracerProvider().Tracer("requests").Start(ctx, "GET /understudy/runs/{run_id}/otlp")
	defer span.End()
	ctx = request
	require.Empty(t, read(spans(), true)["invoke_agent agent"].Get("parentSpanId").Str)
	require.Len(t, traceIDs, 1)

	// What says that it is below itself ends all the same.
	require.Len(t, read([]Span{{ID: "a", Parent: "b", Name: "a", Kind: graph.NodeSpan, Start: at(1)}, {ID: "b", Parent: "a", Name: "b", Kind: graph.NodeSpan, Start: at(1)}}, false), 3)
}
