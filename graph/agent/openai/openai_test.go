package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"
	"go.uber.org/goleak"

	"understudy/graph/agent/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of a server that answers with handler.
func serve(t *testing.T, o Options, handler http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(handler)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	if o.BaseURL == "" {
		o.BaseURL = srv.URL + "/v1"
	}
	if o.Transport == nil {
		o.Transport = transport
	}
	if o.Model == "" {
		o.Model = "m"
	}
	c, err := New(o)
	require.NoError(t, err)
	return c
}

// stream answers with the bytes of a recorded stream.
func stream(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, body)
	}
}

var hello = []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, "hello")}

func chunks(ctx context.Context, c llm.ChunkStreamer, options ...llms.CallOption) (all []llm.Chunk, err error) {
	for chunk, err := range c.StreamChunks(ctx, hello, options...) {
		if err != nil {
			return all, err
		}
		all = append(all, chunk)
	}
	return all, nil
}

// flat is an answer without its builders.
type flat struct {
	Content, Reasoning, Refusal, Finish, Model, Fingerprint string
	Calls                                                   []llm.ToolCallDelta
	Usage                                                   *llm.Usage
}

func sum(all []llm.Chunk) flat {
	var a llm.Answer
	for _, c := range all {
		a.Add(c)
	}
	f := flat{a.Content.String(), a.Reasoning.String(), a.Refusal.String(), a.FinishReason, a.Model, a.Fingerprint, nil, a.Usage}
	for _, c := range a.ToolCalls {
		f.Calls = append(f.Calls, llm.ToolCallDelta{Index: c.Index, ID: c.ID, Name: c.Name, Arguments: c.Arguments.String()})
	}
	return f
}

// Streams as servers send them, with ids and texts shortened: testdata/<server>_<case>.sse.
func TestRecordedStreams(t *testing.T) {
	t.Parallel()
	weather := func(i int, id, city string) llm.ToolCallDelta {
		return llm.ToolCallDelta{Index: i, ID: id, Name: "weather", Arguments: fmt.Sprintf(`{"city":%q}`, city)}
	}
	tests := map[string]flat{
		"openai_text":          {Content: "Hello there", Finish: "stop", Model: "gpt-4o-2024-08-06", Fingerprint: "fp_1", Usage: &llm.Usage{Input: 9, Output: 2, Total: 11, CacheRead: 4}},
		"openai_parallel":      {Finish: "tool_calls", Model: "gpt-4o-2024-08-06", Fingerprint: "fp_1", Calls: []llm.ToolCallDelta{weather(0, "call_a", "Paris"), weather(1, "call_b", "Rome")}},
		"openai_refusal":       {Refusal: "I can't help with that.", Finish: "stop", Model: "gpt-4o-2024-08-06"},
		"openai_reasoning":     {Content: "4", Finish: "stop", Model: "o4-mini", Usage: &llm.Usage{Input: 10, Output: 70, Total: 80, Reasoning: 64}},
		"azure_filter":         {Content: "Hi", Finish: "content_filter", Model: "gpt-4o"},
		"vllm_tools":           {Finish: "tool_calls", Model: "qwen", Calls: []llm.ToolCallDelta{weather(0, "chatcmpl-tool-1", "Paris"), weather(1, "chatcmpl-tool-2", "Rome")}, Usage: &llm.Usage{Input: 20, Output: 30, Total: 50}},
		"vllm_reasoning":       {Reasoning: "Let me see", Content: "4", Finish: "stop", Model: "qwen"},
		"ollama_tools":         {Finish: "tool_calls", Model: "llama3.2", Fingerprint: "fp_ollama", Calls: []llm.ToolCallDelta{weather(0, "call_x1", "Paris"), weather(1, "call_x2", "Rome")}},
		"ollama_thinking":      {Reasoning: "Hm", Content: "4", Finish: "stop", Model: "qwen3", Fingerprint: "fp_ollama"},
		"deepseek_reasoner":    {Reasoning: "First, think", Content: "4", Finish: "stop", Model: "deepseek-reasoner", Usage: &llm.Usage{Input: 6, Output: 20, Total: 26, CacheRead: 5, Reasoning: 15}},
		"openrouter_comments":  {Content: "Hello", Reasoning: "Hm", Finish: "stop", Model: "x/y", Usage: &llm.Usage{Input: 1, Output: 2, Total: 3}},
		"gemini_no_index":      {Finish: "tool_calls", Model: "gemini-2.0-flash", Calls: []llm.ToolCallDelta{weather(0, "f1", "Paris"), weather(1, "f2", "Rome")}},
		"no_ids":               {Finish: "stop", Model: "m", Calls: []llm.ToolCallDelta{weather(0, "", "Paris"), weather(1, "", "Rome")}},
		"mistral_parts":        {Content: "4", Reasoning: "Well", Finish: "stop", Model: "magistral"},
		"groq_usage":           {Content: "Hi", Finish: "stop", Model: "llama", Usage: &llm.Usage{Input: 3, Output: 1, Total: 4}},
		"repeated_names":       {Finish: "tool_calls", Model: "m", Calls: []llm.ToolCallDelta{weather(0, "c1", "Paris")}},
		"interleaved":          {Finish: "tool_calls", Model: "m", Calls: []llm.ToolCallDelta{weather(0, "c1", "Paris"), weather(1, "c2", "Rome")}},
		"arguments_object":     {Finish: "tool_calls", Model: "m", Calls: []llm.ToolCallDelta{weather(0, "c1", "Paris")}},
		"running_usage":        {Content: "ab", Finish: "stop", Model: "m", Usage: &llm.Usage{Input: 1, Output: 2, Total: 3}},
		"done_at_the_end":      {Content: "Hi", Finish: "stop", Model: "m"},
		"no_done":              {Content: "Hi", Finish: "stop", Model: "m"},
		"crlf_and_other_lines": {Content: "a\u2028b", Finish: "stop", Model: "m"},
	}
	files, err := filepath.Glob("testdata/*.sse")
	require.NoError(t, err)
	require.Len(t, files, len(tests), "each file is a case")
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(filepath.Join("testdata", name+".sse"))
			require.NoError(t, err)
			got, err := chunks(t.Context(), serve(t, Options{}, stream(string(body))))
			require.NoError(t, err)
			if diff := cmp.Diff(want, sum(got)); diff != "" {
				t.Error(diff)
			}
			// However the bytes arrive, the chunks are the same.
			slow, err := chunks(t.Context(), client(t, iotest.OneByteReader(strings.NewReader(string(body)))))
			require.NoError(t, err)
			require.Equal(t, got, slow)
			checkForm(t, got)
		})
	}
}

