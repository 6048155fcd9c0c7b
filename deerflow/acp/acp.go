// Package acp prompts agents that speak the Agent Client Protocol: programs, over stdin and stdout. Each prompt has a process and a session of its own, which end with it.
package acp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/internal/group"
)

// Agent is a program that speaks the protocol.
type Agent struct {
	Name    string
	Command string
	Args    []string
	Env     map[string]string // in addition to those that any program needs
	Model   string            // "": its own
	Approve bool              // it may do what it asks for; else it may not
	Timeout time.Duration     // from the start of the program to its answer; 0: half an hour
}

// Server is an MCP server that the agent may use, as the protocol describes it.
type Server struct {
	Type    string // "": stdio
	Name    string
	Command string
	Args    []string
	Env     map[string]string
	URL     string
	Headers map[string]string
}

// Limits of an agent.
const (
	defaultTimeout = 30 * time.Minute
	maxLine        = 16 << 20 // bytes of a message
	maxAnswer      = 1 << 20  // bytes of an answer; what follows is left out
	maxTail        = 2 << 10  // bytes of stderr, for the log
	protocol       = 1
	leave          = 2 * time.Second // for a program to end by itself after its answer
)

// TimeoutError is the error of an agent that did not answer in time.
type TimeoutError struct{ After time.Duration }

func (e *TimeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.After) }

// Prompt starts the agent in a folder, and returns its answer to a prompt. All that it started ends before Prompt returns; a process that left its group is found on
// Linux only, and only if it did not clear its environment, but none delays Prompt. The error for a command that does not exist is exec.ErrNotFound or fs.ErrNotExist,
// for one that takes too long *TimeoutError. No error has values of Env, or of variables and headers of the servers; the end of stderr is logged at level debug only.
func (a Agent) Prompt(ctx context.Context, dir string, servers []Server, prompt string, log *slog.Logger) (string, error) {
	after := a.Timeout
	if after <= 0 {
		after = defaultTimeout
	}
	limited, cancel := context.WithTimeoutCause(ctx, after, &TimeoutError{after})
	defer cancel()
	c, err := a.start(dir, log)
	if err != nil {
		return "", err
	}
	stop := c.unlessStopped(func(f func()) func() bool { return context.AfterFunc(limited, f) })
	text, err := c.talk(a, dir, servers, prompt)
	stop()
	c.end()
	if cause := context.Cause(limited); cause != nil {
		return "", cause
	}
	if err != nil {
		hide := redactor(a, servers)
		err = errors.New(hide.Replace(err.Error())) // nothing asks for a cause: what the agent sent is in its text
		c.log.Debug("acp agent failed", "error", err, "stderr", hide.Replace(c.errs.text()))
		return "", err
	}
	return text, nil
}

// conn is a running agent.
type conn struct {
	cmd  *exec.Cmd
	mark string // the value of marker in its environment

	killGroup func(pid int)

	in      io.WriteCloser
	stdout  io.Closer
	out     *bufio.Scanner
	errs    *tail
	log     *slog.Logger
	approve bool
	next    int
	answer  strings.Builder
	cut     bool
}

func (a Agent) start(dir string, log *slog.Logger) (*conn, error) {
	c := &conn{errs: &tail{}, log: log.With("acp_agent", a.Name), approve: a.Approve, mark: rand.Text(), killGroup: group.Kill}
	c.cmd = exec.Command(a.Command, a.Args...) //nolint:noctx // kill ends it with its group
	c.cmd.Dir, c.cmd.Env, c.cmd.SysProcAttr, c.cmd.Stderr, c.cmd.WaitDelay = dir, append(environment(a.Env), marker+"="+c.mark), group.Attributes(), c.errs, leave
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stdout, c.out = out, bufio.NewScanner(out)
	c.out.Buffer(nil, maxLine)
	c.log.Info("acp agent started", "pid", c.cmd.Process.Pid)
	return c, nil
}

// environment returns the variables that any program needs, those of its way to the network, and further ones.
func environment(more map[string]string) []string {
	return group.Environment(more, "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SYSTEMROOT")
}

// marker is a variable of an agent and of all that it starts, with a value for each prompt.
const marker = "UNDERSTUDY_ACP_PROMPT"

