package lead_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// Clients learn which part of config.yaml is wrong, but nothing of what it says that may be secret; the log has that, and what to do.
func TestMistakesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	const models = "models: [{name: plain, use: x, model: x}, {name: other, use: x, model: x}]\ntitle: {enabled: false}\n"
	for name, c := range map[string]struct{ config, context, public, hidden string }{
		"unknown guard":     {models + "guardrails: {enabled: true, provider: {use: 'my:Guard'}}", `{}`, `guardrails.provider.use: "my:Guard" is not known here`, ""},
		"misspelt guard":    {models + "guardrails: {enabled: true, provider: {use: 'b:AllowlistProvider', config: {denied_tool: [bash]}}}", `{}`, "guardrails.provider.config.denied_tool: unknown key", ""},
		"address":           {models + "guardrails: {enabled: true, provider: {config: {url: 'ftp://me:secret@x'}}}", `{}`, "guardrails.provider.config.url is not the address of a service", "ftp://me:secret@x"},
		"first model":       {models + "#broken", `{}`, "the model 'plain' cannot be used; the log of the server says why", "open /home/secret"},
		"model of a run":    {models, `{"model_name":"other"}`, "the model 'other' cannot be used; the log of the server says why", "open /home/secret"},
		"model of a kind":   {models + "subagents: {agents: {bash: {model: other}}}\nsummarization: {enabled: true}", `{"model_name":"other"}`, "the model 'other' cannot be used", "open /home/secret"},
		"model of summary":  {models + "summarization: {enabled: true, model_name: other}", `{}`, "the model 'other' cannot be used", "open /home/secret"},
		"unknown detector":  {models + "safety_finish_reason: {detectors: [{use: 'my:Detector'}]}", `{}`, `safety_finish_reason.detectors[0].use: "my:Detector" is not known here`, ""},
		"no detector":       {models + "safety_finish_reason: {detectors: []}", `{}`, "safety_finish_reason.detectors is empty", ""},
		"budget":            {models + "token_budget: {enabled: true, max_tokens: 5, warn_threshold: 7}", `{}`, "config.yaml: ", ""},
		"amounts":           {models + "summarization: {enabled: true, keep: {type: fraction, value: 7}}", `{}`, "config.yaml: ", ""},
		"unreadable config": {"", `{}`, "The configuration cannot be read", "api_key: secret"},
	} {
		w := setup(t, models)
		text := c.config
		w.options.Settings = func() (*settings.Settings, error) {
			return nil, fault.Wrap(fault.Unavailable, "The configuration cannot be read", errors.New("line 1: api_key: secret"))
		}
		if text != "" {
			set, err := settings.Parse([]byte(text), func(string) (string, bool) { return "", false })
			require.NoError(t, err, name)
			w.options.Settings = func() (*settings.Settings, error) { return set, nil }
		}
		open := w.options.Open
		w.options.Open = func(m *settings.Model, retries *int, body map[string]json.RawMessage) (agent.Model, error) {
			if m.Name == "other" || strings.HasSuffix(text, "#broken") {
				return agent.Model{}, errors.New("open /home/secret")
			}
			return open(m, retries, body)
		}
		var log logtest.Buffer
		w.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		w.rebuild()
		_, _, err := w.converse(t, "t", "hi", c.context)
		var got *graph.Failure
		require.ErrorAs(t, err, &got, name)
		require.Equal(t, "ConfigurationError", got.Type, name)
		require.Contains(t, got.Message, c.public, name)
		require.NotContains(t, got.Message, "secret", name)
		require.Contains(t, got.Detail, c.hidden, name)
		require.Contains(t, got.Fix, "config.yaml", name)
		require.NoError(t, w.graph.Close())
	}
}

// A guard that is a service is asked about what its lists allow, and about nothing else.
func TestGuardWithLists(t *testing.T) {
	t.Parallel()
	var asked []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		tool := gjson.GetBytes(body, "tool_name").String()
		asked = append(asked, tool)
		_, _ = io.WriteString(w, `{"allow":`+map[bool]string{true: "true", false: "false"}[tool != "bash"]+`}`)
	}))
	defer service.Close()
	for list, want := range map[string][3]bool{ // ls, write_file and bash
		"": {true, true, false}, "denied_tools: [write_file]": {true, false, false}, "allowed_tools: [ls, bash]": {true, false, false}, "allowed_tools: [ls], denied_tools: [ls]": {},
	} {
		w := setup(t, plain+"guardrails: {enabled: true, provider: {config: {url: '"+service.URL+"', "+list+"}}}\n")
		for i, call := range []string{`ls {"path":"/mnt/user-data/workspace"}`, `write_file {"path":"/mnt/user-data/workspace/a","content":"x"}`, `bash {"command":"echo hi"}`} {
			asked = nil
			_, got := w.say(t, call, `{}`, nil)
			require.Equal(t, want[i], !strings.Contains(got, "Guardrail denied"), "%s %s", list, got)
			name, _, _ := strings.Cut(call, " ")
			listed := strings.Contains(list, "allowed") && !strings.Contains(list, "allowed_tools: [ls, bash]") && name != "ls" || strings.Contains(list, "denied_tools: ["+name) || strings.Contains(list, "[ls, bash]") && name == "write_file"
			require.Equal(t, listed, len(asked) == 0, "%s %s", list, name)
		}
	}
}
