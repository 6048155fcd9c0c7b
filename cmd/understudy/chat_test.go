package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// serveFolder runs understudy dev on a folder with a langgraph.json until the test ends, and returns its URL.
func serveFolder(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	var log bytes.Buffer
	root := newRoot(stdout, &log)
	root.SetArgs(append([]string{"dev", "-c", filepath.Join(dir, "langgraph.json"), "-p", "0", "--data", filepath.Join(dir, "data"), "--reload=false"}, flags...))
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = stdout.CloseWithError(err)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return strings.TrimPrefix(strings.TrimSpace(line), "understudy listening on ")
}

// typeInto runs a command with text on its standard input.
func typeInto(t *testing.T, text string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot(&out, io.Discard)
	root.SetIn(strings.NewReader(text))
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

const careful = `{"graphs": {"careful": {"agent": {"model": "scripted:script.json", "tools": ["calculator"], "middleware": {"human_in_the_loop": {"calculator": true}}}}}}`

const carefulScript = `{"answers": [
 {"from": "human", "when": "^break$", "content": "I was going to", "error": "no more"},
 {"from": "tool", "when": "(?s)^(.*)$", "content": "The tool said ${1}."},
 {"from": "human", "when": "(\\d+) times (\\d+)", "content": "Let me see.", "tool_calls": [{"name": "calculator", "args": {"expression": "$1 * $2"}}]},
 {"when": "(?s)^(.*)$", "content": "You said: $1\nin two lines"}]}`

// A chat shows answers, calls and results, asks before tools run, and goes on with a thread; threads, runs, state and logs show the same.
func TestChat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(careful), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.json"), []byte(carefulScript), 0o600))
	url := serveFolder(t, dir)

	const question = "Let me see.\n→ calculator {\"expression\":\"6 * 7\"}\n? may calculator be called with {\"expression\":\"6 * 7\"}\n"
	for answers, want := range map[string][]string{
		"a\n":                                    {"← calculator 42\nThe tool said 42.\n"},
		"nonsense\napprove\n":                    {"write one of approve, edit, reject, respond\n← calculator 42\nThe tool said 42.\n"},
		"e\nno JSON\n{\"expression\":\"1+1\"}\n": {"no JSON is no JSON object; write one such as {\"expression\":\"6 * 7\"}\n", "with arguments {\"expression\": \"1+1\"}", "2.\n"},
		"e\n\n":                                  {"42"},
		"r\nrej\nnot today\n":                    {"write one of approve", "not today"},
		"respond\nforty-two\n":                   {"forty-two"},
	} {
		out, err := typeInto(t, "What is 6 times 7?\n"+answers, "chat", "--url", url)
		require.NoError(t, err, out)
		require.True(t, strings.HasPrefix(out, question), out)
		for _, w := range want {
			require.Contains(t, out, w, answers)
		}
		require.Contains(t, out, "The tool said ")
	}
	out, err := typeInto(t, "", "chat", "careful", "--url", url, "-m", "hello")
	require.NoError(t, err)
	require.Equal(t, "You said: hello\nin two lines\n", out)

	// An unanswered question waits, and is asked again.
	out, err = typeInto(t, "", "chat", "--url", url, "-m", "What is 6 times 7?")
	require.NoError(t, err)
	m := regexp.MustCompile(`understudy (chat --thread (\S+) --url (\S+))\n`).FindStringSubmatch(out)
	require.NotNil(t, m, out)
	thread := m[2]
	require.Equal(t, url, m[3], "the command asks the same server")
	out, err = typeInto(t, "", strings.Fields(m[1])...)
	require.NoError(t, err)
	require.Contains(t, out, "waits for your answer: "+m[0][:len(m[0])-1])
	// With --message the next question is answered, and a message that answers nothing is an error and not another question.
	out, err = typeInto(t, "", "chat", "--thread", thread, "-u", url, "-m", "neither")
	require.ErrorContains(t, err, `--message "neither" does not answer what the run waits for`)
	require.Contains(t, out, "write one of approve, edit, reject, respond")
	for answer, want := range map[string]string{"approve": "← calculator 42\nThe tool said 42.\n", "reject": "rejected", "reject\nnot today": "not today", "respond\nforty": "← calculator forty\n"} {
		asked, err := typeInto(t, "", "chat", "--url", url, "-m", "What is 6 times 7?")
		require.NoError(t, err)
		m := regexp.MustCompile(`chat --thread (\S+)`).FindStringSubmatch(asked)
		require.NotNil(t, m, asked)
		out, err = typeInto(t, "", "chat", "--thread", m[1], "-u", url, "-m", answer)
		require.NoError(t, err, out)
		require.Contains(t, out, want, answer)
		require.NotContains(t, out, "You said")
	}
	out, err = execute(t, "state", thread, "-u", url)
	require.NoError(t, err)
	for _, want := range []string{"messages (2)\n  human  What is 6 times 7?\n  ai     Let me see.\n         → calculator", "waits for an answer: understudy chat --thread " + thread + " --url " + url, `"action_requests"`} {
		require.Contains(t, out, want)
	}
	out, err = execute(t, "logs", thread, "-u", url)
	require.NoError(t, err)
	require.Regexp(t, `(?s) ends: success, .*\nwaits for an answer: \{"action_requests".*\nanswer it: understudy chat --thread `+thread+` --url `+url+`\n$`, out)
	out, err = execute(t, "threads", "--status", "interrupted", "--graph", "careful", "-u", url)
	require.NoError(t, err)
	require.Regexp(t, `^THREAD +STATUS +GRAPH +CHANGED\n`+thread+` +interrupted +careful +\d+s ago\n$`, out)
	out, err = typeInto(t, "a\nand again\n/new\nhello\n/quit\nnot sent\n", "chat", "--thread", thread, "-u", url)
	require.NoError(t, err)
	require.Equal(t, "you> What is 6 times 7?\n"+question+"← calculator 42\nThe tool said 42.\nYou said: and again\nin two lines\na new conversation\nYou said: hello\nin two lines\n", out)

	out, err = execute(t, "runs", thread, "-u", url)
	require.NoError(t, err)
	require.Regexp(t, `^RUN +STATUS +GRAPH +CREATED +TOOK\n(\S+ +success +careful +\d+s ago +[\d.]+\S*s\n){3}$`, out)
	out, err = execute(t, "logs", thread, "-u", url)
	require.NoError(t, err)
	require.NotContains(t, out, "waits for an answer")
	require.Regexp(t, `(?s)of careful begins\n.* human  What is 6 times 7\?\n.* ai     Let me see. → calculator \{.* tool   42\n.* ends: success, \d+ tokens in, \d+ out\n`, out)
	out, err = execute(t, "logs", thread, "--json", "-u", url)
	require.NoError(t, err)
	for line := range strings.Lines(out) {
		require.True(t, json.Valid([]byte(line)), line)
	}
	for args, want := range map[string]string{
		"--status error":                 "no threads with status error\n",
		"--graph careful --status error": "no threads of graph careful with status error\n",
	} {
		out, err = execute(t, append(strings.Fields("threads "+args), "-u", url)...)
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
	out, err = execute(t, "threads", "--json", "-u", url)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(gjson.Parse(out).Array()), 3)

	// A run that fails is an error of a script, whatever is said afterwards on a terminal.
	for _, args := range [][]string{{"-m", "break"}, nil} {
		out, err = typeInto(t, "break\n", append([]string{"chat", "careful", "--url", url}, args...)...)
		require.ErrorContains(t, err, "the run failed: understudy state ")
		require.ErrorContains(t, err, " shows the error, understudy logs ")
		require.Contains(t, out, "I was going to\n✗ ")
	}
	out, err = typeInto(t, "break\nhello\n", "chat", "careful", "--url", url)
	require.NoError(t, err)
	require.Contains(t, out, "You said: hello")

	// A list that ends at its limit says so where programs do not read it, and what is empty says that.
	var list, note bytes.Buffer
	root := newRoot(&list, &note)
	root.SetArgs([]string{"threads", "--limit", "2", "-u", url})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Equal(t, 3, strings.Count(list.String(), "\n"), list.String())
	require.Contains(t, note.String(), "the first 2; there may be more: --limit shows up to 1000, --status and --graph narrow the list\n")
	for _, limit := range []string{"0", "-1", "1001"} {
		for _, command := range []string{"threads", "runs 01a206fb-8dce-76de-9933-4f6ae92099a6"} {
			_, err = execute(t, append(strings.Fields(command), "--limit", limit, "-u", url)...)
			require.ErrorContains(t, err, "--limit is 1 to 1000")
		}
	}
	var fresh struct {
		ID string `json:"thread_id"`
	}
	require.NoError(t, (&client{base: url}).post(t.Context(), "/threads", map[string]any{}, &fresh))
	for command, want := range map[string]string{
		"runs": "no runs on this thread\n", "logs": "nothing has happened here yet\n", "state": "no checkpoint: no run has saved anything on this thread yet\n",
	} {
		out, err = execute(t, command, fresh.ID, "-u", url)
		require.NoError(t, err)
		require.Equal(t, want, out)
	}

	// Mistakes say what to do.
	for args, want := range map[string]string{
		"chat nope":              `the server has no graph "nope"; it has careful`,
		"chat a b":               "quote a message",
		"chat --thread nope":     "list them: understudy threads --url",
		"state nope":             "list them: understudy threads --url",
		"runs ../x":              "list them: understudy threads --url",
		"logs":                   "needs the ID of a thread",
		"threads --graph nope":   `the server has no graph "nope"; it has careful`,
		"threads --url nonsense": "is no URL of a server",
		"threads -H nonsense":    "is not of the form 'Name: value'",
	} {
		words := strings.Fields(args)
		if !strings.Contains(args, "--url") {
			words = append(words, "-u", url)
		}
		_, err := execute(t, words...)
		require.ErrorContains(t, err, want, args)
	}
	_, err = execute(t, "threads", "-u", url+"/elsewhere")
	require.ErrorContains(t, err, "404 Not Found; name your server with --url, with its mount prefix if it has one: "+url+"/elsewhere has no LangGraph API")
	_, err = execute(t, "threads", "-u", strings.Replace(url, "http://", "https://", 1))
	require.ErrorContains(t, err, "has plain HTTP, not TLS; write http:// in place of https://")
	_, err = execute(t, "threads", "-u", "http://127.0.0.1:1")
	require.ErrorContains(t, err, "nothing listens on http://127.0.0.1:1; start a server with `understudy dev`")
}