// kill kills the program with all that it started. It must not be called after Wait, when the ID may be that of another process and its group.
func (c *conn) kill() {
	c.killGroup(c.cmd.Process.Pid)
	killMarked(marker + "=" + c.mark)
}

// abort kills the program and closes its pipes: a process that is not found may hold the other ends, and a read or write would wait for it.
func (c *conn) abort() {
	c.in.Close()
	c.stdout.Close()
	c.kill()
}

// unlessStopped has abort called by a timer or context. The function that it returns stops that, or waits for its end if it has begun.
func (c *conn) unlessStopped(after func(func()) (stop func() bool)) (stop func()) {
	ended := make(chan struct{})
	cancel := after(func() {
		defer close(ended)
		c.abort()
	})
	return func() {
		if !cancel() {
			<-ended
		}
	}
}

// end ends the program with all that it started, and waits for it.
func (c *conn) end() {
	c.in.Close()
	stop := c.unlessStopped(func(f func()) func() bool { return time.AfterFunc(leave, f).Stop })
	for c.out.Scan() { // with a full pipe it would not end
	}
	awaitExit(c.cmd.Process.Pid)
	stop()
	c.kill()         // its children
	_ = c.cmd.Wait() // its status says nothing about the answer
}

// talk asks for the answer to a prompt.
func (c *conn) talk(a Agent, dir string, servers []Server, prompt string) (string, error) {
	var started struct {
		Version int `json:"protocolVersion"`
	}
	if err := c.call("initialize", map[string]any{
		"protocolVersion":    protocol,
		"clientCapabilities": map[string]any{"fs": map[string]bool{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         map[string]string{"name": "understudy", "title": "understudy", "version": "1"},
	}, &started); err != nil {
		return "", err
	}
	if started.Version != protocol {
		return "", fmt.Errorf("it speaks version %d of the protocol, and version %d is known here", started.Version, protocol)
	}
	params := map[string]any{"cwd": dir, "mcpServers": described(servers)}
	if a.Model != "" {
		params["model"] = a.Model
	}
	var session struct {
		ID string `json:"sessionId"`
	}
	if err := c.call("session/new", params, &session); err != nil {
		return "", err
	}
	var done struct {
		Reason string `json:"stopReason"`
	}
	err := c.call("session/prompt", map[string]any{"sessionId": session.ID, "prompt": []any{map[string]string{"type": "text", "text": prompt}}}, &done)
	if err != nil {
		return "", err
	}
	c.log.Info("acp agent answered", "stop_reason", done.Reason, "bytes", c.answer.Len(), "cut", c.cut)
	text := c.answer.String()
	if c.cut {
		text = strings.ToValidUTF8(text, "") + "\n[The rest of the answer is left out.]"
	}
	return text, nil
}

// described returns servers as the protocol wants them.
func described(servers []Server) []any {
	pairs := func(m map[string]string) []any {
		list := []any{}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			list = append(list, map[string]string{"name": name, "value": m[name]})
		}
		return list
	}
	list := []any{}
	for _, s := range servers {
		if s.Type == "" || s.Type == "stdio" {
			list = append(list, map[string]any{"name": s.Name, "command": s.Command, "args": append([]string{}, s.Args...), "env": pairs(s.Env)})
		} else {
			list = append(list, map[string]any{"type": s.Type, "name": s.Name, "url": s.URL, "headers": pairs(s.Headers)})
		}
	}
	return list
}

// packet is a message of JSON-RPC, of any kind.
type packet struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *problem        `json:"error,omitempty"`
}

type problem struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (p *problem) Error() string {
	if len(p.Data) > 0 && len(p.Data) < 500 {
		return fmt.Sprintf("%s (%d): %s", p.Message, p.Code, p.Data)
	}
	return fmt.Sprintf("%s (%d)", p.Message, p.Code)
}

