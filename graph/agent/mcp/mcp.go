// Package mcp provides an agent with the tools of MCP servers: programs, over stdin and stdout, and servers at an address.
//
// A Source owns its server: the first request for tools starts it, the next use restarts one that died, after a backoff, and Close
// ends it. Stderr of a server is logged.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/internal/group"
)

// Options say how a server is run, or where it is: Command or URL is required.
type Options struct {
	Name string // for logs, errors and prefixes
	// URL is the address of a server that runs elsewhere; SSE that it speaks the older protocol there, in place of streamable HTTP.
	URL string
	SSE bool
	// Headers go with its requests. Transport sends them, with credentials that change; nil: http.DefaultTransport.
	Headers   map[string]string
	Transport http.RoundTripper

	Command string
	Args    []string
	// Env are additional environment variables, besides those that any program needs (HOME, PATH and so on). Keys of this process are
	// not passed on.
	Env map[string]string
	Dir string // "": that of this process
	// Only are the tools that the agent gets; none: all.
	Only []string
	// Prefix puts "<Name>_" before the names of its tools, which two servers may both have.
	Prefix bool
	// Start is the time limit for a server to start and list its tools; 0: 30 seconds.
	Start time.Duration
	// Call bounds a call of a tool; 0: 5 minutes.
	Call time.Duration
	Log  *slog.Logger // nil: nothing is logged
}

// Pauses before a server that failed is started again.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// quiet is how long a server may take to start before the log says that it is waited for: until then a run looks as if it hangs.
const quiet = 2 * time.Second

// Source is a server's tools. It is safe for concurrent use.
type Source struct {
	opts  Options
	at    *url.URL      // Options.URL; nil: a program
	pause time.Duration // first one
	quiet time.Duration // how long a start may take before the log says so

	turn chan struct{}   // who holds it starts the server
	open context.Context // ends with Close
	end  context.CancelCauseFunc
	over sync.WaitGroup

	mu       sync.Mutex
	live     *session // nil: not running
	tools    []agent.Tool
	stale    bool // the server has said that its tools changed
	failures int
	next     time.Time // not before
	closed   bool
}

var _ agent.Source = (*Source)(nil)

// New makes a source. It starts nothing.
func New(o Options) (*Source, error) {
	if o.Name == "" || (o.Command == "") == (o.URL == "") {
		return nil, errors.New("an MCP server needs a name, and a command or an address")
	}
	var at *url.URL
	if o.URL != "" {
		var err error
		if at, err = url.Parse(o.URL); err != nil { // its text repeats the address
			return nil, fmt.Errorf("the address of the MCP server %s cannot be parsed", o.Name)
		}
	}
	if o.Start <= 0 {
		o.Start = 30 * time.Second
	}
	if o.Call <= 0 {
		o.Call = 5 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("mcp_server", o.Name)
	s := &Source{opts: o, at: at, pause: firstPause, quiet: quiet, turn: make(chan struct{}, 1)}
	s.open, s.end = context.WithCancelCause(context.Background())
	return s, nil
}

// ErrClosed: the source was closed.
var ErrClosed = errors.New("the MCP server was closed")

// session is one life of the server.
type session struct {
	*sdk.ClientSession
	cmd *exec.Cmd          // nil: it runs elsewhere
	end context.CancelFunc // of what belongs to it
}

// Tools returns the server's tools. What is known is given at once, also while the server is down: the call of a tool starts it again.
func (s *Source) Tools(ctx context.Context) ([]agent.Tool, error) {
	s.mu.Lock()
	tools, known := s.tools, s.tools != nil && !s.stale
	s.mu.Unlock()
	if known {
		return tools, nil
	}
	if _, err := s.session(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools, nil
}

// session returns the running server; it starts one if there is none, and asks it for its tools.
func (s *Source) session(ctx context.Context) (*session, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	live, stale, closed, next := s.live, s.stale, s.closed, s.next
	s.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case live != nil && !stale:
		return live, nil
	case live != nil:
		return live, s.list(ctx, live)
	}
	if err := s.rest(ctx, time.Until(next)); err != nil {
		return nil, err
	}
	live, err := s.start(ctx)
	if err != nil {
		s.failed(err)
		return nil, fmt.Errorf("MCP server %s: %w", s.opts.Name, err)
	}
	return live, nil
}

// rest waits until a server that failed may be started again.
func (s *Source) rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.open.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failed postpones the next start.
func (s *Source) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := min(s.pause<<min(s.failures, 16), lastPause)
	s.failures++
	s.next = time.Now().Add(pause)
	s.opts.Log.Warn("mcp server failed", "error", err, "pause", pause.String())
}

