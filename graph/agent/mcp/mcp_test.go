package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/graph/agent"
	"understudy/graph/agent/scripted"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/logtest"
)

// The test binary is an MCP server too, when this variable says so.
const serverMode = "UNDERSTUDY_TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(serverMode); mode != "" {
		if err := serve(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type pathArgs struct {
	Path string `json:"path"`
}

func serve(mode string) error {
	fmt.Fprintln(os.Stderr, "a server of the tests, mode", mode)
	switch mode {
	case "silent": // never answers
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	case "broken":
		return errors.New("out of order")
	case "noise":
		fmt.Println("this is no JSON")
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	text := func(s string) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}, nil, nil
	}
	sdk.AddTool(s, &sdk.Tool{Name: "pid", Description: "Its process."}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return text(strconv.Itoa(os.Getpid()))
	})
	sdk.AddTool(s, &sdk.Tool{Name: "environment"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return text(strings.Join(os.Environ(), "\n"))
	})
	sdk.AddTool(s, &sdk.Tool{Name: "die"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		os.Exit(3)
		return nil, nil, nil
	})
	sdk.AddTool(s, &sdk.Tool{Name: "fail"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return nil, nil, errors.New("that did not work")
	})
	sdk.AddTool(s, &sdk.Tool{Name: "mixed"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "look"}, &sdk.ImageContent{Data: []byte{1}, MIMEType: "image/png"}, &sdk.AudioContent{Data: []byte{2}, MIMEType: "audio/wav"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "f:a", Text: "inner"}}, &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "f:b", Blob: []byte{3}, MIMEType: "a/b"}},
			&sdk.ResourceLink{URI: "file:///c", Name: "c"},
		}}, nil, nil
	})
	// It waits until the file exists, and so does its writer.
	sdk.AddTool(s, &sdk.Tool{Name: "wait"}, func(ctx context.Context, _ *sdk.CallToolRequest, a pathArgs) (*sdk.CallToolResult, any, error) {
		if err := os.WriteFile(a.Path, nil, 0o600); err != nil {
			return nil, nil, err
		}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	sdk.AddTool(s, &sdk.Tool{Name: "grow"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		sdk.AddTool(s, &sdk.Tool{Name: "grown"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return text("new")
		})
		return text("grown")
	})
	return s.Run(context.Background(), &sdk.StdioTransport{})
}

// source runs the test binary as a server.
func source(t *testing.T, o Options, mode string) *Source {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	o.Command = exe
	if o.Name == "" {
		o.Name = "test"
	}
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	o.Env[serverMode] = mode
	s, err := New(o)
	require.NoError(t, err)
	s.pause = time.Millisecond
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// use calls a tool by name.
func use(t *testing.T, s *Source, name, args string) (message.Message, error) {
	t.Helper()
	tools, err := s.Tools(t.Context())
	require.NoError(t, err)
	i := slices.IndexFunc(tools, func(tool agent.Tool) bool { return tool.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	out, err := tools[i].Run(t.Context(), message.ToolCall{Name: name, ID: "c1", Args: json.RawMessage(args)})
	if err != nil {
		return message.Message{}, err
	}
	return out.(message.Message), nil
}

func names(t *testing.T, s *Source) (out []string) {
	t.Helper()
	tools, err := s.Tools(t.Context())
	require.NoError(t, err)
	for _, tool := range tools {
		out = append(out, tool.Name)
	}
	slices.Sort(out)
	return out
}

func TestTools(t *testing.T) {
	t.Setenv("SECRET_OF_THE_SERVER", "x")
	s := source(t, Options{Env: map[string]string{"GIVEN": "yes"}}, "well")
	require.Nil(t, s.live, "nothing is started before it is needed")
	require.Equal(t, []string{"die", "environment", "fail", "grow", "mixed", "pid", "wait"}, names(t, s))
	m, err := use(t, s, "environment", "")
	require.NoError(t, err)
	require.Contains(t, m.Text(), "GIVEN=yes")
	require.NotContains(t, m.Text(), "SECRET_OF_THE_SERVER")
	m, err = use(t, s, "fail", "{}")
	require.NoError(t, err)
	require.Equal(t, "that did not work", m.Text())
	require.Equal(t, message.StatusError, m.Status)
	m, err = use(t, s, "mixed", "{}")
	require.NoError(t, err)
	require.JSONEq(t, `[{"type":"text","text":"look"},{"type":"image","base64":"AQ==","mime_type":"image/png"},{"type":"audio","base64":"Ag==","mime_type":"audio/wav"},
		{"type":"text","text":"inner"},{"type":"file","base64":"Aw==","mime_type":"a/b"},{"type":"text","text":"file:///c"}]`, string(m.Content.AppendJSON(nil)))
	m, err = use(t, s, "wait", `{"path": 3}`)
	require.NoError(t, err)
	require.Equal(t, message.StatusError, m.Status, "the server checks its arguments")
}

func TestChosenTools(t *testing.T) {
	t.Parallel()
	s := source(t, Options{Only: []string{"pid", "fail"}, Prefix: true}, "well")
	require.Equal(t, []string{"test_fail", "test_pid"}, names(t, s))
	m, err := use(t, s, "test_fail", "{}")
	require.NoError(t, err)
	require.Equal(t, "that did not work", m.Text())
	_, err = source(t, Options{Only: []string{"nothing"}}, "well").Tools(t.Context())
	require.ErrorContains(t, err, `MCP server test: has no tool "nothing"`)
}

// A server that died is started again by the next call. The call that killed it is not repeated.
func TestDeath(t *testing.T) {
	t.Parallel()
	s := source(t, Options{}, "well")
	first, err := use(t, s, "pid", "{}")
	require.NoError(t, err)
	_, err = use(t, s, "die", "{}")
	require.ErrorContains(t, err, "MCP server test")
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.live == nil }, 10*time.Minute, time.Millisecond)
	second, err := use(t, s, "pid", "{}")
	require.NoError(t, err)
	require.NotEqual(t, first.Text(), second.Text())

	pid, err := strconv.Atoi(second.Text())
	require.NoError(t, err)
	server, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.live == nil }, 10*time.Minute, time.Millisecond)
	third, err := use(t, s, "pid", "{}")
	require.NoError(t, err)
	require.NotEqual(t, second.Text(), third.Text())
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	s := source(t, Options{}, "broken")
	for i := range 3 {
		_, err := s.Tools(t.Context())
		require.Error(t, err)
		require.Equal(t, i+1, s.failures)
	}
	s.pause = time.Hour
	s.failed(errors.New("once more"))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	_, err := s.Tools(ctx)
	require.ErrorIs(t, err, gone, "waiting for the next try heeds the context")
	closed := source(t, Options{}, "broken")
	require.NoError(t, closed.Close())
	_, err = closed.Tools(t.Context())
	require.ErrorIs(t, err, ErrClosed)
}

