package acp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"understudy/deerflow/acp"
)

// TestMain is an agent, too, when a test starts this program as one.
func TestMain(m *testing.M) {
	if mode := os.Getenv("FAKE_AGENT"); mode != "" {
		fake(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

// hang waits to be ended. Without cgo, `select {}` would be recognized as a deadlock, and end the program.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// fake is an agent. It answers with what it was asked for, and with what it may do.
func fake(mode string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	say := func(v string) { fmt.Println(v) }
	chunk := func(text string) {
		raw, _ := json.Marshal(text)
		say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":` + string(raw) + `}}}}`)
	}
	read := func() gjson.Result {
		if !in.Scan() {
			os.Exit(0)
		}
		return gjson.Parse(strings.Clone(in.Text()))
	}
	session := ""
	for {
		r := read()
		switch r.Get("method").String() {
		case "initialize":
			version := "1"
			switch mode {
			case "mute":
				hang()
			case "old":
				version = "7"
			case "dies":
				fmt.Fprintln(os.Stderr, "no licence")
				os.Exit(3)
			case "garbage":
				say("{]")
			case "daemon", "daemon hangs", "daemon deaf":
				cmd := exec.Command("setsid", "sleep", "600")
				cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
				if os.Getenv("CLEARED") != "" {
					cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
				}
				_ = cmd.Start()
				_ = os.WriteFile("child", []byte(fmt.Sprint(cmd.Process.Pid)), 0o600)
				if mode == "daemon hangs" {
					hang()
				}
			case "child":
				cmd := exec.Command("sleep", "600")
				cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
				_ = cmd.Start()
				_ = os.WriteFile("child", []byte(fmt.Sprint(cmd.Process.Pid)), 0o600)
			}
			say("hello, I am a program that greets")
			say(`{"jsonrpc":"2.0","id":` + r.Get("id").Raw + `,"result":{"protocolVersion":` + version + `,"agentCapabilities":{}}}`)
		case "session/new":
			session = r.Get("params").Raw
			if mode == "leaks" {
				fmt.Fprintln(os.Stderr, "the key is "+os.Getenv("SECRET_KEY"))
				fmt.Fprintln(os.Stderr, "no licence")
				data, _ := json.Marshal(os.Getenv("SECRET_KEY") + " of " + r.Get("params.mcpServers.0.env.0.value").String() + ", " + strings.TrimPrefix(r.Get("params.mcpServers.1.headers.0.value").String(), "Bearer "))
				say(`{"jsonrpc":"2.0","id":` + r.Get("id").Raw + `,"error":{"code":-32000,"message":"wrong key ` + os.Getenv("PLAIN_KEY") + `, retry is true","data":` + string(data) + `}}`)
				continue
			}
			if mode == "login" {
				say(`{"jsonrpc":"2.0","id":` + r.Get("id").Raw + `,"error":{"code":-32000,"message":"Authentication required"}}`)
				continue
			}
			say(`{"jsonrpc":"2.0","id":` + r.Get("id").Raw + `,"result":{"sessionId":"s"}}`)
			if mode == "daemon deaf" {
				hang()
			}
		case "session/prompt":
			switch mode {
			case "hangs":
				chunk("half")
				_ = os.WriteFile("asked", nil, 0o600)
				hang()
			case "floods":
				for range 200 {
					chunk(strings.Repeat("x", 64<<10))
				}
			case "endless line":
				for {
					fmt.Print(strings.Repeat("x", 64<<10))
				}
			case "empty":
			default:
				say(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"thinking"}}}}`)
				say(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","content":[{"type":"x"}]}}}`)
				say(`{"jsonrpc":"2.0","id":90,"method":"fs/read_text_file","params":{"path":"/etc/passwd"}}`)
				chunk(fmt.Sprintf("%s; file: %s; ", r.Get("params.prompt.0.text").String(), read().Get("error.code").Raw))
				say(`{"jsonrpc":"2.0","id":"p","method":"session/request_permission","params":{"options":[{"optionId":"a","kind":"allow_always"},{"optionId":"o","kind":"allow_once"},{"optionId":"r","kind":"reject_once"}]}}`)
				chunk(read().Get("result.outcome").Raw + "; " + session)
			}
			say(`{"jsonrpc":"2.0","id":` + r.Get("id").Raw + `,"result":{"stopReason":"end_turn"}}`)
		}
	}
}

func agent(t *testing.T, mode string) acp.Agent {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return acp.Agent{Name: "fake", Command: self, Env: map[string]string{"FAKE_AGENT": mode, "GOCOVERDIR": t.TempDir()}, Timeout: 2 * time.Minute}
}