// An answer that is not whole says so.
func TestEndsOfAnswers(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`{"content":"Hi","response_metadata":{"finish_reason":"stop"}}`: "Hi\n",
		`{"content":"Hi"}`: "Hi\n",
		`{"content":"Hi","response_metadata":{"finish_reason":"length"}}`:                                              "Hi\n(the answer was cut off at the limit of tokens: length)\n",
		`{"content":[{"type":"text","text":"Hi"}],"response_metadata":{"stop_reason":"max_tokens"}}`:                   "Hi\n(the answer was cut off at the limit of tokens: max_tokens)\n",
		`{"content":"","response_metadata":{"finish_reason":"content_filter"}}`:                                        "(the answer ended early: content_filter)\n",
		`{"content":"","response_metadata":{"finish_reason":"stop"},"additional_kwargs":{"refusal":"No."}}`:            "(the model refuses: No.)\n(an answer without text)\n",
		`{"content":"","response_metadata":{"finish_reason":"tool_calls"}}`:                                            "(an answer without text)\n",
		`{"content":"","invalid_tool_calls":[{"name":"f","args":"{\"a","error":null}]}`:                                "(a call of f could not be read: {\"a)\n(an answer without text)\n",
		`{"content":"","tool_calls":[{"name":"f","args":{},"id":"1"}],"response_metadata":{"stop_reason":"tool_use"}}`: "→ f {}\n",
	} {
		var out bytes.Buffer
		c := &chat{out: &out, seen: map[string]bool{}}
		m := gjson.Parse(strings.Replace(message, "{", `{"type":"ai","id":"m",`, 1))
		c.message(m)
		c.message(m)
		require.Equal(t, want, out.String(), message)
	}
}

