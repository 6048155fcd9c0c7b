package twin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/app"
	"understudy/internal/config"
)

// lc is a mapping that LangChain would read as an object, were it stored as `json`.
var lc = json.RawMessage(`{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"not a message"}}`)

type interopState struct {
	Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
	Data     json.RawMessage   `json:"data"`
	Items    []json.RawMessage `json:"items" graph:"items,reducer=append"`
	Answer   json.RawMessage   `json:"answer"`
	Part     json.RawMessage   `json:"part"`
}

// interop is the graph of testdata/interop.py.
func interop(t *testing.T) *pregel.Graph {
	g := pregel.NewStateGraph[interopState]()
	g.AddNode("tools", func(_ context.Context, s interopState) (any, error) {
		n := len(s.Items)
		call := message.ToolCall{Name: "f", Args: json.RawMessage(`{"given":` + string(lc) + `}`), ID: fmt.Sprintf("c%d", n)}
		result := message.Tool(string(lc), call.ID).WithID(fmt.Sprintf("t%d", n))
		result.Artifact = json.RawMessage(`{"result":` + string(lc) + `}`)
		return pregel.Values{"messages": []message.Message{message.AI("", call).WithID(fmt.Sprintf("a%d", n)), result}, "items": []string{"tools"}}, nil
	})
	g.AddNode("part", func(_ context.Context, s interopState) (any, error) {
		return pregel.Values{"items": []json.RawMessage{s.Part}}, nil
	})
	g.AddNode("ask", func(ctx context.Context, s interopState) (any, error) {
		answer, err := pregel.Interrupt[json.RawMessage](ctx, json.RawMessage(`{"lc":2,"question":`+string(s.Data)+`}`))
		return pregel.Values{"answer": answer, "items": []string{"ask"}}, err
	})
	g.AddNode("finish", func(_ context.Context, s interopState) (any, error) {
		values := []json.RawMessage{s.Data, s.Answer}
		for _, item := range s.Items {
			if item[0] != '"' {
				values = append(values, item)
			}
		}
		values = append(values, s.Messages[len(s.Messages)-1].Artifact)
		kinds := make([]string, len(values))
		for i, v := range values {
			kinds[i] = "no mapping: " + string(v)
			if v[0] == '{' {
				kinds[i] = "mapping"
			}
		}
		text := fmt.Sprintf("%s after %d", strings.Join(kinds, ","), len(s.Messages))
		return pregel.Values{"items": []string{"finish"}, "messages": []message.Message{message.AI(text).WithID(fmt.Sprintf("e%d", len(s.Items)))}}, nil
	})
	g.AddEdge(pregel.START, "tools").AddEdge("part", "ask").AddEdge("ask", "finish").AddEdge("finish", pregel.END)
	g.AddConditionalEdges("tools", func(_ context.Context, s interopState) (any, error) {
		return []pregel.Send{{Node: "part", Arg: pregel.Values{"part": lc}}, {Node: "part", Arg: pregel.Values{"part": s.Data}}}, nil
	}, "part")
	out, err := g.Compile()
	require.NoError(t, err)
	return out
}

// client speaks to a server on a data folder, with the graph in Go or in Python.
type client struct {
	t   *testing.T
	url string
}

func (c client) do(method, path, body string) string {
	c.t.Helper()
	req, err := http.NewRequest(method, c.url+path, bytes.NewBufferString(body))
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, res.StatusCode, "%s", raw)
	return string(raw)
}

// with runs fn against a server, which is stopped afterwards.
func with(t *testing.T, data string, inGo bool, fn func(client)) {
	t.Helper()
	file := "testdata/interop.json"
	if inGo {
		file = "testdata/go.json"
	}
	settings, _, err := config.Load(config.Source{
		Mode: config.Dev, File: file, Flags: map[string]string{"port": "0", "data": data, "python": pythonPath(), "workers": "1"},
	})
	require.NoError(t, err)
	srv, err := app.New(t.Context(), app.Config{Settings: settings})
	require.NoError(t, err)
	if inGo {
		require.NoError(t, srv.Register("interop", "", interop(t)))
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	defer func() {
		stop()
		<-done
		http.DefaultClient.CloseIdleConnections()
	}()
	fn(client{t, "http://" + srv.Addr().String()})
}

func pythonPath() string {
	if at := os.Getenv("UNDERSTUDY_TEST_PYTHON"); at != "" {
		return at
	}
	return filepath.Join("..", "..", "..", ".venv", "bin", "python")
}

// A thread continues in Go where Python left it, and the other way round: at an interrupt, with pending writes, Sends and messages,
// and with mappings in input, state, answers and results of tools that look like objects of LangChain.
func TestThreadsGoOnInTheOtherLanguage(t *testing.T) {
	twinOf(t) // or skip
	const thread = "11111111-1111-4111-8111-111111111111"
	input := `{"data":` + string(lc) + `,"messages":[{"role":"user","content":"hi","id":"h"}],"items":[{"lc":1,"type":"constructor","id":["x"],"kwargs":{}}]}`
	resume := `{"lc":2,"type":"constructor","id":["builtins","set"],"args":[[1]]}`
	var want string
	for _, order := range [][]bool{{true, true, true, true}, {false, false, false, false}, {true, false, true, false}, {false, true, false, true}, {true, true, false, false}} {
		name := ""
		for _, inGo := range order {
			name += map[bool]string{true: "Go ", false: "Python "}[inGo]
		}
		t.Run(strings.TrimSpace(name), func(t *testing.T) {
			data := t.TempDir()
			with(t, data, order[0], func(c client) {
				c.do("POST", "/threads", `{"thread_id":"`+thread+`"}`)
				got := c.do("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"interop","input":`+input+`}`)
				require.JSONEq(t, `{"lc":2,"question":`+string(lc)+`}`, gjson.Get(got, "__interrupt__.0.value").Raw, got)
			})
			with(t, data, order[1], func(c client) {
				state := c.do("GET", "/threads/"+thread+"/state", "")
				require.Equal(t, "ask", gjson.Get(state, "next.0").Str, state)
				got := c.do("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"interop","command":{"resume":`+resume+`}}`)
				require.JSONEq(t, resume, gjson.Get(got, "answer").Raw, got)
			})
			with(t, data, order[2], func(c client) {
				c.do("POST", "/threads/"+thread+"/state", `{"values":{"messages":[{"type":"remove","id":"h","content":""}],"data":`+string(lc)+`},"as_node":"finish"}`)
				c.do("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"interop","input":{"messages":[{"role":"user","content":"more","id":"h2"}]}}`)
			})
			with(t, data, order[3], func(c client) {
				got := c.do("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"interop","command":{"resume":`+string(lc)+`}}`)
				history := c.do("POST", "/threads/"+thread+"/history", `{"limit":100}`)
				var all []string
				for _, values := range gjson.Get(history, "#.values").Array() {
					all = append(all, compactOf(t, values.Raw))
				}
				seen := compactOf(t, got) + strings.Join(all, "\n")
				require.NotContains(t, seen, "no mapping")
				if want == "" {
					want = seen
				}
				require.Equal(t, want, seen)
			})
		})
	}
}

// compactOf returns JSON with its keys in order.
func compactOf(t *testing.T, text string) string {
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return string(raw(v))
}