var quiet = slog.New(slog.DiscardHandler)

// An agent is asked in its folder, with the MCP servers, and is allowed what the configuration says; it gets no files of this machine through the protocol.
func TestPrompt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers := []acp.Server{
		{Name: "a", Command: "npx", Env: map[string]string{"K": "v"}}, {Type: "http", Name: "b", URL: "http://x", Headers: map[string]string{"H": "w"}},
	}
	session := `{"cwd":` + string(must(json.Marshal(dir))) + `,"mcpServers":[{"args":[],"command":"npx","env":[{"name":"K","value":"v"}],"name":"a"},{"headers":[{"name":"H","value":"w"}],"name":"b","type":"http","url":"http://x"}]}`
	for approve, want := range map[bool]string{false: `{"outcome":"cancelled"}`, true: `{"optionId":"o","outcome":"selected"}`} {
		a := agent(t, "works")
		a.Approve = approve
		got, err := a.Prompt(t.Context(), dir, servers, "do it", quiet)
		require.NoError(t, err)
		require.Equal(t, "do it; file: -32601; "+want+"; "+session, got)
	}
	got, err := agent(t, "empty").Prompt(t.Context(), dir, nil, "x", quiet)
	require.NoError(t, err)
	require.Empty(t, got)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// Whatever a program does, Prompt returns in time, with what went wrong.
func TestAgentsThatMisbehave(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"dies": "initialize: the program ended without an answer", "garbage": "it sends invalid JSON", "old": "version 7 of the protocol", "login": "session/new: Authentication required (-32000)",
		"endless line": "token too long",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			_, err := agent(t, mode).Prompt(t.Context(), t.TempDir(), nil, "x", quiet)
			require.ErrorContains(t, err, want)
		})
	}
	for _, mode := range []string{"mute", "hangs"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := agent(t, mode)
			a.Timeout = time.Second
			_, err := a.Prompt(t.Context(), t.TempDir(), nil, strings.Repeat("x", 1<<20), quiet)
			var late *acp.TimeoutError
			require.ErrorAs(t, err, &late)
			require.Equal(t, time.Second, late.After)
		})
	}
	got, err := agent(t, "floods").Prompt(t.Context(), t.TempDir(), nil, "x", quiet)
	require.NoError(t, err)
	require.Less(t, len(got), 1<<20+100)
	require.True(t, strings.HasSuffix(got, "x\n[The rest of the answer is left out.]"))
	_, err = acp.Agent{Name: "x", Command: "no-such-program-of-understudy"}.Prompt(t.Context(), t.TempDir(), nil, "x", quiet)
	require.ErrorIs(t, err, exec.ErrNotFound)
}

// What an agent repeats of its variables, and of those of MCP servers, is in no error and no log; what it prints is in the log at level debug.
func TestSecrets(t *testing.T) {
	t.Parallel()
	a := agent(t, "leaks")
	a.Env["SECRET_KEY"], a.Env["PLAIN_KEY"], a.Env["RETRY"] = `sk-"quoted"-17`, "sk-plain-18", "true"
	servers := []acp.Server{
		{Name: "a", Command: "npx", Env: map[string]string{"K": "sk-plain-18-longer"}}, {Type: "http", Name: "b", URL: "http://x", Headers: map[string]string{"H": "Bearer token-19"}},
	}
	var debug, info bytes.Buffer
	_, err := a.Prompt(t.Context(), t.TempDir(), servers, "x", slog.New(slog.NewTextHandler(&debug, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.EqualError(t, err, `session/new: wrong key [redacted], retry is true (-32000): "[redacted] of [redacted], [redacted]"`)
	require.Contains(t, debug.String(), "no licence")
	require.Contains(t, debug.String(), "the key is [redacted]")
	for _, secret := range []string{"quoted", "plain-18", "token-19"} {
		require.NotContains(t, debug.String(), secret)
	}
	_, err = a.Prompt(t.Context(), t.TempDir(), nil, "x", slog.New(slog.NewTextHandler(&info, nil)))
	require.Error(t, err)
	require.NotContains(t, info.String(), "licence")
}

// A run that is cancelled ends its agent.
func TestCancel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := agent(t, "hangs").Prompt(ctx, dir, nil, "x", quiet)
		done <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "asked")); return err == nil }, 20*time.Second, 10*time.Millisecond)
	gone := errors.New("cancelled by the user")
	cancel(gone)
	require.ErrorIs(t, <-done, gone)
}