// start runs the server and asks for its tools.
func (s *Source) start(ctx context.Context) (*session, error) {
	ctx, cancel := s.within(ctx, s.opts.Start, "did not answer")
	defer cancel()
	defer s.logSlow(ctx)()
	transport, cmd := s.transport()
	client := sdk.NewClient(&sdk.Implementation{Name: "understudy", Version: "1"}, &sdk.ClientOptions{
		Capabilities:           &sdk.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { s.markStale() },
	})
	// The connection may belong to the context that it is made with: one that lives as long, and ends with ctx until it is there.
	life, end := context.WithCancel(s.open)
	connected := context.AfterFunc(ctx, end)
	conn, err := client.Connect(life, transport, nil)
	connected()
	if err != nil {
		end()
		s.kill(cmd)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	live := &session{conn, cmd, end}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = conn.Close()
		end()
		s.kill(cmd)
		return nil, ErrClosed
	}
	s.live = live
	s.over.Add(1)
	s.mu.Unlock()
	go s.watch(live)
	if err := s.list(ctx, live); err != nil {
		_ = conn.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	if cmd != nil {
		s.opts.Log.Info("mcp server started", "pid", cmd.Process.Pid)
	} else {
		s.opts.Log.Info("mcp server connected", "url", place(s.at))
	}
	return live, nil
}

// logSlow logs that a start takes long, and for how long it is waited for, until the function that it returns is called.
func (s *Source) logSlow(ctx context.Context) (done func()) {
	began, over := time.Now(), make(chan struct{})
	until, _ := ctx.Deadline()
	timer := time.AfterFunc(s.quiet, func() {
		defer close(over)
		s.opts.Log.Warn("an MCP server has not answered yet; runs that need its tools wait for it", "at_most", until.Sub(began).Round(time.Second).String())
	})
	return func() {
		if !timer.Stop() {
			<-over
		}
	}
}

// transport is the way to the server, and its process; nil if it runs elsewhere.
func (s *Source) transport() (sdk.Transport, *exec.Cmd) {
	if s.at != nil {
		client := &http.Client{Transport: headed{s.opts, s.at}}
		if s.opts.SSE {
			return &sdk.SSEClientTransport{Endpoint: place(s.at), HTTPClient: client}, nil
		}
		return &sdk.StreamableClientTransport{Endpoint: place(s.at), HTTPClient: client}, nil
	}
	cmd := exec.Command(s.opts.Command, s.opts.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.opts.Dir, group.Environment(s.opts.Env, "TERM"), group.Attributes()
	cmd.Stderr = &lines{log: s.opts.Log}
	cmd.WaitDelay = 2 * time.Second // a child of it may hold stderr
	return &sdk.CommandTransport{Command: cmd, TerminateDuration: 2 * time.Second}, cmd
}

// place is an address without what may hold a key: errors, which reach logs and the clients of runs, repeat it.
func place(at *url.URL) string {
	return (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path, RawPath: at.RawPath}).String()
}

// headed sends requests to the server at an address with the headers of options and with what place leaves out of the address. Another server, to which it
// redirects, gets neither.
type headed struct {
	Options
	at *url.URL
}

// RoundTrip implements http.RoundTripper.
func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == h.at.Host && (r.URL.Scheme == h.at.Scheme || r.URL.Scheme == "https") {
		r = r.Clone(r.Context())
		for name, value := range h.Headers {
			r.Header.Set(name, value)
		}
		if password, _ := h.at.User.Password(); h.at.User != nil && r.Header.Get("Authorization") == "" {
			r.SetBasicAuth(h.at.User.Username(), password)
		}
		if r.URL.Path == h.at.Path && r.URL.RawQuery == "" {
			r.URL.RawQuery = h.at.RawQuery
		}
	}
	if h.Transport != nil {
		return h.Transport.RoundTrip(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// within bounds a context by a time and by the life of the source.
func (s *Source) within(ctx context.Context, d time.Duration, what string) (context.Context, func()) {
	ctx, timeout := context.WithTimeoutCause(ctx, d, fmt.Errorf("%s within %s", what, d))
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.open, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		timeout()
	}
}

// watch waits for the end of a server.
func (s *Source) watch(live *session) {
	defer s.over.Done()
	err := live.Wait()
	_ = live.Close()
	live.end()
	s.kill(live.cmd)
	s.mu.Lock()
	s.live = nil
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		if err == nil {
			err = errors.New("it ended")
		}
		s.failed(err)
	}
}

// kill ends what is left of a server: its children too.
func (s *Source) kill(cmd *exec.Cmd) {
	if cmd != nil && cmd.Process != nil {
		group.Kill(cmd.Process.Pid)
	}
}

func (s *Source) markStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

// maxTools of one server.
const maxTools = 1000

// list asks for the tools.
func (s *Source) list(ctx context.Context, live *session) error {
	s.mu.Lock()
	s.stale = false
	s.mu.Unlock()
	tools := []agent.Tool{}
	for t, err := range live.Tools(ctx, nil) {
		if err != nil {
			s.markStale()
			return fmt.Errorf("list tools: %w", err)
		}
		if len(s.opts.Only) > 0 && !slices.Contains(s.opts.Only, t.Name) {
			continue
		}
		if len(tools) == maxTools {
			return fmt.Errorf("list tools: more than %d", maxTools)
		}
		schema, err := json.Marshal(t.InputSchema)
		if err != nil {
			return fmt.Errorf("schema of tool %s: %w", t.Name, err)
		}
		tools = append(tools, s.tool(t.Name, t.Description, schema))
	}
	for _, name := range s.opts.Only {
		if !slices.ContainsFunc(tools, func(t agent.Tool) bool { return t.Name == s.shown(name) }) {
			return fmt.Errorf("has no tool %q", name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools, s.failures = tools, 0
	return nil
}

func (s *Source) shown(name string) string {
	if s.opts.Prefix {
		return s.opts.Name + "_" + name
	}
	return name
}

// tool is one of the server's. The server checks the arguments: its schema may be of another draft than ours.
func (s *Source) tool(name, description string, schema json.RawMessage) agent.Tool {
	return agent.Tool{
		Name: s.shown(name), Description: description, Schema: schema, Unwatched: true, Remote: true,
		Run: func(ctx context.Context, call message.ToolCall) (any, error) { return s.call(ctx, name, call) },
	}
}

// call runs a tool. It is not retried: the effects of the first try are unknown.
func (s *Source) call(ctx context.Context, name string, call message.ToolCall) (any, error) {
	ctx, cancel := s.within(ctx, s.opts.Call, "no result")
	defer cancel()
	live, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	args := call.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	out, err := live.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("MCP server %s: %w", s.opts.Name, err)
	}
	return result(call, out)
}

// result makes a tool message of a result: text as text, anything else as content blocks; structured content is its artifact.
func result(call message.ToolCall, out *sdk.CallToolResult) (any, error) {
	m := message.Tool("", call.ID).WithName(call.Name)
	if out.IsError {
		m.Status = message.StatusError
	}
	var texts []string
	var blocks []json.RawMessage
	plain := true
	for _, c := range out.Content {
		block := map[string]any{}
		switch c := c.(type) {
		case *sdk.TextContent:
			texts = append(texts, c.Text)
			block["type"], block["text"] = "text", c.Text
		case *sdk.ImageContent:
			plain = false
			block["type"], block["base64"], block["mime_type"] = "image", c.Data, c.MIMEType
		case *sdk.AudioContent:
			plain = false
			block["type"], block["base64"], block["mime_type"] = "audio", c.Data, c.MIMEType
		case *sdk.ResourceLink:
			texts = append(texts, c.URI)
			block["type"], block["text"] = "text", c.URI
		case *sdk.EmbeddedResource:
			if c.Resource == nil {
				continue
			}
			if c.Resource.Blob == nil {
				texts = append(texts, c.Resource.Text)
				block["type"], block["text"] = "text", c.Resource.Text
				break
			}
			plain = false
			block["type"], block["base64"], block["mime_type"] = "file", c.Resource.Blob, c.Resource.MIMEType
		default:
			continue
		}
		raw, err := json.Marshal(block)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, raw)
	}
	if plain {
		m.Content = message.Text(strings.Join(texts, "\n"))
	} else {
		m.Content = message.Content{Blocks: blocks}
	}
	if out.StructuredContent != nil {
		raw, err := json.Marshal(map[string]any{"structured_content": out.StructuredContent})
		if err != nil {
			return nil, err
		}
		m.Artifact = raw
	}
	return m, nil
}

// Close ends the server and waits for its end. Running calls fail.
func (s *Source) Close() error {
	s.mu.Lock()
	live := s.live
	s.closed = true
	s.mu.Unlock()
	s.end(ErrClosed) // a session ends only when its calls have
	if live != nil {
		_ = live.Close() // watch reports how it ended
	}
	s.over.Wait()
	return nil
}

// lines logs what a server writes to stderr.
type lines struct {
	log  *slog.Logger
	rest []byte
}

// maxLine of a log line.
const maxLine = 4 << 10

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := slices.Index(l.rest, '\n')
		if end < 0 && len(l.rest) < maxLine {
			return len(p), nil
		}
		if end < 0 || end > maxLine {
			end = maxLine
		}
		if text := strings.TrimSpace(string(l.rest[:end])); text != "" {
			l.log.Debug("mcp server says", "line", text)
		}
		l.rest = append(l.rest[:0], l.rest[min(end+1, len(l.rest)):]...)
	}
}
