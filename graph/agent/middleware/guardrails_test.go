package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/message"
)

type guardFunc func(GuardRequest) (GuardDecision, error)

func (f guardFunc) Evaluate(_ context.Context, r GuardRequest) (GuardDecision, error) { return f(r) }

// through calls a tool through a middleware, and returns the result and whether the tool ran.
func through(t *testing.T, m agent.Middleware, tool, result string) (got message.Message, ran bool) {
	t.Helper()
	r := agent.ToolRequest{Call: message.ToolCall{Name: tool, ID: "c1", Args: json.RawMessage(`{"a":1}`)}}
	out, err := m.WrapToolCall(t.Context(), r, func(context.Context, agent.ToolRequest) (agent.ToolResult, error) {
		ran = true
		m := message.Tool(result, "c1").WithName(tool)
		return agent.ToolResult{Message: &m}, nil
	})
	require.NoError(t, err)
	return *out.Message, ran
}

func TestGuardrails(t *testing.T) {
	t.Parallel()
	var asked GuardRequest
	deny := guardFunc(func(r GuardRequest) (GuardDecision, error) {
		asked = r
		return GuardDecision{Reasons: []GuardReason{{"oap.x", "not today"}, {"y", "z"}}}, nil
	})
	broken := guardFunc(func(GuardRequest) (GuardDecision, error) { return GuardDecision{}, errors.New("down") })
	for name, tt := range map[string]struct {
		o    GuardrailOptions
		tool string
		want string // "": the tool runs
	}{
		"allowed":       {GuardrailOptions{Guard: ToolList{Allowed: []string{"ls"}}}, "ls", ""},
		"not in list":   {GuardrailOptions{Guard: ToolList{Allowed: []string{"ls"}}}, "bash", "Guardrail denied: tool 'bash' was blocked (oap.tool_not_allowed). Reason: tool 'bash' not in allowlist. Choose an alternative approach."},
		"empty list":    {GuardrailOptions{Guard: ToolList{Allowed: []string{}}}, "ls", "Guardrail denied: tool 'ls' was blocked (oap.tool_not_allowed). Reason: tool 'ls' not in allowlist. Choose an alternative approach."},
		"denied":        {GuardrailOptions{Guard: ToolList{Denied: []string{"bash"}, Allowed: []string{"bash"}}}, "bash", "Guardrail denied: tool 'bash' was blocked (oap.tool_not_allowed). Reason: tool 'bash' is in deny list. Choose an alternative approach."},
		"not denied":    {GuardrailOptions{Guard: ToolList{Denied: []string{"bash"}}}, "ls", ""},
		"own guard":     {GuardrailOptions{Guard: deny, Passport: "me"}, "ls", "Guardrail denied: tool 'ls' was blocked (oap.x). Reason: not today. Choose an alternative approach."},
		"fails closed":  {GuardrailOptions{Guard: broken}, "ls", "Guardrail denied: tool 'ls' was blocked (oap.evaluator_error). Reason: guardrail provider error (fail-closed). Choose an alternative approach."},
		"fails open":    {GuardrailOptions{Guard: broken, FailOpen: true}, "ls", ""},
		"without words": {GuardrailOptions{Guard: guardFunc(func(GuardRequest) (GuardDecision, error) { return GuardDecision{}, nil })}, "ls", "Guardrail denied: tool 'ls' was blocked (oap.denied). Reason: blocked by guardrail policy. Choose an alternative approach."},
	} {
		m, err := Guardrails(tt.o)
		require.NoError(t, err, name)
		got, ran := through(t, m, tt.tool, "fine")
		require.Equal(t, tt.want == "", ran, name)
		if tt.want != "" {
			require.Equal(t, tt.want, got.Text(), name)
			require.Equal(t, message.StatusError, got.Status, name)
			require.Equal(t, "c1", got.ToolCallID, name)
		}
	}
	require.Equal(t, "me", asked.Agent)
	require.JSONEq(t, `{"a":1}`, string(asked.Input))
	_, err := Guardrails(GuardrailOptions{})
	require.ErrorContains(t, err, "no guard")
}

// Whatever a service answers other than a clear decision denies the call.
func TestRemoteGuard(t *testing.T) {
	t.Parallel()
	answer, status := "", http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got map[string]any
		if json.NewDecoder(r.Body).Decode(&got) != nil || got["tool_name"] != "ls" || r.Header.Get("X-Key") != "k" {
			status = http.StatusBadRequest
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer srv.Close()
	for _, tt := range []struct {
		answer string
		status int
		ran    bool
	}{
		{`{"allow":true}`, 200, true},
		{`{"allow":false,"reasons":[{"code":"c","message":"m"}],"policy_id":"p"}`, 200, false},
		{`{"allow":true}`, 500, false},
		{`{}`, 200, false},
		{`{"allow":"yes"}`, 200, false},
		{`{"allow":null}`, 200, false},
		{``, 200, false},
		{`[true]`, 200, false},
		{`{"allow":true` + strings.Repeat(" ", maxDecision), 200, false},
	} {
		answer, status = tt.answer, tt.status
		m, err := Guardrails(GuardrailOptions{Guard: RemoteGuard{URL: srv.URL, Headers: map[string]string{"X-Key": "k"}}})
		require.NoError(t, err)
		_, ran := through(t, m, "ls", "x")
		require.Equal(t, tt.ran, ran, "%d %.40s", tt.status, tt.answer)
	}
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
		<-r.Context().Done()
	}))
	defer hanging.Close()
	m, err := Guardrails(GuardrailOptions{Guard: RemoteGuard{URL: hanging.URL, Timeout: 20 * time.Millisecond}})
	require.NoError(t, err)
	_, ran := through(t, m, "ls", "x")
	require.False(t, ran)
	for _, bad := range []string{"", "nowhere", "ftp://x", "http://"} {
		require.Error(t, RemoteGuard{URL: bad}.Check(), bad)
	}
}

