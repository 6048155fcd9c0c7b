package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/anthropic"
	"understudy/graph/agent/llm"
	"understudy/graph/agent/openai"
	"understudy/internal/seedtest"
)

// bytesOf is a transport that answers with the same bytes.
type bytesOf string

func (b bytesOf) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(b)))}, nil
}

func speaker(t testing.TB, kind string, answer bytesOf) llm.ChunkStreamer {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if kind == "anthropic" {
		c, err := anthropic.New(anthropic.Options{Model: "m", Transport: answer, Retries: -1, Log: log, MaxEvent: 1 << 16})
		require.NoError(t, err)
		return c
	}
	c, err := openai.New(openai.Options{Model: "m", Responses: kind == "responses", Transport: answer, Retries: -1, Log: log, MaxEvent: 1 << 16})
	require.NoError(t, err)
	return c
}

// kindOf returns the API of a file in testdata.
func kindOf(golden []byte) string {
	if gjson.GetBytes(golden, "responses").Bool() {
		return "responses"
	}
	return gjson.GetBytes(golden, "kind").Str
}

// listen reads an answer to its end, which comes, and returns what it was.
func listen(t testing.TB, kind, answer string) (text string, failure error) {
	t.Helper()
	tool := llms.Tool{Type: "function", Function: &llms.FunctionDefinition{Name: "weather", Parameters: json.RawMessage(`{"type":"object"}`)}}
	var a llm.Answer
	ended := false
	for c, err := range speaker(t, kind, bytesOf(answer)).StreamChunks(t.Context(), []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, "hi")}, llms.WithTools([]llms.Tool{tool})) {
		require.False(t, ended, "an error is the last word")
		if err != nil {
			ended, failure = true, err
			require.NotEmpty(t, err.Error())
			continue
		}
		for _, b := range c.Blocks {
			require.True(t, json.Valid(b), "%s", b)
			require.GreaterOrEqual(t, gjson.GetBytes(b, "index").Int(), int64(0))
		}
		for _, raw := range [][]byte{c.Kwargs, c.Metadata} {
			require.True(t, raw == nil || json.Valid(raw), "%s", raw)
		}
		for _, d := range c.ToolCalls {
			require.GreaterOrEqual(t, d.Index, 0)
		}
		a.Add(c)
	}
	return a.Content.String(), failure
}

// Whatever a provider writes in place of any value of its answer, the answer ends, and nothing panics.
func TestOddValues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/langchain/*.json")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		kind, stream := kindOf(raw), gjson.GetBytes(raw, "stream").Str
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			lines := strings.Split(stream, "\n")
			tried := 0
			for i, line := range lines {
				data, ok := strings.CutPrefix(line, "data: ")
				if !ok || data == "[DONE]" {
					continue
				}
				for _, changed := range oddly(t, data) {
					lines[i] = "data: " + changed
					_, _ = listen(t, kind, strings.Join(lines, "\n"))
					tried++
				}
				lines[i] = "" // left out
				_, _ = listen(t, kind, strings.Join(lines, "\n"))
				lines[i] = line + "\n\n" + line // twice
				_, _ = listen(t, kind, strings.Join(lines, "\n"))
				lines[i] = line
			}
			require.Greater(t, tried, 100)
		})
	}
}

// oddly returns a JSON value with each value within it replaced by each odd one.
func oddly(t *testing.T, data string) (all []string) {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(data), &v))
	odd := []any{nil, -1, 1e300, "x", "", []any{}, map[string]any{}, []any{nil}, true, map[string]any{"error": map[string]any{"message": "m"}}}
	replace := func(old any, set func(any)) {
		for _, o := range odd {
			set(o)
			raw, err := json.Marshal(v)
			require.NoError(t, err)
			all = append(all, string(raw))
		}
		set(old)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				walk(inner)
				replace(inner, func(o any) { v[k] = o })
			}
		case []any:
			for i, inner := range v {
				walk(inner)
				replace(inner, func(o any) { v[i] = o })
			}
		}
	}
	walk(v)
	return all
}

// An answer that is cut anywhere is an error, or the whole answer: never a part of it.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/langchain/*.json")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		kind, stream := kindOf(raw), gjson.GetBytes(raw, "stream").Str
		whole, _ := listen(t, kind, stream)
		step := 1
		if !seedtest.InFull() {
			step = 1 + len(stream)/100
		}
		for n := rand.IntN(step); n < len(stream); n += step {
			text, failed := cut(t, kind, stream[:n])
			require.True(t, failed || text == whole, "%s cut at %d: %q", file, n, text)
		}
	}
}

func cut(t *testing.T, kind, stream string) (text string, failed bool) {
	t.Helper()
	var a llm.Answer
	for c, err := range speaker(t, kind, bytesOf(stream)).StreamChunks(t.Context(), []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, "hi")}) {
		if err != nil {
			return "", true
		}
		a.Add(c)
	}
	return a.Content.String(), false
}

// apis are those whose answers are fuzzed.
var apis = []string{"openai", "anthropic", "responses"}

func FuzzAnswers(f *testing.F) {
	files, err := filepath.Glob("testdata/langchain/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		api := slices.Index(apis, kindOf(raw))
		f.Add(api, []byte(gjson.GetBytes(raw, "stream").Str))
		f.Add(api, bytes.ReplaceAll([]byte(gjson.GetBytes(raw, "stream").Str), []byte(`"index":`), []byte(`"index":-`)))
	}
	f.Fuzz(func(t *testing.T, api int, answer []byte) {
		_, _ = listen(t, apis[uint(api)%uint(len(apis))], string(answer))
	})
}
