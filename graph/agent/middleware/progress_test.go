package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// What a result is worth is said by its words, as DeerFlow reads them.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tool, text, status, want string }{
		{"x", "fine", "", "success null continue"},
		{"x", "Error: 401 Unauthorized", "", "error auth stop"},
		{"x", "Error: took 4010 ms", "", "error unknown try_alternative"},
		{"x", "Error: rate limit exceeded", "", "error rate_limited summarize"},
		{"x", "Error: connection refused", "", "error transient try_alternative"},
		{"x", "Error: search is not configured", "", "error config stop"},
		{"x", "Error: Permission denied: /a", "", "error permission try_alternative"},
		{"x", "Error: no results", "", "error no_results rewrite_query"},
		{"x", "Error: File not found: /a", "", "error not_found rewrite_query"},
		{"x", "Error: internal error", "", "error internal stop"},
		{"x", "the request timed out", "error", "error transient try_alternative"},
		{"x", `{"user_id": 401}`, "error", "error unknown try_alternative"},
		{"x", `{"error": "not found", "query": "401"}`, "", "error not_found rewrite_query"},
		{"x", `{"error": "none", "results": [1]}`, "", "success null continue"},
		{"x", `{"error": null}`, "", "success null continue"},
		{"x", `{"error": 404}`, "", "error not_found rewrite_query"},
		{"x", "No results found.", "", "partial_success null rewrite_query"},
		{"x", "(truncated)", "", "partial_success null rewrite_query"},
		{"web_fetch", "# 404 Not Found\n\nnginx", "", "error not_found rewrite_query"},
		{"web_fetch", "404 - File or directory not found.", "", "error not_found rewrite_query"},
		{"web_fetch", "# 502 Bad Gateway", "", "error transient try_alternative"},
		{"web_fetch", "# 404 Ways to Cook Rice", "", "success null continue"},
		{"ls", "# 404 Not Found", "", "success null continue"},
	} {
		m := message.Tool(c.text, "c").WithName(c.tool)
		m.Status = c.status
		got := gjson.GetBytes(judged(m, verdictOf(m)).AdditionalKwargs, verdictKey)
		typ := got.Get("error_type").Str
		if typ == "" {
			require.Equal(t, "null", got.Get("error_type").Raw)
			typ = "null"
		}
		require.Equal(t, c.want, strings.Join([]string{got.Get("status").Str, typ, got.Get("recommended_next_action").Str}, " "), "%s: %s", c.tool, c.text)
	}
}

// tries calls a tool again and again with these results; texts that begin with ! are errors. It returns for each call: -, hint or blocked.
func tries(t *testing.T, o ProgressOptions, tool string, results ...string) (out []string) {
	t.Helper()
	m, err := ToolProgress(o)
	require.NoError(t, err)
	state := pregel.Values{"messages": []message.Message{}}
	known := map[string]progress{}
	for i, text := range results {
		id := fmt.Sprint("c", i)
		made := false
		r := agent.ToolRequest{Call: message.ToolCall{ID: id, Name: tool}, Tool: &agent.Tool{Name: tool}, State: state}
		got, err := m.WrapToolCall(t.Context(), r, func(context.Context, agent.ToolRequest) (agent.ToolResult, error) {
			made = true
			if rest, failed := strings.CutPrefix(text, "!"); failed {
				return agent.ToolResult{}, errors.New(rest)
			}
			answer := message.Tool(text, id).WithName(tool)
			return agent.ToolResult{Message: &answer}, nil
		})
		require.NoError(t, err)
		for _, u := range got.Updates {
			for name, p := range u.(*pregel.Command).Update.(pregel.Values)[progressKey].(map[string]progress) {
				known[name] = p
			}
		}
		state = pregel.Values{"messages": append(agent.Messages(state), message.AI("", r.Call), *got.Message), progressKey: known}
		what := "-"
		_, err = m.WrapModelCall(t.Context(), agent.ModelRequest{Messages: agent.Messages(state), State: state}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
			if last := r.Messages[len(r.Messages)-1]; last.Name == "progress_hint" {
				what = "hint"
			}
			return agent.ModelResponse{}, nil
		})
		require.NoError(t, err)
		if !made {
			require.True(t, strings.HasPrefix(got.Message.Text(), "[TOOL_BLOCKED] "))
			require.Equal(t, "blocked_by_progress_guard", gjson.GetBytes(got.Message.AdditionalKwargs, verdictKey+".error_type").Str)
			what = "blocked"
		}
		out = append(out, what)
	}
	return out
}

// A tool is warned of after three problems, and blocked after five if other arguments do not help; what has no remedy blocks it at once.
func TestToolProgress(t *testing.T) {
	t.Parallel()
	o := ProgressOptions{Warn: 3, Block: 2, Similar: 0.8, Words: 10}
	same := "one two three four five six seven eight nine ten eleven twelve"
	words := strings.Fields(same)
	long := "alpha " + strings.Join(words[1:], " ")
	other := "these words are quite different from what was said before about numbers"
	repeat := func(text string, n int) (list []string) {
		for range n {
			list = append(list, text)
		}
		return list
	}
	quiet := o
	quiet.Quiet = true
	exempt := o
	exempt.Exempt = []string{"tool"}
	for name, c := range map[string]struct {
		o       ProgressOptions
		results []string
		want    string
	}{
		"good":            {o, []string{same, other, "short", "short", "short", "short"}, "- - - - - -"},
		"not found":       {o, repeat("Error: not found", 7), "- - hint hint hint hint hint"},
		"times out":       {o, repeat("!timed out", 7), "- - hint hint - blocked blocked"},
		"a good one":      {o, []string{"!timed out", "!timed out", "fine", "!timed out", "!timed out", "!timed out", "fine"}, "- - - - - hint -"},
		"no key":          {o, []string{"Error: invalid api key", "fine"}, "- blocked"},
		"the same":        {o, repeat(same, 5), "- - - hint hint"},
		"nearly the same": {o, []string{same, long, same, long, other}, "- - - hint -"},
		"taking turns":    {o, []string{same, other, same, other, same, other}, "- - - - hint hint"},
		"quiet":           {quiet, repeat("!timed out", 6), "- - - - - blocked"},
		"exempt":          {exempt, []string{"Error: invalid api key", "fine"}, "- -"},
		"incomplete":      {o, repeat("No results found for this", 4), "- - hint hint"},
	} {
		require.Equal(t, c.want, strings.Join(tries(t, c.o, "tool", c.results...), " "), name)
	}
	require.Equal(t, "- -", strings.Join(tries(t, o, "write_todos", "Error: 401", "x"), " "), "it belongs to the conversation")
	for _, wrong := range []ProgressOptions{{Block: 1}, {Warn: 1}, {Warn: 1, Block: 1, Similar: -1}} {
		_, err := ToolProgress(wrong)
		require.Error(t, err)
	}
}