// scriptedLines answers prompts.
type scriptedLines []string

func (l *scriptedLines) interactive() bool { return false }
func (l *scriptedLines) line(string) (string, error) {
	if len(*l) == 0 {
		return "", io.EOF
	}
	text := (*l)[0]
	*l = (*l)[1:]
	return text, nil
}

// Answers have the form that whoever asked expects.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const old = `[{"action_request":{"action":"send","args":{"to":"x"}},"config":{"allow_accept":true,"allow_edit":true,"allow_respond":true,"allow_ignore":true},"description":"d"}]`
	const two = `{"action_requests":[{"name":"a","args":{}},{"name":"b","args":{"n":1}}],"review_configs":[{"action_name":"b","allowed_decisions":["approve","reject"]},{"action_name":"a","allowed_decisions":["approve"]}]}`
	for _, c := range []struct {
		value string
		lines []string
		want  string
	}{
		{`"go on?"`, []string{"yes please"}, `"yes please"`},
		{`{"question":"which?"}`, []string{`{"letter": "x"}`}, `{"letter":"x"}`},
		{`3`, []string{"true"}, `true`},
		{old, []string{"a"}, `[{"args":null,"type":"accept"}]`},
		{old, []string{"edit", `{"to":"y"}`}, `[{"args":{"action":"send","args":{"to":"y"}},"type":"edit"}]`},
		{old, []string{"resp", "respond", "do not"}, `[{"args":"do not","type":"response"}]`},
		{old, []string{"reject"}, `[{"args":null,"type":"ignore"}]`},
		{two, []string{"e", "a", "e", "r", "no"}, `{"decisions":[{"type":"approve"},{"message":"no","type":"reject"}]}`},
		{two, []string{"a", "r", ""}, `{"decisions":[{"type":"approve"},{"type":"reject"}]}`},
	} {
		lines := scriptedLines(c.lines)
		chat := &chat{in: &lines, out: io.Discard, seen: map[string]bool{}}
		got, err := chat.answer(interrupt{"i", gjson.Parse(c.value)})
		require.NoError(t, err, c.value)
		b, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(b))
		require.Empty(t, lines)
	}
	chat := &chat{in: &scriptedLines{}, out: io.Discard, seen: map[string]bool{}}
	_, err := chat.answer(interrupt{"i", gjson.Parse(two)})
	require.ErrorIs(t, err, io.EOF)
}