func TestSilentServer(t *testing.T) {
	t.Parallel()
	_, err := source(t, Options{Start: 50 * time.Millisecond}, "silent").Tools(t.Context())
	require.ErrorContains(t, err, "did not answer within 50ms")
	_, err = source(t, Options{Start: 5 * time.Second}, "noise").Tools(t.Context())
	require.Error(t, err)
	none, err := New(Options{Name: "none", Command: filepath.Join(t.TempDir(), "not-there")})
	require.NoError(t, err)
	_, err = none.Tools(t.Context())
	require.ErrorContains(t, err, "not-there")
	require.NoError(t, none.Close())
	_, err = New(Options{Name: "x"})
	require.ErrorContains(t, err, "a name, and a command or an address")
}

func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	s := source(t, Options{}, "well")
	file := filepath.Join(t.TempDir(), "called")
	done := make(chan error, 1)
	go func() {
		tools, err := s.Tools(context.Background())
		if err == nil {
			i := slices.IndexFunc(tools, func(tool agent.Tool) bool { return tool.Name == "wait" })
			_, err = tools[i].Run(context.Background(), message.ToolCall{Name: "wait", Args: json.RawMessage(fmt.Sprintf(`{"path":%q}`, file))})
		}
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, 20*time.Minute, time.Millisecond)
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, ErrClosed)
	_, err := s.session(t.Context())
	require.ErrorIs(t, err, ErrClosed)
}