// call sends a request and waits for its result. Messages that the agent sends meanwhile are handled.
func (c *conn) call(method string, params, into any) error {
	c.next++
	id := []byte(fmt.Sprint(c.next))
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	if err := c.send(packet{ID: id, Method: method, Params: raw}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for c.out.Scan() {
		line := bytes.TrimSpace(c.out.Bytes())
		if len(line) == 0 || line[0] != '{' {
			continue // a program that greets
		}
		var p packet
		if err := json.Unmarshal(line, &p); err != nil {
			return fmt.Errorf("%s: it sends invalid JSON: %w", method, err)
		}
		switch {
		case p.Method != "":
			if err := c.receive(p); err != nil {
				return fmt.Errorf("%s: %w", method, err)
			}
		case !bytes.Equal(p.ID, id):
		case p.Error != nil:
			return fmt.Errorf("%s: %w", method, p.Error)
		default:
			if err := json.Unmarshal(p.Result, into); err != nil {
				return fmt.Errorf("%s: its result: %w", method, err)
			}
			return nil
		}
	}
	if err := c.out.Err(); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return fmt.Errorf("%s: %w", method, errEnded)
}

var errEnded = errors.New("the program ended without an answer")

func (c *conn) send(p packet) error {
	p.Version = "2.0"
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = c.in.Write(append(raw, '\n'))
	return err
}

// receive handles a request or notification of the agent.
func (c *conn) receive(p packet) error {
	switch p.Method {
	case "session/update":
		var u struct {
			Update struct {
				Kind    string          `json:"sessionUpdate"`
				Content json.RawMessage `json:"content"` // of other kinds a list
			} `json:"update"`
		}
		if json.Unmarshal(p.Params, &u) == nil && u.Update.Kind == "agent_message_chunk" {
			var block struct{ Type, Text string }
			if json.Unmarshal(u.Update.Content, &block) == nil && block.Type == "text" {
				room := maxAnswer - c.answer.Len()
				c.cut = c.cut || len(block.Text) > room
				c.answer.WriteString(block.Text[:min(len(block.Text), room)])
			}
		}
	case "session/request_permission":
		return c.send(packet{ID: p.ID, Result: c.permit(p.Params)})
	default:
		if p.ID != nil {
			return c.send(packet{ID: p.ID, Error: &problem{Code: -32601, Message: "Method not found: " + p.Method}})
		}
	}
	return nil
}

// permit answers a request for a permission: once, if the agent may do what it asks for.
func (c *conn) permit(params json.RawMessage) json.RawMessage {
	var asked struct {
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	_ = json.Unmarshal(params, &asked) // invalid parameters have no options to allow
	outcome := map[string]string{"outcome": "cancelled"}
	if c.approve {
		for _, kind := range []string{"allow_once", "allow_always"} {
			for _, o := range asked.Options {
				if o.Kind == kind && o.ID != "" && outcome["optionId"] == "" {
					outcome = map[string]string{"outcome": "selected", "optionId": o.ID}
				}
			}
		}
	}
	c.log.Info("acp agent asked for a permission", "outcome", outcome["outcome"])
	raw, _ := json.Marshal(map[string]any{"outcome": outcome}) // it has strings only
	return raw
}

// minSecret is the length of the shortest value that is redacted: texts are full of shorter ones, such as true and 8080, and none of them is a secret.
const minSecret = 6

// redactor returns what replaces the values that an agent was given and may repeat.
func redactor(a Agent, servers []Server) *strings.Replacer {
	secrets := map[string]bool{}
	add := func(values map[string]string) {
		for _, v := range values {
			_, after, _ := strings.Cut(v, " ") // the token of "Bearer …"
			for _, one := range []string{v, after} {
				if len(one) >= minSecret {
					quoted, _ := json.Marshal(one) // a text
					secrets[one], secrets[string(quoted[1:len(quoted)-1])] = true, true
				}
			}
		}
	}
	add(a.Env)
	for _, s := range servers {
		add(s.Env)
		add(s.Headers)
	}
	longest := slices.SortedFunc(maps.Keys(secrets), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // one may contain another
	pairs := make([]string, 0, 2*len(longest))
	for _, one := range longest {
		pairs = append(pairs, one, "[redacted]")
	}
	return strings.NewReplacer(pairs...)
}

// tail keeps the end of what a program prints.
type tail struct {
	mu   sync.Mutex
	last []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = t.cut || len(t.last)+len(p) > maxTail
	t.last = append(t.last, p[max(0, len(p)-maxTail):]...)
	t.last = append(t.last[:0], t.last[max(0, len(t.last)-maxTail):]...)
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.last)
	if t.cut { // its first line may begin within a secret, which would not be found
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.TrimSpace(strings.ToValidUTF8(text, ""))
}