// body is a transport that answers each request with the same bytes.
type body struct{ io.Reader }

func (b body) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(b.Reader)}, nil
}

func client(t *testing.T, answer io.Reader) *Client {
	t.Helper()
	c, err := New(Options{MaxEvent: 1 << 16, Retries: -1, Transport: body{answer}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return c
}

// checkForm: what Chunk promises.
func checkForm(t *testing.T, all []llm.Chunk) {
	t.Helper()
	ids := map[int]string{}
	usage, finish := 0, 0
	for _, c := range all {
		if c.Usage != nil {
			usage++
		}
		if c.FinishReason != "" {
			finish++
		}
		for _, call := range c.ToolCalls {
			require.LessOrEqual(t, call.Index, len(ids), "calls are numbered as they come")
			require.True(t, ids[call.Index] == "" || call.ID == "", "an id comes once")
			ids[call.Index] += call.ID
		}
	}
	require.LessOrEqual(t, usage, 1)
	require.LessOrEqual(t, finish, 1)
}

func event(data string) string { return "data: " + data + "\n\n" }

const (
	said     = `{"model":"m","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}`
	finished = `{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
)

func TestErrorsInStreams(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       error // a *llm.Error is compared whole
		text       string
		got        int // chunks before it
	}{
		{
			"openai", event(said) + event(`{"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}`) + event("[DONE]"),
			&llm.Error{Status: 200, Type: "server_error", Message: "The server had an error"}, "", 1,
		},
		{
			"openrouter", event(`{"id":"x","error":{"code":502,"message":"Upstream gone"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`),
			&llm.Error{Status: 200, Code: "502", Message: "Upstream gone"}, "", 0,
		},
		{
			"old vllm", event(`{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`),
			&llm.Error{Status: 200, Type: "BadRequestError", Code: "400", Message: "too long"}, "", 0,
		},
		{"a text", event(said) + event(`{"error":"out of memory"}`), &llm.Error{Status: 200, Message: "out of memory"}, "", 1},
		{"groq", event(`{"choices":[],"x_groq":{"error":"failed"}}`), &llm.Error{Status: 200, Message: "failed"}, "", 0},
		{"ends without a word", event(said), llm.ErrCut, "", 1},
		{"a text of its own event", "event: error\ndata: no memory left\n\n", &llm.Error{Status: 200, Message: "no memory left"}, "", 0},
		{
			"minimax", event(`{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"},"choices":null}`),
			&llm.Error{Status: 200, Code: "1008", Message: "insufficient balance"}, "", 0,
		},
		{"empty", "", llm.ErrCut, "", 0},
		{"ends in a line", event(said) + `data: {"choices":[{"ind`, llm.ErrCut, "", 1},
		{"no JSON", event("hello"), nil, `the server sent "hello"`, 0},
		{"only the end", event("[DONE]"), llm.ErrNone, "", 0},
		{"usage and the end", event(`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}`) + event("[DONE]"), llm.ErrNone, "", 0},
		{"garbage and the end", event("<p>") + event("[DONE]"), llm.ErrNone, "", 0},
		{"openrouter's reason", event(`{"choices":[{"index":0,"delta":{},"finish_reason":"error","native_finish_reason":"MALFORMED"}]}`), &llm.Error{Status: 200, Code: "MALFORMED", Message: "the provider ended the answer with an error"}, "", 0},
		{
			"openrouter's reason with an error", event(said) + event(`{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"upstream died"}}]}`),
			&llm.Error{Status: 200, Code: "502", Message: "upstream died"}, "", 1,
		},
		{"only what is not understood", event(`{"choice":[{"index":0,"delta":{"content":7}}]}`), llm.ErrNone, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := chunks(t.Context(), serve(t, Options{Retries: -1}, stream(tt.body)))
			require.Error(t, err)
			require.Len(t, got, tt.got)
			var wanted *llm.Error
			switch {
			case errors.As(tt.want, &wanted):
				var said *llm.Error
				require.ErrorAs(t, err, &said)
				require.Equal(t, wanted, said)
			case tt.want != nil:
				require.ErrorIs(t, err, tt.want)
				require.Equal(t, errors.Is(tt.want, llm.ErrCut), errors.Is(err, io.ErrUnexpectedEOF))
			default:
				require.ErrorContains(t, err, tt.text)
			}
		})
	}
}