// What a server sends cannot change the terminal.
func TestChatCleans(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &chat{out: &out, seen: map[string]bool{}}
	c.message(gjson.Parse(`{"type":"ai","id":"1","content":[{"type":"text","text":"a\u001b[2Jb\nc\u0007"},{"type":"image","data":"x"}],"tool_calls":[{"id":"2","name":"n\u001b]0;x\u0007","args":{"k":"\u001b[31m"}}]}`))
	require.NotContains(t, out.String(), "\x1b")
	require.True(t, strings.HasPrefix(out.String(), "ab\nc[image]\n→ n "), out.String())
}

// A question in words is answered by the whole message, as text or as JSON.
func TestReply(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{"send": `"send"`, "two\nlines": `"two\nlines"`, `{"letter": "other"}`: `{"letter":"other"}`} {
		var sent string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = string(body)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: messages\ndata: [{\"type\":\"AIMessageChunk\",\"id\":\"1\",\"content\":\"sent\"},{}]\n\n")
		}))
		c := &chat{api: &client{base: server.URL}, thread: "t", in: &scriptedLines{}, out: io.Discard, errs: io.Discard, seen: map[string]bool{}}
		require.NoError(t, c.reply(t.Context(), []interrupt{{"i", gjson.Parse(`{"question":"send?"}`)}}, message))
		server.Close()
		require.JSONEq(t, want, gjson.Get(sent, "command.resume").Raw)
	}
}

