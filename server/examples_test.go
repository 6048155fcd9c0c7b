package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

var update = flag.Bool("update", false, "write examples.json anew")

// The examples of the API's description are recorded exchanges: for each operation the one that says most and is not long.
func TestExamples(t *testing.T) {
	t.Parallel()
	got := map[string]example{}
	files, err := filepath.Glob("../conformance/wire/*.http")
	require.NoError(t, err)
	slices.Sort(files)
	for _, f := range files {
		raw, err := os.ReadFile(f)
		require.NoError(t, err)
		for key, e := range examplesIn(t, fillPlaceholders(string(raw))) {
			if only := preferred[key]; only != "" && only != filepath.Base(f) {
				continue
			}
			if old, ok := got[key]; !ok || len(e.Request) > len(old.Request) && len(e.Request) < 400 {
				got[key] = e
			}
		}
	}
	require.Greater(t, len(got), 40)
	for key, e := range examplesByHand {
		got[key] = e
	}
	for key, body := range bodiesByHand {
		e := got[key]
		e.Request = json.RawMessage(body)
		got[key] = e
	}
	text, err := json.MarshalIndent(got, "", " ")
	require.NoError(t, err)
	text = append(text, '\n')
	if *update {
		require.NoError(t, os.WriteFile("examples.json", text, 0o644))
	}
	committed, err := os.ReadFile("examples.json")
	require.NoError(t, err)
	require.Equal(t, string(committed), string(text), "go test ./server -run TestExamples -update writes it anew")
	for _, o := range operations {
		if o.body != nil {
			require.NotEmpty(t, got[o.method+" "+o.path].Request, "%s %s has no example of a body", o.method, o.path)
		}
	}
}

// preferred are recordings of what most clients send.
var preferred = map[string]string{
	"post /threads/{thread_id}/runs/stream": "stream_messages_tuple.http",
	"post /threads/{thread_id}/runs":        "run_object.http",
}

// examplesByHand are for operations whose recordings are missing, or are about oddities.
var examplesByHand = map[string]example{
	"post /assistants/count":                  {Request: json.RawMessage(`{"graph_id":"chat"}`), Response: json.RawMessage(`1`)},
	"post /threads/{thread_id}/stream/events": {Request: json.RawMessage(`{"channels":["values","messages","tools","lifecycle","input"]}`)},
	"post /understudy/runs/cancel": {
		Request:  json.RawMessage(`{"status":"pending","graph_id":"chat"}`),
		Response: json.RawMessage(`{"cancelled":120,"next":null}`),
	},
	"post /commands/fork-thread": {
		Request:  json.RawMessage(`{"source_thread_id":"00000000-0000-4000-8000-000000000001","event_number":12}`),
		Response: json.RawMessage(`{"thread_id":"00000000-0000-4000-8000-000000000002","source_thread_id":"00000000-0000-4000-8000-000000000001","event_number":12,"checkpoint_id":"00000000-0000-6000-8000-000000000003","created_at":"2026-01-02T03:04:05.678901+00:00"}`),
	},
	"post /commands/send-message": {
		Request:  json.RawMessage(`{"thread_id":"00000000-0000-4000-8000-000000000002","message":"What is 6 times 8?"}`),
		Response: json.RawMessage(`{"thread_id":"00000000-0000-4000-8000-000000000002","run_id":"00000000-0000-7000-8000-000000000004","message_id":"00000000-0000-4000-8000-000000000005","status":"pending"}`),
	},
	"post /threads/{thread_id}/commands": {
		Request:  json.RawMessage(`{"id":1,"method":"run.start","params":{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}}`),
		Response: json.RawMessage(`{"type":"success","id":1,"result":{"run_id":"00000000-0000-7000-8000-000000000001"},"meta":{"applied_through_seq":0}}`),
	},
}