// A connection that is cut in the middle of an answer is an error. An answer that came completely is kept.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want error
	}{"in the text": {event(said), llm.ErrCut}, "behind the finish reason": {event(said) + event(finished), nil}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				stream(tt.body)(w, r)
				w.(http.Flusher).Flush()
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					conn.Close()
				}
			})
			got, err := chunks(t.Context(), c)
			require.ErrorIs(t, err, tt.want)
			require.Equal(t, "Hi", sum(got).Content)
		})
	}
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300_000) // far more than the 64 KiB of bufio.Scanner
	body := event(fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, long)) + event(finished) + event("[DONE]")
	got, err := chunks(t.Context(), serve(t, Options{}, stream(body)))
	require.NoError(t, err)
	require.Equal(t, long, sum(got).Content)

	_, err = chunks(t.Context(), serve(t, Options{MaxEvent: 100_000}, stream(body)))
	require.ErrorIs(t, err, llm.ErrTooLarge)
	_, err = chunks(t.Context(), serve(t, Options{MaxBody: 100_000}, stream(body)))
	require.Error(t, err)
}

func TestAnswerInOnePiece(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,
			"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}}]},"finish_reason":"tool_calls"}],
			"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`)
	})
	got, err := chunks(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, flat{
		Finish: "tool_calls", Model: "m", Usage: &llm.Usage{Input: 1, Output: 2, Total: 3},
		Calls: []llm.ToolCallDelta{{ID: "c1", Name: "weather", Arguments: `{"city":"Paris"}`}},
	}, sum(got))
}

