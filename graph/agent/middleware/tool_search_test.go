package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/scripted"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/id"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	var c catalog
	for _, name := range []string{"git_commit", "git_log", "git_push", "mail_send", "mail_read", "disk_a", "disk_b", "disk_c", "disk_d", "disk_e", "disk_f"} {
		c = append(c, agent.Tool{Name: name, Description: "Works on " + strings.ReplaceAll(name, "_", " ") + "."})
	}
	c[3].Description = "Sends a letter; also to git lists."
	for query, want := range map[string]string{
		"select:mail_read, git_log,none": "mail_read git_log",
		"select:":                        "",
		"":                               "",
		"  ":                             "",
		"+":                              "",
		"+GIT":                           "git_commit git_log git_push",
		"+git push":                      "git_push git_commit git_log",
		"git":                            "git_commit git_log git_push mail_send",
		"LETTER":                         "mail_send",
		"send|read":                      "mail_send mail_read",
		"(":                              "",
		"nothing here":                   "",
		"disk":                           "disk_a disk_b disk_c disk_d disk_e",
		"select:disk_f,disk_e,disk_d,disk_c,disk_b,disk_a": "disk_f disk_e disk_d disk_c disk_b",
	} {
		var got []string
		for _, t := range c.search(query) {
			got = append(got, t.Name)
		}
		require.Equal(t, want, strings.Join(got, " "), query)
	}
}

// Any text is a query: none is an error, and there are never more than five results.
func TestAnyQuery(t *testing.T) {
	t.Parallel()
	var c catalog
	for i := range 30 {
		c = append(c, agent.Tool{Name: fmt.Sprint("t", i)})
	}
	letters := []rune(`+select:,t0123[](){}*?\^$.| é`)
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		query := make([]rune, random.IntN(20))
		for i := range query {
			query[i] = letters[random.IntN(len(letters))]
		}
		require.LessOrEqual(t, len(c.search(string(query))), maxFound)
	}
}

type source []agent.Tool

func (s source) Tools(context.Context) ([]agent.Tool, error) { return s, nil }

// A tool of a server can be called once it was found, in that thread, until the server changes it.
func TestDeferredTools(t *testing.T) {
	t.Parallel()
	model, err := scripted.Parse([]byte(`[
		{"from": "human", "when": "^early$", "tool_calls": [{"name": "far", "args": {}}]},
		{"from": "human", "when": "^find$", "tool_calls": [{"name": "tool_search", "args": {"query": "select:far"}}]},
		{"from": "tool", "when": "parameters", "tool_calls": [{"name": "far", "args": {}}]},
		{"content": "done"}]`))
	require.NoError(t, err)
	ran, description := 0, "Far away."
	remote := source{{Name: "far", Schema: json.RawMessage(`{"type":"object"}`), Remote: true, Run: func(context.Context, message.ToolCall) (any, error) { ran++; return "reached", nil }}}
	offered := map[string]bool{}
	a, err := agent.New(agent.Options{Model: agent.Model{LLM: model}, Prompt: "Be brief.", Sources: []agent.Source{remote}, Middleware: []agent.Middleware{ToolSearch(), {
		Name: "Seen",
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			clear(offered)
			for _, t := range r.Tools {
				offered[t.Name] = true
			}
			require.Equal(t, "Be brief.\n\n<available-deferred-tools>\nfar\n</available-deferred-tools>", r.System.Text())
			r.Tools = append(r.Tools[:0:0], agent.Tool{Name: "far"}, agent.Tool{Name: "tool_search"}) // the model calls what it likes
			return next(ctx, r)
		},
	}}})
	require.NoError(t, err)
	saves := &saves{}
	say := func(thread id.Thread, text string) (list []message.Message) {
		remote[0].Description = description
		r, err := pregel.Invoke[pregel.Values](t.Context(), a.Graph, pregel.Values{"messages": []message.Message{message.Human(text)}}, pregel.WithThread(thread, saves))
		require.NoError(t, err)
		list = agent.Messages(r.State)
		for len(list) > 0 && list[0].Text() != text { // earlier turns
			list = list[1:]
		}
		return list
	}
	list := say("a", "early")
	require.Equal(t, "Error: Tool 'far' is deferred and has not been promoted yet. Call tool_search first to expose and promote this tool's schema, then retry.", list[2].Text())
	require.Equal(t, 0, ran)
	require.False(t, offered["far"])
	list = say("b", "find")
	require.Equal(t, "far", gjson.Get(list[2].Text(), "0.name").String())
	require.Equal(t, "reached", list[4].Text())
	require.True(t, offered["far"])
	require.Equal(t, "reached", say("b", "early")[2].Text(), "found in an earlier run of the thread")
	require.Contains(t, say("c", "early")[2].Text(), "has not been promoted", "found in another thread")
	description = "Changed."
	list = say("b", "early")
	require.Contains(t, list[len(list)-2].Text(), "has not been promoted")
}

// saves keeps checkpoints in memory.
type saves struct{ checkpointer.Memory }

func (s *saves) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	return s.LoadCheckpoint(ctx, k)
}

func (s *saves) List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	return s.ListCheckpoints(ctx, q)
}

func (s *saves) Save(_ context.Context, saves ...graph.Save) error {
	for _, one := range saves {
		if one.Put != nil {
			if err := s.PutCheckpoint(one.Put); err != nil {
				return err
			}
		} else if err := s.PutWrites(one.At, one.Writes); err != nil {
			return err
		}
	}
	return nil
}

// Without tools of servers there is no search.
func TestNothingDeferred(t *testing.T) {
	t.Parallel()
	m := ToolSearch()
	_, err := m.WrapModelCall(t.Context(), agent.ModelRequest{Tools: append(m.Tools, agent.Tool{Name: "near"})}, func(_ context.Context, r agent.ModelRequest) (agent.ModelResponse, error) {
		require.Len(t, r.Tools, 1)
		require.Nil(t, r.System)
		return agent.ModelResponse{}, nil
	})
	require.NoError(t, err)
}