func TestToolOutput(t *testing.T) {
	t.Parallel()
	var kept string
	save := func(_ context.Context, tool, call, text string) (string, error) {
		kept = text
		return "/there/" + tool + "-" + call, nil
	}
	lines := strings.Repeat("a line of text é\n", 2000)
	for name, tt := range map[string]struct {
		o      ToolOutputOptions
		result string
		whole  bool
		note   string
	}{
		"small":                 {ToolOutputOptions{Save: save}, "small", true, ""},
		"at the end":            {ToolOutputOptions{Limit: 10, Head: 4, Tail: 2}, "0123456789", true, ""},
		"characters, not bytes": {ToolOutputOptions{Limit: 10, Head: 4, Tail: 2}, "éééééééééé", true, ""},
		"kept":                  {ToolOutputOptions{Save: save}, lines, false, "The whole result is in /there/web-c1"},
		"not kept":              {ToolOutputOptions{}, lines, false, "The rest is lost"},
		"fails":                 {ToolOutputOptions{Save: func(context.Context, string, string, string) (string, error) { return "", errors.New("disk full") }}, lines, false, "The rest is lost"},
		"exempt":                {ToolOutputOptions{Exempt: []string{"web"}}, lines, true, ""},
		"one line":              {ToolOutputOptions{Save: save}, strings.Repeat("é", 50_000), false, "/there/web-c1"},
	} {
		m, err := ToolOutput(tt.o)
		require.NoError(t, err, name)
		kept = ""
		got, _ := through(t, m, "web", tt.result)
		if tt.whole {
			require.Equal(t, tt.result, got.Text(), name)
			continue
		}
		text := got.Text()
		require.Contains(t, text, tt.note, name)
		require.Less(t, len([]rune(text)), 3500, name)
		head, rest, _ := strings.Cut(text, "\n\n[")
		_, tail, _ := strings.Cut(rest, "]\n\n")
		require.True(t, strings.HasPrefix(tt.result, head) && strings.HasSuffix(tt.result, tail) && len(head) > 900 && len(tail) > 400, name)
		if strings.Contains(tt.note, "there") {
			require.Equal(t, tt.result, kept, name)
		}
		require.Equal(t, "c1", got.ToolCallID, name)
	}
	for _, bad := range []ToolOutputOptions{{Limit: -1}, {Limit: 10, Head: 8, Tail: 8}, {Head: -1, Tail: 3}} {
		_, err := ToolOutput(bad)
		require.Error(t, err)
	}
}

// Images stay as they are: a part of one is of no use.
func TestToolOutputLeavesImages(t *testing.T) {
	t.Parallel()
	image := json.RawMessage(`{"type":"image_url","image_url":{"url":"data:` + strings.Repeat("x", 20_000) + `"}}`)
	text := json.RawMessage(`{"type":"text","text":"` + strings.Repeat("y", 20_000) + `"}`)
	for _, tt := range []struct {
		blocks []json.RawMessage
		same   bool
	}{{[]json.RawMessage{image}, true}, {[]json.RawMessage{text, image}, true}, {[]json.RawMessage{text}, false}} {
		o := ToolOutputOptions{Limit: 100, Head: 10, Tail: 10}
		m := message.Tool("", "c")
		m.Content = message.Content{Blocks: tt.blocks}
		require.Equal(t, tt.same, len(o.shorten(t.Context(), m, "x").Content.Blocks) == len(tt.blocks))
	}
}

func TestToolErrors(t *testing.T) {
	t.Parallel()
	call := func(fail error) (agent.ToolResult, error) {
		return ToolErrors().WrapToolCall(t.Context(), agent.ToolRequest{Call: message.ToolCall{Name: "ls", ID: "c"}}, func(context.Context, agent.ToolRequest) (agent.ToolResult, error) {
			return agent.ToolResult{}, fail
		})
	}
	out, err := call(errors.New("no disk"))
	require.NoError(t, err)
	require.Equal(t, "Error: Tool 'ls' failed with RuntimeError: no disk. Continue with available context, or choose an alternative tool.", out.Message.Text())
	require.Equal(t, message.StatusError, out.Message.Status)
	out, err = call(errors.New(strings.Repeat("é", 2000)))
	require.NoError(t, err)
	require.Less(t, len([]rune(out.Message.Text())), 620)
}