// bodiesByHand are requests that a reader can send to any server: recordings name graphs and inputs of their own. Responses are as recorded.
var bodiesByHand = map[string]string{
	"post /assistants":                      `{"graph_id":"chat","name":"Tutor","metadata":{"team":"school"},"config":{"recursion_limit":50}}`,
	"post /assistants/search":               `{"graph_id":"chat","limit":10}`,
	"patch /assistants/{assistant_id}":      `{"name":"Tutor","metadata":{"team":"school"},"description":"answers questions"}`,
	"post /feedback/tokens/{token}":         `{"score":1,"comment":"just what I needed"}`,
	"post /runs":                            `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}`,
	"post /runs/wait":                       `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}`,
	"post /runs/stream":                     `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]},"stream_mode":"messages-tuple"}`,
	"post /runs/batch":                      `[{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}},{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 8?"}]}}]`,
	"post /runs/crons":                      `{"assistant_id":"chat","schedule":"0 9 * * 1","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}`,
	"post /threads/{thread_id}/runs":        `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]},"metadata":{"from":"docs"}}`,
	"post /threads/{thread_id}/runs/wait":   `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}`,
	"post /threads/{thread_id}/runs/stream": `{"assistant_id":"chat","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]},"stream_mode":"messages-tuple"}`,
	"post /threads/{thread_id}/runs/crons":  `{"assistant_id":"chat","schedule":"0 9 * * 1","input":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}`,
	"post /threads/{thread_id}/state":       `{"values":{"messages":[{"role":"user","content":"What is 6 times 7?"}]}}`,
	"post /threads/{thread_id}/history":     `{"limit":10}`,
	"post /threads/search":                  `{"metadata":{"team":"school"},"limit":10,"sort_by":"created_at","sort_order":"desc"}`,
	"post /threads/count":                   `{"metadata":{"team":"school"}}`,
	"post /threads":                         `{"metadata":{"team":"school"}}`,
	"put /store/items":                      `{"namespace":["memories","alice"],"key":"tea","value":{"text":"likes green tea","rank":2}}`,
	"delete /store/items":                   `{"namespace":["memories","alice"],"key":"tea"}`,
	"post /store/items/search":              `{"namespace_prefix":["memories","alice"],"filter":{"rank":2}}`,
	"post /store/namespaces":                `{"prefix":["memories"]}`,
	"post /runs/crons/search":               `{"limit":10}`,
	"post /runs/crons/count":                `{}`,
}

var (
	startOfRequest = regexp.MustCompile(`(?m)^(GET|POST|PUT|PATCH|DELETE) (\S+)$`)
	uuidMark       = regexp.MustCompile(`<uuid-(\d+)>`)
)

func fillPlaceholders(s string) string {
	s = uuidMark.ReplaceAllStringFunc(s, func(m string) string {
		n, _ := strconv.Atoi(m[6 : len(m)-1])
		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	})
	return strings.NewReplacer("<time>", "2026-01-02T03:04:05.678901+00:00", "<ms>", "1", "<version>", "1.2.3").Replace(s)
}

// examplesIn returns the successful exchanges of a recording by operation.
func examplesIn(t *testing.T, text string) map[string]example {
	found := map[string]example{}
	starts := startOfRequest.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		method, path := text[at[2]:at[3]], text[at[4]:at[5]]
		path, _, _ = strings.Cut(path, "?")
		request, answer, ok := strings.Cut(text[at[1]:end], "\nHTTP 2")
		j := slices.IndexFunc(operations, func(o operation) bool { return strings.EqualFold(o.method, method) && matches(o.path, path) })
		if !ok || j < 0 {
			continue
		}
		key := operations[j].method + " " + operations[j].path
		if old, ok := found[key]; ok && len(old.Request) > 0 {
			continue
		}
		var e example
		if _, body, ok := strings.Cut(request, "\n\n"); ok {
			e.Request = compacted(body)
		}
		if _, body, ok := strings.Cut(answer, "\n\n"); ok {
			switch body = comment.ReplaceAllString(body, ""); {
			case operations[j].answer == sse && strings.HasPrefix(body, "event:"):
				e.Response, _ = json.Marshal(body[:min(len(body), maxExample)])
			case operations[j].answer == "":
				e.Response = compacted(body)
			}
		}
		if len(e.Response) > maxExample {
			e.Response = nil
		}
		found[key] = e
	}
	return found
}

const maxExample = 4000

// comment is a line of a recording between exchanges.
var comment = regexp.MustCompile(`(?m)^# .*$`)

// compacted returns the JSON value in a text, or nil.
func compacted(text string) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(strings.TrimSpace(text))); err != nil {
		return nil
	}
	return b.Bytes()
}

// matches reports whether a path belongs to a pattern.
func matches(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(a, b, func(p, s string) bool {
		return p == s && !strings.HasPrefix(p, "{") || strings.HasPrefix(p, "{") && len(s) == 36
	})
}

// Bodies of "Try it" name the graph that the server has, with an input for it, and nothing of recordings.
func TestRequestExamplesNameAGraphThatIsServed(t *testing.T) {
	t.Parallel()
	const name = `a "graph"`
	s := New(Options{ExampleGraph: func() string { return name }})
	named := 0
	var check func(at string, v any)
	check = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, e := range v {
				if key == "assistant_id" || key == "graph_id" {
					require.Equal(t, name, e, at)
					named++
				}
				if key == "input" {
					require.Contains(t, e, "messages", at)
				}
				check(at, e)
			}
		case []any:
			for _, e := range v {
				check(at, e)
			}
		case string:
			require.NotRegexp(t, `^(wire-|echo$|ticker$|plan$)`, v, at)
		}
	}
	bodies := 0
	paths := gjson.GetBytes(s.OpenAPI(), "paths")
	paths.ForEach(func(path, methods gjson.Result) bool {
		methods.ForEach(func(method, o gjson.Result) bool {
			if body := o.Get(`requestBody.content.application/json.example`); body.Exists() {
				bodies++
				check(method.String()+" "+path.String(), body.Value())
			}
			return true
		})
		return true
	})
	require.GreaterOrEqual(t, bodies, 30)
	require.GreaterOrEqual(t, named, 14)
}
