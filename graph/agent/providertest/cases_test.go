package providertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/internal/app"
	"understudy/internal/config"
	"understudy/internal/logtest"
)

// declare writes a langgraph.json with an agent for each case.
func declare(t *testing.T, cases []*Case, providers string) string {
	t.Helper()
	graphs := object{}
	for _, c := range cases {
		provider, name, base := c.Provider, c.Name2, providers
		if provider == "" {
			provider = "openai"
		}
		if name == "" {
			name = "m"
		}
		if c.Down {
			base = "http://127.0.0.1:1"
		}
		model := object{"name": provider + ":" + name, "base_url": base + "/" + c.Name + "/v1", "api_key": Secret, "query": object{"key": Secret}, "headers": object{"x-team": Secret}}
		for k, v := range c.Model {
			model[k] = v
		}
		agent := object{"model": model}
		for k, v := range c.Agent {
			agent[k] = v
		}
		require.NotContains(t, graphs, c.Name, "names of cases")
		graphs[c.Name] = object{"agent": agent}
	}
	raw, err := json.Marshal(object{"graphs": graphs})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "langgraph.json")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return file
}

// Every case is played through the HTTP API of one server.
func TestCases(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	cases := Cases()
	providers := Serve(cases)
	log := &logtest.Buffer{}
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, File: declare(t, cases, providers.URL),
		Flags: map[string]string{"port": "0", "data": t.TempDir()}, Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	srv, err := app.New(t.Context(), app.Config{Settings: settings, Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	url := "http://" + srv.Addr().String()

	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%d/%s", c.Line, c.Name), func(t *testing.T) {
				t.Parallel()
				play(t, client, url, providers, c)
			})
		}
	})

	require.NotContains(t, log.String(), Secret, "the log has secrets")
	require.NotContains(t, log.String(), "panic")
	raised := 0
	for line := range strings.SplitSeq(log.String(), "\n") {
		if strings.Contains(line, `msg="graph raised"`) {
			raised++
			require.NotRegexp(t, `traceback=|\*[a-z]+\.`, line, "types of Go, or the error twice")
			require.LessOrEqual(t, strings.Count(line, "model openai:m: "), 1)
		}
	}
	require.Greater(t, raised, 30)
	require.Regexp(t, `level=WARN msg="model request failed; retrying" model=m attempt=1 attempts=3 wait=\S+ cause="429 Too Many Requests: [^"]*" run_id=`, log.String())
	require.Regexp(t, `level=WARN msg="part of a model's answer not understood; skipped" model=garbler part=[^\n]* run_id=\S+ [^\n]*thread_id=`, log.String())
	require.Regexp(t, `level=WARN msg="no title written; the beginning of the question is the title" error="the model answered nothing" model=openai:untitled run_id=`, log.String())
	cancel()
	require.NoError(t, <-ended)
	client.CloseIdleConnections()
	providers.Close()
	goleak.VerifyNone(t, ignore, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func post(t *testing.T, client *http.Client, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s", raw)
	return string(raw)
}

// events reads a stream of the server.
func events(text string) (all [][2]string) {
	name := ""
	for r := bufio.NewReader(strings.NewReader(text)); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return all
		}
		line = strings.TrimRight(line, "\r\n")
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		} else if data, ok := strings.CutPrefix(line, "data: "); ok {
			all = append(all, [2]string{name, data})
		}
	}
}

func play(t *testing.T, client *http.Client, url string, providers *Server, c *Case) {
	t.Helper()
	thread := gjson.Get(post(t, client, "POST", url+"/threads", `{}`), "thread_id").Str
	turns := c.Turns
	if turns == nil {
		turns = []Turn{{Says: "hi"}}
	}
	r := &Result{}
	failure := ""
	joined := map[string]gjson.Result{}
	for i, turn := range turns {
		input := turn.Input
		if input == "" {
			input = `{"messages":[{"role":"user","content":` + quote(turn.Says) + `}]}`
		}
		began := time.Now()
		r.Stream = post(t, client, "POST", url+"/threads/"+thread+"/runs/stream",
			`{"assistant_id":"`+c.Name+`","input":`+input+`,"stream_mode":["values","messages","custom"]}`)
		r.Took = time.Since(began)
		failure = ""
		for _, e := range events(r.Stream) {
			switch e[0] {
			case "values":
				r.State = gjson.Parse(e[1])
			case "error":
				failure = e[1]
			case "messages/partial":
				for _, m := range gjson.Parse(e[1]).Array() {
					joined[m.Get("id").Str] = m
				}
			}
		}
		switch {
		case turn.Error != "":
			require.Contains(t, failure, turn.Error, "turn %d", i)
			hasNextStep(t, failure)
		case i < len(turns)-1:
			require.Empty(t, failure, "turn %d", i)
		}
	}
	r.Sent = providers.Sent(c.Name)
	require.NotContains(t, r.Stream, Secret, "the stream has secrets")
	require.NotContains(t, post(t, client, "GET", url+"/threads/"+thread+"/runs", ""), Secret)
	require.NotContains(t, post(t, client, "GET", url+"/threads/"+thread+"/state", ""), Secret)
	if c.Want.Error != "" {
		require.Contains(t, failure, c.Want.Error)
		hasNextStep(t, failure)
	} else {
		require.Empty(t, failure)
	}
	answer, results := "", []string{}
	for _, m := range r.State.Get("messages").Array() {
		switch m.Get("type").Str {
		case "tool":
			results = append(results, textOf(m.Get("content")))
		case "ai":
			answer = textOf(m.Get("content"))
			if whole, ok := joined[m.Get("id").Str]; ok {
				sameMessage(t, whole, m)
			}
		}
	}
	if c.Want.Answer != "" {
		require.Equal(t, c.Want.Answer, answer)
	}
	if c.Want.Calls > 0 {
		require.Len(t, r.Sent, c.Want.Calls, "requests")
	}
	if c.Want.Tools != "" {
		require.Equal(t, c.Want.Tools, strings.Join(results, ","))
	}
	if c.Check != nil {
		require.NoError(t, c.Check(r))
	}
}

// hasNextStep checks that the error of a model says what to do.
func hasNextStep(t *testing.T, failure string) {
	t.Helper()
	if text := gjson.Get(failure, "message").Str; strings.HasPrefix(text, "model ") {
		require.Regexp(t, `^model [a-z_]+:\S+: .+\. [A-Z][^\n]+(key|base_url|name|settings|timeout|retries|provider|capacity|server|max_event_size|again|summarization|images)[^\n]*\.$`, text, "no next step")
	}
}

// sameMessage: what the chunks of a message add up to is the message.
func sameMessage(t *testing.T, chunks, whole gjson.Result) {
	t.Helper()
	for _, field := range []string{"content", "additional_kwargs", "tool_calls", "usage_metadata", "response_metadata"} {
		require.JSONEq(t, or(whole.Get(field).Raw), or(chunks.Get(field).Raw), field)
	}
	require.Equal(t, whole.Get("invalid_tool_calls.#").Int(), chunks.Get("invalid_tool_calls.#").Int(), "invalid_tool_calls")
}

func or(raw string) string {
	if raw == "" {
		return "null"
	}
	return raw
}

func textOf(content gjson.Result) string {
	if content.Type == gjson.String {
		return content.Str
	}
	out := ""
	for _, b := range content.Array() {
		out += b.Get("text").Str
	}
	return out
}