func TestCallTimeout(t *testing.T) {
	t.Parallel()
	s := source(t, Options{Call: 50 * time.Millisecond}, "well")
	_, err := s.Tools(t.Context())
	require.NoError(t, err)
	_, err = use(t, s, "wait", fmt.Sprintf(`{"path":%q}`, filepath.Join(t.TempDir(), "f")))
	require.ErrorContains(t, err, "no result within 50ms")
	require.Eventually(t, func() bool { // on a busy machine a call may take 50 ms
		_, err := use(t, s, "pid", "{}")
		return err == nil
	}, 20*time.Minute, time.Millisecond, "the server continues")
}

func TestToolsThatChange(t *testing.T) {
	t.Parallel()
	s := source(t, Options{}, "well")
	require.NotContains(t, names(t, s), "grown")
	_, err := use(t, s, "grow", "{}")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return slices.Contains(names(t, s), "grown") }, 20*time.Minute, time.Millisecond)
}

func TestStderrIsLogged(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &lines{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, piece := range []string{"one\ntw", "o\n\n", strings.Repeat("x", 2*maxLine), "\nend\n"} {
		n, err := l.Write([]byte(piece))
		require.NoError(t, err)
		require.Equal(t, len(piece), n)
	}
	require.Less(t, len(l.rest), maxLine)
	for _, want := range []string{"line=one\n", "line=two\n", "line=end\n"} {
		require.Contains(t, out.String(), want)
	}
}

// A server from a registry, driven by an agent.
func TestRealServer(t *testing.T) {
	t.Parallel()
	script := os.Getenv("UNDERSTUDY_TEST_MCP")
	node, err := exec.LookPath("node")
	if script == "" || err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no MCP server: set UNDERSTUDY_TEST_MCP to what `conformance/setup mcp` prints")
		}
		t.Skip("SKIPPED: set UNDERSTUDY_TEST_MCP to what `conformance/setup mcp` prints")
	}
	s, err := New(Options{Name: "everything", Command: node, Args: []string{script, "stdio"}})
	require.NoError(t, err)
	model, err := scripted.Parse([]byte(`[
		{"from": "human", "when": "^add (\\d+) (\\d+)", "tool_calls": [{"id": "c1", "name": "get-sum", "args": "{\"a\": $1, \"b\": $2}"}, {"id": "c2", "name": "echo", "args": {"message": "$0"}}]},
		{"from": "human", "when": "^image", "tool_calls": [{"id": "c1", "name": "get-tiny-image"}]},
		{"content": "done"}]`))
	require.NoError(t, err)
	a, err := agent.New(agent.Options{Name: "everything", Model: agent.Model{LLM: model}, Sources: []agent.Source{s}})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	say := func(text string) gjson.Result {
		state, err := pregel.Invoke[json.RawMessage](t.Context(), a, map[string]any{"messages": []message.Message{message.Human(text)}})
		require.NoError(t, err)
		return gjson.ParseBytes(state.State)
	}
	state := say("add 17 25")
	require.Contains(t, state.Get("messages.2.content").Str, "42", state.Raw)
	require.Equal(t, "Echo: add 17 25", state.Get("messages.3.content").Str)
	require.Equal(t, "done", state.Get("messages.4.content").Str)
	state = say("image")
	require.Equal(t, "image/png", state.Get(`messages.2.content.#(type=="image").mime_type`).Str, state.Raw[:min(len(state.Raw), 500)])
}