// A server that lists no assistants may have graphs that the caller may use: handlers of auth hide the default assistants.
func TestChatWithHiddenAssistants(t *testing.T) {
	t.Parallel()
	var deleted atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/assistants/search":
			_, _ = io.WriteString(w, "[]")
		case r.Method == http.MethodDelete:
			deleted.Add(1)
		case r.URL.Path == "/threads":
			_, _ = io.WriteString(w, `{"thread_id":"t"}`)
		case gjson.GetBytes(body, "assistant_id").String() == "hidden":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: messages\ndata: [{\"type\":\"AIMessageChunk\",\"id\":\"1\",\"content\":\"here\"},{}]\n\n")
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"detail":"Assistant not found"}`)
		}
	}))
	t.Cleanup(server.Close)
	out, err := typeInto(t, "", "chat", "hidden", "-u", server.URL, "-m", "hello")
	require.NoError(t, err, out)
	require.Contains(t, out, "here")
	require.Zero(t, deleted.Load())
	_, err = typeInto(t, "", "chat", "other", "-u", server.URL, "-m", "hello")
	require.ErrorContains(t, err, `the server has no graph "other" that you may use`)
	require.EqualValues(t, 1, deleted.Load(), "its thread does not stay")
	_, err = typeInto(t, "", "chat", "-u", server.URL, "-m", "hello")
	require.ErrorContains(t, err, "name the graph: understudy chat GRAPH")
}

// A run that is refused says why: the thread is named only when it is not there. A new thread without a run does not stay.
func TestChatWhoseRunIsRefused(t *testing.T) {
	t.Parallel()
	const noSuch = "Invalid assistant: 'g'. Must be either:\n- A valid assistant UUID, or\n- One of the registered graphs: other"
	for name, c := range map[string]struct {
		status int
		detail string
		gone   bool // the thread, meanwhile
		want   string
	}{
		"the graph was removed":  {http.StatusUnprocessableEntity, noSuch, false, `this server does not serve the graph "g": it was removed from its langgraph.json, or only another server of its database serves it (` + noSuch},
		"the assistant is gone":  {http.StatusNotFound, "Assistant not found", false, `the server refuses a run of "g"`},
		"the request is refused": {http.StatusUnprocessableEntity, "input: too odd", false, "input: too odd"},
		"the thread is gone":     {http.StatusNotFound, "Thread not found", true, "there is no thread t (Thread not found)"},
	} {
		for _, with := range [][]string{{"g"}, {"g", "--thread", "t"}} {
			old := len(with) > 1
			if c.gone && !old {
				continue // it was made a moment ago
			}
			var ran, deleted atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				refuse := func(status int, detail string) {
					w.WriteHeader(status)
					_ = json.NewEncoder(w).Encode(map[string]string{"detail": detail})
				}
				switch {
				case r.URL.Path == "/assistants/search":
					_, _ = io.WriteString(w, `[{"assistant_id":"a","graph_id":"g"}]`)
				case r.Method == http.MethodDelete:
					deleted.Store(true)
				case strings.HasSuffix(r.URL.Path, "/runs/stream"):
					ran.Store(true)
					refuse(c.status, c.detail)
				case r.URL.Path == "/threads/t" && c.gone && ran.Load():
					refuse(http.StatusNotFound, "Thread not found")
				case strings.HasPrefix(r.URL.Path, "/threads"):
					_, _ = io.WriteString(w, `{"thread_id":"t"}`)
				default:
					_, _ = io.WriteString(w, "{}")
				}
			}))
			_, err := typeInto(t, "", append(append([]string{"chat"}, with...), "-u", server.URL, "-m", "hello")...)
			server.Close()
			require.ErrorContains(t, err, c.want, name)
			require.Equal(t, c.gone, strings.Contains(err.Error(), "no thread"), name)
			require.Equal(t, !old, deleted.Load(), name)
		}
	}
}

// Without an input schema the keys of the state say what a graph takes; without these too it is tried with messages. A graph that takes JSON shows a
// request with it.
func TestChatWithoutAnInputSchema(t *testing.T) {
	t.Parallel()
	for schemas, want := range map[string]string{
		`{"input_schema":null,"state_schema":{"type":"object","properties":{"question":{"type":"string"},"it's":{}}}}`: "this graph takes JSON, such as {\"it's\":\"some text\",\"question\":\"What is 6 times 7?\"}; in a request:\n" +
			`  curl -N URL/runs/stream -H 'content-type: application/json' -d '{"assistant_id": "g", "input": {"it'\''s":"some text","question":"What is 6 times 7?"}}'`,
		`{"input_schema":null,"state_schema":{"type":"object","properties":{"messages":{"type":"array"}}}}`:                                      "",
		`{"input_schema":{"type":"object","properties":{"n":{"type":"integer"}}},"state_schema":{"type":"object","properties":{"messages":{}}}}`: "such as {\"n\":1}",
		`{"input_schema":null,"state_schema":null}`: "",
		`{}`: "",
	} {
		var input atomic.Value
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/schemas"):
				_, _ = io.WriteString(w, schemas)
			case r.URL.Path == "/threads":
				_, _ = io.WriteString(w, `{"thread_id":"t"}`)
			case strings.HasSuffix(r.URL.Path, "/runs/stream"):
				body, _ := io.ReadAll(r.Body)
				input.Store(gjson.GetBytes(body, "input").Raw)
				w.Header().Set("Content-Type", "text/event-stream")
				written(w, 1, "hello")
			default:
				_, _ = io.WriteString(w, `[{"assistant_id":"x","graph_id":"g","metadata":{"created_by":"system"}}]`)
			}
		}))
		_, err := typeInto(t, "", "chat", "g", "--url", srv.URL+"/studio/", "-m", "hello")
		_, piped := typeInto(t, "hello\n", "chat", "g", "--url", srv.URL)
		srv.Close()
		if want != "" {
			require.ErrorContains(t, err, strings.ReplaceAll(want, "URL", srv.URL), schemas)
			require.ErrorContains(t, piped, strings.ReplaceAll(want, "URL", srv.URL), schemas)
			continue
		}
		require.NoError(t, err, schemas)
		require.JSONEq(t, `{"messages":[{"role":"user","content":"hello"}]}`, input.Load().(string), schemas)
	}
}