func TestRetries(t *testing.T) {
	t.Parallel()
	ok := event(said) + event(finished) + event("[DONE]")
	refuse := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":"no: %d","type":"t","code":"c"}}`, status)
		}
	}
	soon := []string{"Retry-After-Ms", "1"}
	tests := []struct {
		name    string
		answers []http.HandlerFunc
		retries int
		status  int // of the error; 0: none
		tries   int32
	}{
		{"busy, then well", []http.HandlerFunc{refuse(429, soon...), refuse(503, soon...), stream(ok)}, 2, 0, 3},
		{"busy for too long", []http.HandlerFunc{refuse(429, soon...), refuse(429, soon...), refuse(429, soon...), stream(ok)}, 2, 429, 3},
		{"a date that is over", []http.HandlerFunc{refuse(429, "Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"), stream(ok)}, 1, 0, 2},
		{"wait of an hour is not waited", []http.HandlerFunc{refuse(429, "Retry-After", "3600"), stream(ok)}, 2, 429, 1},
		{"wrong key", []http.HandlerFunc{refuse(401), stream(ok)}, 2, 401, 1},
		{"bad request", []http.HandlerFunc{refuse(400), stream(ok)}, 2, 400, 1},
		{"the server says no", []http.HandlerFunc{refuse(500, "X-Should-Retry", "false"), stream(ok)}, 2, 500, 1},
		{"the server says yes", []http.HandlerFunc{refuse(400, "X-Should-Retry", "true", "Retry-After-Ms", "1"), stream(ok)}, 2, 0, 2},
		{"none wanted", []http.HandlerFunc{refuse(500, soon...), stream(ok)}, -1, 500, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			c := serve(t, Options{Retries: tt.retries}, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || !json.Valid(body) {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				tt.answers[tries.Add(1)-1](w, r)
			})
			got, err := chunks(t.Context(), c)
			require.Equal(t, tt.tries, tries.Load())
			if tt.status == 0 {
				require.NoError(t, err)
				require.Equal(t, "Hi", sum(got).Content)
				return
			}
			var said *llm.Error
			require.ErrorAs(t, err, &said)
			require.Equal(t, tt.status, said.Status)
			require.Equal(t, fmt.Sprintf("no: %d", tt.status), said.Message)
		})
	}
}

// Once a part of an answer was seen, the request is not retried.
func TestNoRetryInTheMiddle(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	c := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		stream(event(said))(w, r)
	})
	_, err := chunks(t.Context(), c)
	require.ErrorIs(t, err, llm.ErrCut)
	require.Equal(t, int32(1), tries.Load())
}

func TestErrorsBefore(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       llm.Error
	}{
		{
			"openai", `{"error":{"message":"Incorrect API key","type":"invalid_request_error","param":"p","code":"invalid_api_key"}}`,
			llm.Error{Type: "invalid_request_error", Code: "invalid_api_key", Param: "p", Message: "Incorrect API key"},
		},
		{
			"azure", `{"error":{"code":"DeploymentNotFound","message":"The API deployment does not exist"}}`,
			llm.Error{Code: "DeploymentNotFound", Message: "The API deployment does not exist"},
		},
		{"fastapi", `{"detail":"Not Found"}`, llm.Error{Message: "Not Found"}},
		{"a page", "<html>Bad gateway</html>", llm.Error{Message: "the server sent an HTML page (Bad gateway)", Page: true}},
		{"gemini's list", `[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]`, llm.Error{Code: "400", Message: "bad"}},
		{"nothing", "", llm.Error{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Request-Id", "req_1")
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, tt.body)
			})
			_, err := chunks(t.Context(), c)
			var got *llm.Error
			require.ErrorAs(t, err, &got)
			tt.want.Status, tt.want.RequestID = 404, "req_1"
			require.Equal(t, &tt.want, got)
		})
	}
	require.True(t, (&llm.Error{Message: "This model's maximum context length is 8192 tokens"}).ContextOverflow())
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	block := func(first string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if first != "" {
				stream(first)(w, r)
				w.(http.Flusher).Flush()
			}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
	}
	_, err := chunks(t.Context(), serve(t, Options{Idle: 20 * time.Millisecond}, block(event(said))))
	require.ErrorIs(t, err, llm.ErrIdle)

	var tries atomic.Int32
	_, err = chunks(t.Context(), serve(t, Options{Timeout: 20 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		block("")(w, r)
	}))
	require.ErrorIs(t, err, llm.ErrSlow)
	require.LessOrEqual(t, tries.Load(), int32(1), "another try takes as long again") // 0: the request did not arrive in that time

	gone := errors.New("the run was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for _, err := range serve(t, Options{}, block(event(said))).StreamChunks(ctx, hello) {
		if err == nil {
			cancel(gone)
			continue
		}
		require.ErrorIs(t, err, gone)
	}
	require.Error(t, ctx.Err(), "a chunk came")
}