// A server at an address is used like a program: its tools, their errors, and its return after it was away.
func TestServersAtAnAddress(t *testing.T) {
	t.Parallel()
	for name, sse := range map[string]bool{"streamable": false, "sse": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			build := func(*http.Request) *sdk.Server {
				s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
				type args struct {
					Text string `json:"text"`
				}
				sdk.AddTool(s, &sdk.Tool{Name: "say", Description: "Says it."}, func(_ context.Context, _ *sdk.CallToolRequest, a args) (*sdk.CallToolResult, any, error) {
					if a.Text == "" {
						return nil, nil, errors.New("nothing to say")
					}
					return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "said " + a.Text}}}, nil, nil
				})
				return s
			}
			handler := http.Handler(sdk.NewStreamableHTTPHandler(build, nil))
			if sse {
				handler = sdk.NewSSEHandler(build, nil)
			}
			var down atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				user, password, _ := r.BasicAuth()
				if down.Load() || r.Header.Get("X-Key") != "k" || user != "u" || password != "hidden" || r.Method == "POST" && !sse && r.URL.Query().Get("key") != "hidden" {
					http.Error(w, "away", http.StatusServiceUnavailable)
					return
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(server.CloseClientConnections)
			t.Cleanup(server.Close)
			var log logtest.Buffer
			address := strings.Replace(server.URL, "http://", "http://u:hidden@", 1) + "/mcp?key=hidden"
			s, err := New(Options{Name: "far", URL: address, SSE: sse, Prefix: true, Headers: map[string]string{"X-Key": "k"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			unreachable, err := New(Options{Name: "far", URL: "http://u:hidden@127.0.0.1:1/mcp?key=hidden", SSE: sse})
			require.NoError(t, err)
			t.Cleanup(func() { _ = unreachable.Close() })
			_, err = unreachable.Tools(t.Context())
			require.ErrorContains(t, err, "connection refused")
			require.NotContains(t, err.Error(), "hidden")
			down.Store(true)
			_, err = s.Tools(t.Context())
			require.ErrorContains(t, err, "MCP server far")
			require.NotContains(t, err.Error(), "hidden")
			down.Store(false)
			tools, err := s.Tools(t.Context())
			require.NoError(t, err)
			require.Len(t, tools, 1)
			require.Equal(t, "far_say", tools[0].Name)
			out, err := tools[0].Run(t.Context(), message.ToolCall{ID: "1", Name: "far_say", Args: []byte(`{"text":"hello"}`)})
			require.NoError(t, err)
			require.Contains(t, fmt.Sprint(out), "said hello")
			server.CloseClientConnections()
			require.Eventually(t, func() bool {
				out, err := tools[0].Run(t.Context(), message.ToolCall{ID: "2", Name: "far_say", Args: []byte(`{"text":"again"}`)})
				return err == nil && strings.Contains(fmt.Sprint(out), "said again")
			}, 30*time.Second, 50*time.Millisecond)
			require.Contains(t, log.String(), "mcp server connected")
			require.NotContains(t, log.String(), "hidden")
		})
	}
}

// While a server that does not answer is waited for, the log names it, and how long that may take. Of one that answers it says nothing.
func TestSlowStartIsLogged(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	slow := source(t, Options{Name: "sleepy", Start: 90 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))}, "silent")
	slow.quiet = 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := slow.Tools(ctx)
		done <- err
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "has not answered yet") }, 20*time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Contains(t, log.String(), "mcp_server=sleepy at_most=1m30s")
	require.Equal(t, 1, strings.Count(log.String(), "has not answered yet"))

	quick := source(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, "well")
	quick.quiet = time.Hour
	names(t, quick)
	require.Equal(t, 1, strings.Count(log.String(), "has not answered yet"))
}

// A server that redirects to another one does not show it the keys of the first.
func TestRedirectsKeepKeys(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if shown := fmt.Sprint(r.Header, r.URL); strings.Contains(shown, "hidden") {
			t.Error(shown)
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	t.Cleanup(other.Close)
	moved := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/mcp", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(moved.Close)
	for _, sse := range []bool{false, true} {
		s, err := New(Options{Name: "far", URL: strings.Replace(moved.URL, "://", "://u:hidden@", 1) + "/mcp?key=hidden", SSE: sse, Headers: map[string]string{"X-Key": "hidden"}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		_, err = s.Tools(t.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hidden")
	}
	require.Positive(t, asked.Load())
}