// Commands that meet something else than a LangGraph Server say what answers, and what to do; they do not take it for a server without the thread.
func TestAnotherServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status      int
		kind, body  string
		want, never string
	}{
		"nothing for what is not there": {404, "", "", "404 Not Found; a page answers in place of a LangGraph API: see that --url names your server", "404;"},
		"a page for what is not there":  {404, "text/html", "<!DOCTYPE HTML>\n<h1>no</h1>", "a page answers in place of a LangGraph API: see that --url names your server", "<"},
		"a page of a proxy":             {502, "text/html", "\r\n<html>Bad Gateway</html>", "502 Bad Gateway; a page answers", "<"},
		"a page for everything":         {200, "text/html", "<html></html>", "see that --url names", "thread x"},
		"an API of another kind":        {404, "application/json", `{"detail":"Not Found"}`, "has no LangGraph API", "there is no thread"},
		"a server that has a bad night": {500, "text/plain", "Internal Server Error", "500 Internal Server Error; the log of the server says more", "page"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer srv.Close()
			for _, args := range [][]string{{"chat"}, {"chat", "g", "-m", "hello"}, {"threads"}, {"runs", "x"}, {"state", "x"}, {"logs", "x"}} {
				_, err := typeInto(t, "", append(args, "--url", srv.URL)...)
				want := c.want
				if args[0] == "logs" && c.status == 404 && c.kind == "application/json" {
					want = "keeps no log of threads"
				}
				require.ErrorContains(t, err, want, args)
				require.NotContains(t, strings.ReplaceAll(err.Error(), "character '<'", ""), c.never, args)
			}
		})
	}
}

// A message answers; what else stands on standard input is that of a script around the command, and stays there.
func TestAMessageLeavesOtherInputAlone(t *testing.T) {
	t.Parallel()
	in := &script{lines: []string{"next"}}
	given := &givenLines{lines: []string{"reject"}, after: in}
	text, err := given.line("")
	require.NoError(t, err)
	require.Equal(t, "reject", text)
	_, err = given.line("why> ")
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, in.lines, 1)
	in.person = true
	text, err = given.line("why> ")
	require.NoError(t, err)
	require.Equal(t, "next", text, "a person is asked")
}

// script are the lines of a file, or of a person.
type script struct {
	lines  []string
	person bool
}

func (s *script) interactive() bool { return s.person }

func (s *script) line(string) (string, error) {
	text := s.lines[0]
	s.lines = s.lines[1:]
	return text, nil
}

// A summary is shown as a sentence, not as its JSON.
func TestLogOfASummary(t *testing.T) {
	t.Parallel()
	c := &chat{out: io.Discard}
	e := gjson.Parse(`{"category": "middleware", "event_type": "middleware:summarize", "content": {"replaced_count": 5, "summary": "They\nspoke of \u001b[31mtea", "id": "s", "ids": ["a"]}}`)
	require.Regexp(t, `^5 messages condensed: They spoke of [^\x1b]*tea$`, describeEvent(c, e))
}

// Who lacks a scope learns which one, not how to send credentials.
func TestRefusedForAScope(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"write", "admin"} {
		text := (&statusError{status: 403, what: "POST /threads", detail: "Forbidden: threads.create needs the scope " + scope}).Error()
		require.Contains(t, text, "use a key with the scope "+scope)
		require.Contains(t, text, "--scope "+scope)
		require.NotContains(t, text, "--header")
	}
	require.Contains(t, (&statusError{status: 403, detail: "Forbidden: look into the scope of things"}).Error(), "--header")
}
