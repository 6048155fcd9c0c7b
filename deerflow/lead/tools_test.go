package lead_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/access"
	"understudy/checkpointer"
	"understudy/deerflow/lead"
	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/llm"
	"understudy/graph/agent/scripted"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

const config = `
models:
  - {name: plain, use: x, model: x}
  - {name: seeing, use: x, model: x, supports_vision: true}
sandbox: {allow_host_bash: true, mounts: [{host_path: data, container_path: /mnt/data, read_only: true}]}
tool_groups: [{name: read}, {name: bash}]
tools:
  - {name: ls, group: read, use: "deerflow.sandbox.tools:ls_tool"}
  - {name: read_file, group: read, use: "deerflow.sandbox.tools:read_file_tool"}
  - {name: write_file, group: write, use: "src.sandbox.tools:write_file_tool"}
  - {name: bash, group: bash, use: "deerflow.sandbox.tools:bash_tool"}
  - {name: web_fetch, group: web, use: "deerflow.community.jina_ai.tools:web_fetch_tool"}
  - {name: web_search, group: web, use: "deerflow.community.tavily.tools:web_search_tool"}
  - {name: odd, group: web, use: "somewhere:odd_tool"}
title: {enabled: false}
`

// world is the agent with a model that calls what the message says: NAME {json}.
type world struct {
	run     id.Run       // of converse; "": r1
	log     *slog.Logger // of delegate; nil: none
	graph   *lead.Graph
	options *lead.Options
	dir     string
	saves   checkpointer.Memory

	mu     sync.Mutex
	seen   [][]llms.MessageContent // requests to the model
	bodies []string                // its name and parameters, of each request
}

// last returns the text of the last request, one message a line: role, then its parts.
func (w *world) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, m := range w.seen[len(w.seen)-1] {
		fmt.Fprintf(&b, "%s: ", m.Role)
		for _, p := range m.Parts {
			if rich, ok := p.(llm.Part); ok {
				p = rich.ContentPart
			}
			fmt.Fprintf(&b, "%v ", p)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func setup(t *testing.T, text string, first ...scripted.Answer) *world {
	t.Helper()
	set, err := settings.Parse([]byte(text), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	script := scripted.Script{Answers: first}
	for _, one := range everything {
		script.Answers = append(script.Answers, scripted.Answer{
			When: "^" + one.Function.Name + ` (\{.*\})$`, From: "human", ToolCalls: []scripted.ToolCall{{Name: one.Function.Name, Args: json.RawMessage(`"$1"`)}},
		})
	}
	script.Answers = append(script.Answers, scripted.Answer{Content: "done"})
	model, err := scripted.New(script)
	require.NoError(t, err)
	w := &world{dir: t.TempDir()}
	for name, content := range map[string]string{"data/a.txt": "mounted", "skills/public/demo/SKILL.md": "DEMO", "users/u/skills/custom/mine/SKILL.md": "MINE"} {
		at := filepath.Join(w.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
	}
	local := sandbox.NewLocal(sandbox.Options{})
	t.Cleanup(local.Close)
	w.options = &lead.Options{
		Settings: func() (*settings.Settings, error) { return set, nil }, Log: slog.New(slog.DiscardHandler),
		Open: func(m *settings.Model, _ *int, body map[string]json.RawMessage) (agent.Model, error) {
			return agent.Model{LLM: anyTool{model, w, m.Name, body}}, nil
		},
		Tools: lead.Tools{
			Sandbox: local, Dir: func(user, thread string) string { return filepath.Join(w.dir, "users", user, "threads", thread) },
			Skills: func(user string) (string, string, error) {
				return filepath.Join(w.dir, "skills"), filepath.Join(w.dir, "users", user, "skills/custom"), nil
			},
			Resolve: func(p string) string {
				if filepath.IsAbs(p) {
					return p
				}
				return filepath.Join(w.dir, p)
			},
		},
		Agent: func(_, name string) (lead.Character, error) {
			if name != "cook" {
				return lead.Character{}, errUnknown
			}
			return lead.Character{Groups: []string{"read"}}, nil
		},
	}
	w.rebuild()
	return w
}

// rebuild makes the agent anew, of options that have changed.
func (w *world) rebuild() { w.graph = lead.New(*w.options) }

var errUnknown = fault.New(fault.NotFound, "there is none")

// calls is an answer that calls a tool when a message is exactly this text.
func calls(tool, args, text string) scripted.Answer {
	return scripted.Answer{When: "(?s)^(" + regexp.QuoteMeta(text) + "$|<skill )", From: "human", ToolCalls: []scripted.ToolCall{{Name: tool, Args: json.RawMessage(args)}}}
}

// say runs a turn, and returns the last values and the result of the tool.
func (w *world) say(t *testing.T, text, context string, actor *access.Actor) (values gjson.Result, result string) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"type": "human", "content": text}}})
	require.NoError(t, err)
	cfg, configurable := jsonobj.Of(nil), jsonobj.Of(nil)
	if actor != nil {
		access.Write(configurable, actor)
	}
	cfg.Set("configurable", configurable.JSON())
	inv := graph.Invocation{
		Config: graph.Config{Thread: "t1", Config: cfg.JSON(), Context: json.RawMessage(context)},
		Run:    "r1", Attempt: 1, Log: slog.New(slog.DiscardHandler),
		Arguments: graph.Arguments{Input: input, Modes: []string{"values"}, Temporary: true},
	}
	for event, err := range w.graph.Stream(t.Context(), inv) {
		require.NoError(t, err)
		if event.Name == "values" {
			values = gjson.ParseBytes(event.Data)
		}
	}
	for _, m := range values.Get("messages").Array() {
		if m.Get("type").String() == "tool" {
			result = m.Get("content").String()
		}
	}
	return values, result
}

func TestToolsOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	v, got := w.say(t, `write_file {"path":"/mnt/user-data/outputs/a.txt","content":"hi"}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "OK", got)
	require.Equal(t, "local:u:t1", v.Get("sandbox.sandbox_id").String())
	require.FileExists(t, filepath.Join(w.dir, "users/u/threads/t1/user-data/outputs/a.txt"))
	v, got = w.say(t, `present_files {"filepaths":["/mnt/user-data/outputs/a.txt","/mnt/user-data/outputs/a.txt"]}`, `{"user_id":"u"}`, nil)
	require.Equal(t, "Successfully presented files", got)
	require.JSONEq(t, `["/mnt/user-data/outputs/a.txt"]`, v.Get("artifacts").Raw)
	for path, want := range map[string]string{
		"/mnt/data/a.txt": "mounted", "/mnt/skills/public/demo/SKILL.md": "DEMO", "/mnt/skills/custom/mine/SKILL.md": "MINE",
	} {
		_, got = w.say(t, `read_file {"path":"`+path+`"}`, `{"user_id":"u"}`, nil)
		require.Equal(t, want, got)
	}
	_, got = w.say(t, `write_file {"path":"/mnt/data/a.txt","content":"x"}`, `{"user_id":"u"}`, nil)
	require.Contains(t, got, "Error: Permission denied")
	// The question ends the run.
	v, _ = w.say(t, `ask_clarification {"question":"Which?","clarification_type":"missing_info"}`, `{}`, nil)
	require.Equal(t, "tool", v.Get("messages|@reverse|0.type").String())
}

// Whose files a run has is decided by the server, not by what a client writes into the context.
func TestUserOfARun(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	v, _ := w.say(t, `ls {"path":"/mnt/user-data/workspace"}`, `{"user_id":"victim"}`, &access.Actor{Identity: "me", User: json.RawMessage(`{"identity":"me"}`)})
	require.Equal(t, "local:me:t1", v.Get("sandbox.sandbox_id").String())
	v, _ = w.say(t, `ls {"path":"/mnt/user-data/workspace"}`, `{}`, nil)
	require.Equal(t, "local:default:t1", v.Get("sandbox.sandbox_id").String())
	require.NoDirExists(t, filepath.Join(w.dir, "users/victim"))
}

func TestWhatIsOffered(t *testing.T) {
	t.Parallel()
	w := setup(t, config)
	for _, tt := range []struct{ call, context, want string }{
		{`bash {"command":"echo hi"}`, `{}`, "hi\n"},
		{`bash {"command":"echo hi"}`, `{"agent_name":"Cook"}`, "Error: bash is not a valid tool, try one of [ls, read_file, present_files, ask_clarification, list_uploaded_files]."},
		{`ls {"path":"/mnt/user-data/workspace"}`, `{"agent_name":"cook"}`, "(empty)"},
		{`write_todos {"todos":[]}`, `{}`, "Error: write_todos is not a valid tool, try one of [ls, read_file, write_file, bash, web_fetch, present_files, ask_clarification, list_uploaded_files]."},
		{`write_todos {"todos":[]}`, `{"is_plan_mode":true}`, "Updated todo list to []"},
		{`view_image {"image_path":"/mnt/user-data/uploads/none.png"}`, `{"model_name":"seeing"}`, "Error: Image file not found: /mnt/user-data/uploads/none.png"},
		{`view_image {"image_path":"/mnt/user-data/uploads/none.png"}`, `{}`, "Error: view_image is not a valid tool, try one of [ls, read_file, write_file, bash, web_fetch, present_files, ask_clarification, list_uploaded_files]."},
		{`ask_clarification {"question":"Which?","clarification_type":"missing_info"}`, `{"non_interactive":true}`, "Error: ask_clarification is not a valid tool, try one of [ls, read_file, write_file, bash, web_fetch, present_files, list_uploaded_files]."},
		{`odd {}`, `{}`, "Error: odd is not a valid tool, try one of [ls, read_file, write_file, bash, web_fetch, present_files, ask_clarification, list_uploaded_files]."},
	} {
		_, got := w.say(t, tt.call, tt.context, nil)
		require.Equal(t, tt.want, got, "%s %s", tt.call, tt.context)
	}
	v, _ := w.say(t, `write_todos {"todos":[{"content":"a","status":"pending"}]}`, `{"is_plan_mode":true}`, nil)
	require.JSONEq(t, `[{"content":"a","status":"pending"}]`, v.Get("todos").Raw)
	// Commands run on the server only if its owner said so.
	_, got := setup(t, "models: [{name: plain, use: x, model: x}]\ntools: [{name: bash, group: b, use: \"deerflow.sandbox.tools:bash_tool\"}]").say(t, `bash {"command":"echo hi"}`, `{}`, nil)
	require.Equal(t, "Error: bash is not a valid tool, try one of [present_files, ask_clarification, list_uploaded_files].", got)
}

// anyTool is a scripted model that calls tools whether they are offered or not.
type anyTool struct {
	*scripted.Model
	w    *world
	name string
	body map[string]json.RawMessage
}

func (m anyTool) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	return m.Model.GenerateContent(ctx, messages, append(options, llms.WithTools(everything))...)
}

func (m anyTool) StreamChunks(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) iter.Seq2[llm.Chunk, error] {
	m.w.mu.Lock()
	m.w.seen = append(m.w.seen, messages)
	raw, _ := json.Marshal(m.body)
	m.w.bodies = append(m.w.bodies, m.name+" "+string(raw))
	m.w.mu.Unlock()
	return func(yield func(llm.Chunk, error) bool) {
		for chunk, err := range m.Model.StreamChunks(ctx, messages, append(options, llms.WithTools(everything))...) {
			if err != nil { // as of a provider
				err = &llm.Error{Status: 400, Message: err.Error()}
			}
			if !yield(chunk, err) {
				return
			}
		}
	}
}

var everything = func() (list []llms.Tool) {
	for _, name := range []string{"bash", "ls", "read_file", "write_file", "str_replace", "write_todos", "view_image", "odd", "present_files", "ask_clarification", "task", "setup_agent", "update_agent", "skill_manage", "list_uploaded_files", "memory_search", "memory_add", "memory_update", "memory_delete", "web_search", "invoke_acp_agent", "tool_search"} {
		list = append(list, llms.Tool{Type: "function", Function: &llms.FunctionDefinition{Name: name}})
	}
	return list
}()