func TestRequest(t *testing.T) {
	t.Parallel()
	type sent struct {
		Path, Query string
		Header      map[string]string
		Body        string
	}
	messages := []llms.MessageContent{
		llms.TextParts(llms.ChatMessageTypeSystem, "be brief"),
		{Role: llms.ChatMessageTypeHuman, Parts: []llms.ContentPart{llms.TextPart("see"), llms.ImageURLPart("http://i"), llms.BinaryPart("image/png", []byte{1}), llms.BinaryPart("audio/wav", []byte{2}), llms.BinaryPart("application/pdf", []byte{3})}},
		{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{
			llms.ToolCall{ID: "c1", FunctionCall: &llms.FunctionCall{Name: "f", Arguments: "{}"}}, llms.ToolCall{ID: "c2", FunctionCall: &llms.FunctionCall{Name: "g", Arguments: `{"a":1}`}},
		}},
		{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: "c1", Content: "one"}, llms.ToolCallResponse{ToolCallID: "c2", Content: "two"}}},
		llms.TextParts(llms.ChatMessageTypeAI, "done"),
	}
	const wire = `[{"role":"system","content":"be brief"},` +
		`{"role":"user","content":[{"text":"see","type":"text"},{"image_url":{"url":"http://i"},"type":"image_url"},{"image_url":{"url":"data:image/png;base64,AQ=="},"type":"image_url"},` +
		`{"input_audio":{"data":"Ag==","format":"wav"},"type":"input_audio"},{"file":{"file_data":"data:application/pdf;base64,Aw==","filename":"file"},"type":"file"}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]},` +
		`{"role":"tool","content":"one","tool_call_id":"c1"},{"role":"tool","content":"two","tool_call_id":"c2"},{"role":"assistant","content":"done"}]`
	function := llms.Tool{Type: "function", Function: &llms.FunctionDefinition{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}}
	const tools = `"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]`
	tests := []struct {
		name    string
		opts    Options
		options []llms.CallOption
		want    sent
	}{
		{"plain", Options{}, nil, sent{
			"/v1/chat/completions", "",
			map[string]string{"Authorization": "", "Content-Type": "application/json"},
			`{"model":"m","messages":` + wire + `,"stream":true,"stream_options":{"include_usage":true}}`,
		}},
		{
			"all headers",
			Options{Key: "k", Organization: "o", Project: "p", Header: http.Header{"x-a": {"b"}}, Query: url.Values{"api-version": {"2"}}, Quirks: Quirks{NoUsage: true}},
			nil,
			sent{
				"/v1/chat/completions", "api-version=2",
				map[string]string{"Authorization": "Bearer k", "OpenAI-Organization": "o", "OpenAI-Project": "p", "X-A": "b"},
				`{"model":"m","messages":` + wire + `,"stream":true}`,
			},
		},
		{
			"options",
			Options{Quirks: Quirks{NoUsage: true}},
			[]llms.CallOption{llms.WithModel("other"), llms.WithMaxTokens(5), llms.WithTemperature(0.5), llms.WithStopWords([]string{"x"}), llms.WithTools([]llms.Tool{function}), llms.WithToolChoice("any"), llms.WithJSONMode()},
			sent{Path: "/v1/chat/completions", Body: `{"model":"other","messages":` + wire + `,"stream":true,` + tools + `,"tool_choice":"required","max_tokens":5,"temperature":0.5,"stop":["x"],"response_format":{"type":"json_object"}}`},
		},
		{
			"a named tool",
			Options{Quirks: Quirks{NoUsage: true}},
			[]llms.CallOption{llms.WithTools([]llms.Tool{function}), llms.WithToolChoice("f")},
			sent{Path: "/v1/chat/completions", Body: `{"model":"m","messages":` + wire + `,"stream":true,` + tools + `,"tool_choice":{"type":"function","function":{"name":"f"}}}`},
		},
		{
			"extra body",
			Options{Quirks: Quirks{NoUsage: true}, Extra: map[string]json.RawMessage{"temperature": json.RawMessage("0"), "stream": json.RawMessage("true"), "top_k": json.RawMessage("3")}},
			nil,
			sent{Path: "/v1/chat/completions", Body: `{"messages":` + wire + `,"model":"m","stream":true,"temperature":0,"top_k":3}`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got sent
			c := serve(t, tt.opts, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = sent{r.URL.Path, r.URL.RawQuery, nil, string(body)}
				for name := range tt.want.Header {
					if got.Header == nil {
						got.Header = map[string]string{}
					}
					got.Header[name] = r.Header.Get(name)
				}
				stream(event(said)+event(finished)+event("[DONE]"))(w, r)
			})
			resp, err := c.GenerateContent(t.Context(), messages, tt.options...)
			require.NoError(t, err)
			require.Equal(t, "Hi", resp.Choices[0].Content)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := New(Options{BaseURL: "localhost:1"})
	require.ErrorContains(t, err, "not an http or https URL")
	azure, err := New(Options{BaseURL: "https://x.openai.azure.com/openai/deployments/d", Query: url.Values{"api-version": {"v"}}})
	require.NoError(t, err)
	require.Equal(t, "Api-Key", azure.opts.KeyHeader)
	require.Equal(t, "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=v", azure.wire.URL())
}

// Which name the limit of an answer has follows from the host, unless it is said.
func TestMaxTokensName(t *testing.T) {
	t.Parallel()
	for host, own := range map[string]bool{
		"": true, "https://api.openai.com/v1": true, "https://API.openai.com/v1/": true, "https://eu.api.openai.com/v1": true, "https://us.api.openai.com:443/v1": true,
		"https://x.openai.azure.com/openai/v1": true, "https://api.openai.com.x.test/v1": false, "https://notapi.openai.com/v1": false, "https://x.test/api.openai.com/v1": false,
	} {
		for said, want := range map[*bool]bool{nil: own, new(true): true, new(false): false} {
			c, err := New(Options{BaseURL: host, Quirks: Quirks{MaxCompletionTokens: said}})
			require.NoError(t, err)
			body, err := c.body(hello, []llms.CallOption{llms.WithMaxTokens(9)})
			require.NoError(t, err)
			require.Equal(t, want, gjson.GetBytes(body, "max_completion_tokens").Exists(), "%s: %v", host, said)
			require.Equal(t, !want, gjson.GetBytes(body, "max_tokens").Exists(), "%s: %v", host, said)
		}
	}
}

func TestGenerateContent(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("testdata/openai_parallel.sse")
	require.NoError(t, err)
	c := serve(t, Options{}, stream(string(body)))
	var seen strings.Builder
	resp, err := c.GenerateContent(t.Context(), hello, llms.WithStreamingFunc(func(_ context.Context, text []byte) error { seen.Write(text); return nil }))
	require.NoError(t, err)
	require.Empty(t, seen.String(), "pieces of tool calls are no text")
	require.Len(t, resp.Choices[0].ToolCalls, 2)
	require.JSONEq(t, `{"city":"Rome"}`, resp.Choices[0].ToolCalls[1].FunctionCall.Arguments)
}

func FuzzEvents(f *testing.F) {
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		body, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(body))
	}
	f.Fuzz(func(t *testing.T, body string) {
		var all []llm.Chunk
		var end error
		for chunk, err := range client(t, strings.NewReader(body)).StreamChunks(t.Context(), hello) {
			require.NoError(t, end, "an error is the last word")
			if end = err; err == nil {
				all = append(all, chunk)
			}
		}
		checkForm(t, all)
		sum(all)
	})
}

// One client serves many runs at the same time, also when it has something to log.
func TestConcurrentAnswers(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Log: slog.New(slog.DiscardHandler)}, stream(event("odd")+event("[7]")+event(said)+event(finished)))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got, err := chunks(t.Context(), c)
			if err != nil || sum(got).Content != "Hi" {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	wg.Wait()
}
