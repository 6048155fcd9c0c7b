package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// logged is a log that is read while others write it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// one runs an agent whose model calls a tool once, and returns the text of the tool message, the log and the error.
func one(t *testing.T, o agent.Options, tool agent.Tool) (text, log string, err error) {
	t.Helper()
	o.Tools, o.Model = []agent.Tool{tool}, model(t, fake)
	a, err := agent.New(o)
	require.NoError(t, err)
	var lines logged
	type state struct {
		Messages []message.Message `json:"messages"`
	}
	r, err := pregel.Invoke[state](t.Context(), a, pregel.Values{"messages": []message.Message{message.Human(`call search {"q":"x"}`)}},
		pregel.WithLog(slog.New(slog.NewTextHandler(&lines, nil))))
	for _, m := range r.State.Messages {
		if m.Type == message.TypeTool {
			text = m.Text()
		}
	}
	return text, lines.String(), err
}

// A panic of a tool becomes a message for the model, and the log has its stack. When errors of tools fail the run, its error has the stack too.
func TestPanicOfATool(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	panics := agent.MustTool("search", "", func(context.Context, searchArgs) (any, error) { return panicsWith(broken), nil })
	text, log, err := one(t, agent.Options{}, panics)
	require.NoError(t, err)
	require.Contains(t, text, "tool search panicked: broken")
	require.Contains(t, log, "tool panicked")
	require.Contains(t, log, "node=tools tool=search")
	require.Contains(t, log, "panicsWith")

	_, _, err = one(t, agent.Options{FailOnToolError: true}, panics)
	require.EqualError(t, err, "node tools: tool search panicked: broken")
	require.ErrorIs(t, err, broken)
	var p *pregel.PanicError
	require.ErrorAs(t, err, &p)
	require.Contains(t, string(p.Stack), "panicsWith")
}

func panicsWith(err error) any { panic(err) }

// A tool that does not answer in its time is an error for the model that names the time. Other errors stay as they are.
func TestTimeoutOfATool(t *testing.T) {
	t.Parallel()
	hangs := agent.MustTool("search", "", func(ctx context.Context, _ searchArgs) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	hangs.Timeout = time.Millisecond
	text, log, err := one(t, agent.Options{}, hangs)
	require.NoError(t, err)
	require.Contains(t, text, "tool search exceeded its timeout of 1ms")
	require.Contains(t, log, "tool failed")
	_, _, err = one(t, agent.Options{FailOnToolError: true}, hangs)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	quick := agent.MustTool("search", "", func(context.Context, searchArgs) (any, error) { return nil, errors.New("no such page") })
	quick.Timeout = time.Hour
	text, _, err = one(t, agent.Options{}, quick)
	require.NoError(t, err)
	require.Contains(t, text, "RuntimeError('no such page')")
}

// noticed is closed when both texts were logged.
type noticed struct {
	mu    sync.Mutex
	texts []string
	all   chan struct{}
}

func (n *noticed) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.texts)
	n.texts = slices.DeleteFunc(n.texts, func(text string) bool { return strings.Contains(string(line), text) })
	if before > 0 && len(n.texts) == 0 {
		close(n.all)
	}
	return len(line), nil
}

// A cancelled run that waits for a tool that ignores its context says so while it waits, and names tool and node.
func TestToolThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	logs := &noticed{all: make(chan struct{}), texts: []string{
		`msg="tool still running after its run was cancelled; it ignores its context" node=tools tool=search`,
		`msg="waiting for nodes of a cancelled run; return from them when their context is done" nodes=tools at_most=`,
	}}
	ctx, cancel := context.WithCancel(t.Context())
	deaf := agent.MustTool("search", "", func(context.Context, searchArgs) (any, error) {
		cancel()
		<-logs.all // what it waits for is logged while it runs
		return "late", nil
	})
	a, err := agent.New(agent.Options{Model: model(t, fake), Tools: []agent.Tool{deaf}})
	require.NoError(t, err)
	_, err = pregel.Invoke[pregel.Values](ctx, a, pregel.Values{"messages": []message.Message{message.Human(`call search {"q":"x"}`)}},
		pregel.WithLog(slog.New(slog.NewTextHandler(logs, nil))))
	require.ErrorIs(t, err, context.Canceled)
	<-logs.all
}

// Mistakes in tools are errors when the tool or the agent is made.
func TestMistakesInTools(t *testing.T) {
	t.Parallel()
	_, err := agent.NewTool[searchArgs]("x", "", nil)
	require.EqualError(t, err, "tool x has no function")
	_, err = agent.NewTool("x", "", func(context.Context, struct{ query string }) (any, error) { return nil, nil })
	require.ErrorContains(t, err, "no field of its arguments is exported")
	_, err = agent.NewTool("x", "", func(context.Context, struct{}) (any, error) { return nil, nil })
	require.NoError(t, err)
	late := agent.MustTool("x", "", func(context.Context, struct{}) (any, error) { return nil, nil })
	late.Timeout = -1
	for text, tool := range map[string]agent.Tool{
		"a tool has no name": {}, "tool x has no function": {Name: "x"}, "tool x: its timeout is negative": late,
	} {
		_, err := agent.New(agent.Options{Model: model(t, fake), Tools: []agent.Tool{tool}})
		require.EqualError(t, err, "agent: "+text)
	}
}
