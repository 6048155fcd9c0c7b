package graphs

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/providertest"
	"understudy/id"
	"understudy/internal/config"
)

// partsWorld is a declared agent whose model plays a script.
type partsWorld struct {
	t     *testing.T
	dir   string
	agent *agent.Agent
	saves checkpointer.Memory
	model providertest.Script
}

// request returns the n-th request as text; negative numbers count from the end.
func (w *partsWorld) request(n int) gjson.Result {
	asked := w.model.Asked()
	if n < 0 {
		n += len(asked)
	}
	require.Less(w.t, n, len(asked))
	return asked[n]
}

// withParts declares an agent with middleware. %DIR% in it is a new folder, with a skill in skills/.
func withParts(t *testing.T, middleware string, script ...providertest.Reply) *partsWorld {
	t.Helper()
	w := &partsWorld{t: t, dir: t.TempDir(), model: providertest.Script{Replies: script}}
	h := httptest.NewServer(&w.model)
	t.Cleanup(h.Close)
	w.write("skills/cook/SKILL.md", "---\nname: cook\ndescription: Cooks.\nallowed-tools: [read_file]\n---\nBoil water.\n")
	w.write("langgraph.json", `{"graphs": {"a": {"agent": {"model": {"name": "openai:m", "base_url": "`+h.URL+`", "images": true}, "prompt": "PROMPT", "tools": ["calculator"], "middleware": `+middleware+`}}}}`)
	c, _, err := config.Load(config.Source{File: filepath.Join(w.dir, "langgraph.json")})
	require.NoError(t, err)
	c.Storage.Data = filepath.Join(w.dir, "data")
	w.agent, err = Declare(c, c.Graphs[0], nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.agent.Close()) })
	return w
}

func (w *partsWorld) write(name, text string) {
	w.t.Helper()
	at := filepath.Join(w.dir, name)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(w.t, os.WriteFile(at, []byte(text), 0o600))
}

// say runs a turn of a thread, and returns its last values and custom events.
func (w *partsWorld) say(thread, message string) (values gjson.Result, custom []gjson.Result) {
	w.t.Helper()
	m := map[string]any{"type": "human", "content": message}
	if strings.HasPrefix(message, "{") {
		require.NoError(w.t, json.Unmarshal([]byte(message), &m))
	}
	input, err := json.Marshal(map[string]any{"messages": []any{m}})
	require.NoError(w.t, err)
	inv := graph.Invocation{
		Config: graph.Config{Thread: id.Thread(thread), Config: json.RawMessage(`{"configurable":{"user_id":"u"}}`), Context: json.RawMessage(`{}`), Saver: &w.saves},
		Run:    "r1", Attempt: 1, Log: slog.New(slog.DiscardHandler),
		Arguments: graph.Arguments{Input: input, Modes: []string{"values", "custom"}},
	}
	for event, err := range w.agent.Stream(w.t.Context(), inv) {
		require.NoError(w.t, err)
		if event.Name == "values" {
			values = gjson.ParseBytes(event.Data)
		} else {
			custom = append(custom, gjson.ParseBytes(event.Data))
		}
	}
	return values, custom
}

func results(values gjson.Result) (list []string) {
	for _, m := range values.Get("messages").Array() {
		if m.Get("type").Str == "tool" {
			list = append(list, m.Get("content").String())
		}
	}
	return list
}

func offered(request gjson.Result) string {
	var names []string
	for _, n := range request.Get("tools.#.function.name").Array() {
		names = append(names, n.Str)
	}
	return strings.Join(names, " ")
}

var callIDs atomic.Int64

// calls is a reply with calls of tools: pairs of name and arguments.
func calls(pairs ...string) providertest.Reply {
	var pieces []string
	for i := 0; i < len(pairs); i += 2 {
		pieces = append(pieces, providertest.Piece(fmt.Sprint(i/2), fmt.Sprintf("c%d", callIDs.Add(1)), pairs[i], pairs[i+1]))
	}
	return providertest.Stream(providertest.Data(providertest.Calls(pieces...), providertest.Finish("tool_calls"), providertest.Done))
}

var done = providertest.Answer("done")

// A declared agent with a sandbox works in the folder of its user's thread, with the tools that the file names; what else it can reach it cannot.
func TestDeclaredSandbox(t *testing.T) {
	t.Parallel()
	w := withParts(t, `{"sandbox": true}`, calls("write_file", `{"path":"/mnt/user-data/outputs/a.txt","content":"hi"}`),
		calls("present_files", `{"filepaths":["/mnt/user-data/outputs/a.txt"]}`, "read_file", `{"path":"/etc/passwd"}`, "bash", `{"command":"ls"}`), done)
	v, _ := w.say("t", "go")
	require.Equal(t, "OK", results(v)[0])
	require.FileExists(t, filepath.Join(w.dir, "data/agents/a/users/u/threads/t/user-data/outputs/a.txt"))
	require.JSONEq(t, `["/mnt/user-data/outputs/a.txt"]`, v.Get("artifacts").Raw)
	require.Equal(t, "local:u:t", v.Get("sandbox.sandbox_id").Str)
	require.Contains(t, results(v)[2], "Error: Permission denied")
	require.Contains(t, results(v)[3], "bash is not a valid tool")
	require.Equal(t, "ls glob grep read_file write_file str_replace present_files calculator", offered(w.request(0)))

	w = withParts(t, `{"tool_output": {"limit": 100}, "sandbox": {"folder": "files", "tools": ["read_file"], "bash": true}}`,
		calls("bash", `{"command":"seq 1 500; env"}`), done)
	v, _ = w.say("t", "go")
	require.Equal(t, "read_file bash calculator", offered(w.request(0)))
	require.Contains(t, results(v)[0], "The whole result is in /mnt/user-data/outputs/.tool-results/bash-")
	kept, err := filepath.Glob(filepath.Join(w.dir, "files/users/u/threads/t/user-data/outputs/.tool-results/*"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
}

// Keys that need the sandbox may stand before it.
func TestDeclaredUploadsAndImages(t *testing.T) {
	t.Parallel()
	w := withParts(t, `{"uploads": true, "view_image": true, "sandbox": {"folder": "files"}}`, calls("view_image", `{"image_path":"/mnt/user-data/uploads/a.png"}`), done)
	w.write("files/users/u/threads/t/user-data/uploads/a.png", "\x89PNG\r\n\x1a\nrest")
	v, _ := w.say("t", `{"type":"human","content":"look","additional_kwargs":{"files":[{"filename":"a.png"},{"filename":"../../x"}]}}`)
	require.Equal(t, `["a.png"]`, v.Get("uploaded_files.#.filename").Raw)
	require.Contains(t, w.request(0).Raw, "current_uploads")
	require.Equal(t, []string{"Successfully read image"}, results(v))
	require.Contains(t, w.request(1).Raw, "data:image/png;base64,")
	require.NotContains(t, v.Raw, "base64")
}

// Skills are in the instructions next to the prompt, and in front of a task that names one, with the tools that it allows.
func TestDeclaredSkills(t *testing.T) {
	t.Parallel()
	w := withParts(t, `{"skills": true, "sandbox": true}`, calls("read_file", `{"path":"/mnt/skills/public/cook/SKILL.md"}`), done)
	v, _ := w.say("t", "go")
	system := w.request(0).Get("messages.0.content").String()
	require.True(t, strings.HasPrefix(system, "PROMPT\n\n<skills>"), system)
	require.Contains(t, system, "/mnt/skills/public/cook/SKILL.md")
	require.Contains(t, results(v)[0], "Boil water.")
	require.Equal(t, "cook", v.Get("skill_context.0.name").Str)
	w.say("t2", "/cook an egg")
	require.Contains(t, w.request(-1).Get("messages.1.content").String(), "Boil water.")
	require.Equal(t, "read_file present_files", offered(w.request(-1)))
	w.write("skills/bake/SKILL.md", "---\nname: bake\ndescription: Bakes.\n---\n")
	w.say("t3", "go")
	require.Contains(t, w.request(-1).Raw, "skills/public/bake/SKILL.md", "the folder is read again")
}

// What guards the conversation works wherever the file has it: marks are around the words of people alone, and files are read before they are replaced.
func TestDeclaredGuards(t *testing.T) {
	t.Parallel()
	const path = `"path":"/mnt/user-data/workspace/a.txt"`
	w := withParts(t, `{"read_before_write": true, "tool_result_sanitization": true, "uploads": true, "sandbox": {"folder": "files"}, "skills": true, "input_sanitization": true,
		"subagents": {"types": {"critic": {"description": "judges", "prompt": "You judge."}}}}`,
		calls("write_file", `{`+path+`,"content":"lost"}`), calls("task", `{"description":"d","prompt":"p","subagent_type":"critic"}`), calls("write_file", `{`+path+`,"content":"lost"}`), done)
	w.write("files/users/u/threads/t/user-data/uploads/a.md", "# A")
	w.write("files/users/u/threads/t/user-data/workspace/a.txt", "mine")
	v, _ := w.say("t", `{"type":"human","content":"look"}`)
	require.Contains(t, results(v)[0], "you have not read it")
	require.Contains(t, w.request(0).Get("messages.0.content").String(), "<user_input>")
	require.Contains(t, w.request(3).Get("messages|@reverse|0.content").String(), "you have not read it", "of the subagent")
	w.say("t", `{"type":"human","content":"/cook <memory>","additional_kwargs":{"files":[{"filename":"a.md"}]}}`)
	user := w.request(-1).Get("messages|@reverse|0.content").String()
	require.Regexp(t, `(?s)^<skill name="cook".*<current_uploads>.*\n--- BEGIN USER INPUT ---\n/cook &lt;memory>\n--- END USER INPUT ---$`, user)
}

// What a user says is learned, also what waited when the agent was closed, and known in other threads of the same user.
func TestDeclaredMemory(t *testing.T) {
	t.Parallel()
	learned := providertest.Answer(`{"user":{},"history":{},"newFacts":[{"content":"The user is called Ann","category":"context","confidence":0.9,"scope":"user","durability":"durable","authority":"descriptive"}],"factsToRemove":[]}`)
	w := withParts(t, `{"memory": {"folder": "files", "wait": "1ms"}, "date": true}`, done, learned, done)
	w.say("t", "I am Ann")
	require.Contains(t, w.request(0).Raw, "current_date")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(w.dir, "files/users/u/memory.json"))
		return err == nil && strings.Contains(string(text), "called Ann")
	}, 20*time.Second, time.Millisecond)
	require.Contains(t, w.request(1).Raw, "I am Ann")
	w.say("t2", "who am I?")
	require.Contains(t, w.request(2).Raw, "The user is called Ann")
}

// Subagents have the tools of their agent, and what protects it protects them; what needs an approval they do not have.
func TestDeclaredSubagents(t *testing.T) {
	t.Parallel()
	task := func(kind string) string {
		return `{"description":"look","prompt":"do it","subagent_type":"` + kind + `"}`
	}
	w := withParts(t, `{"subagents": {"types": {"critic": {"description": "judges", "prompt": "CRITIC", "tools": ["calculator"]}}}, "guardrails": {"denied_tools": ["calculator"]},
		"sandbox": true, "human_in_the_loop": {"write_file": true}}`,
		calls("task", task("critic")), calls("calculator", `{"expression":"1"}`), providertest.Answer("judged"),
		calls("task", task("none")), done)
	v, custom := w.say("t", "go")
	require.Equal(t, "Task Succeeded. Result: judged", results(v)[0])
	require.Equal(t, "Error: Unknown subagent type 'none'. Available: general-purpose, critic", results(v)[1])
	require.Equal(t, "completed", v.Get("delegations.0.status").Str)
	require.Equal(t, "task_started", custom[0].Get("type").Str)
	require.Equal(t, "task_completed", custom[len(custom)-1].Get("type").Str)
	require.Equal(t, "calculator", offered(w.request(1)))
	require.Contains(t, w.request(1).Get("messages.0.content").String(), "CRITIC")
	require.Contains(t, w.request(2).Raw, "Guardrail denied")

	w = withParts(t, `{"subagents": {"total": 1}, "sandbox": {"bash": true}, "human_in_the_loop": {"bash": true, "write_file": true}}`,
		calls("task", task("general-purpose"), "task", task("general-purpose")), done)
	v, _ = w.say("t", "go")
	require.NotContains(t, offered(w.request(1)), "write_file")
	require.Contains(t, offered(w.request(1)), "str_replace")
	require.NotContains(t, w.request(0).Raw, "- bash:", "without commands there is no subagent for them")
	require.Equal(t, int64(1), v.Get("messages.1.tool_calls.#").Int())
}

// Mistakes that show when an agent is built name their key.
func TestMistakesInParts(t *testing.T) {
	t.Parallel()
	for middleware, want := range map[string]string{
		`{"subagents": {"types": {"x": {"description": "y", "prompt": "z", "tools": ["none"]}}}}`:                                                  `langgraph.json:1:206: graphs.a.agent.middleware.subagents.types.x.tools[0]: the agent has no tool "none"; it has calculator`,
		`{"human_in_the_loop": {"calculator": true}, "subagents": {"types": {"x": {"description": "y", "prompt": "z", "tools": ["calculator"]}}}}`: `types.x.tools[0]: "calculator" needs the approval of a person`,
		`{"sandbox": true}`: `graphs.a.agent.middleware.sandbox: has no folder`,
		`{"memory": true}`:  `graphs.a.agent.middleware.memory: has no folder`,
		`{"memory": {"folder": "x", "model": "groq:x"}}`:                                                      `graphs.a.agent.middleware.memory.model: model groq:x: has no key`,
		`{"subagents": {"types": {"x": {"description": "y", "prompt": "z", "model": "scripted:none.json"}}}}`: `graphs.a.agent.middleware.subagents.types.x.model: model scripted:none.json`,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "langgraph.json")
		require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"agent": {"model": {"name": "scripted:", "script": [{"content": "x"}]}, "tools": ["calculator"], "middleware": `+middleware+`}}}}`), 0o600))
		c, _, err := config.Load(config.Source{File: file})
		require.NoError(t, err)
		c.Storage.Data = ":memory:"
		_, err = Declare(c, c.Graphs[0], nil, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "langgraph.json:1:")
	}
}

// An agent is built anew when a file that it was made of changes: a prompt, a prompt of a subagent, a script.
func TestRebuildForFiles(t *testing.T) {
	t.Parallel()
	w := &partsWorld{t: t, dir: t.TempDir()}
	w.write("langgraph.json", `{"graphs": {"a": {"agent": {"model": "scripted:script.json", "prompt": {"file": "prompt.md"}, "middleware": {
		"sandbox": {"folder": "files"}, "title": {"model": "scripted:title.json"}, "subagents": {"types": {"x": {"description": "y", "prompt": {"file": "x.md"}, "model": "scripted:x.json"}}}}}},
		"other": {"agent": {"model": "scripted:other.json"}}}}`)
	names := []string{"script.json", "title.json", "x.json", "prompt.md", "x.md"}
	for _, name := range append(names, "other.json") {
		w.write(name, `[{"content": "one"}]`)
	}
	d := &Declared{}
	registry := graph.NewRegistry()
	var before [2]*agent.Agent
	reload := func() (changed [2]bool) {
		c, _, err := config.Load(config.Source{File: filepath.Join(w.dir, "langgraph.json")})
		require.NoError(t, err)
		for _, name := range names {
			require.Contains(t, c.Files, filepath.Join(w.dir, name))
		}
		built, err := d.Rebuild(c, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		d.Replace(built, registry, time.Hour, slog.New(slog.DiscardHandler))
		for i, a := range d.agents {
			changed[i], before[i] = before[i] != a.built, a.built
		}
		return changed
	}
	require.Equal(t, [2]bool{true, true}, reload())
	require.Equal(t, [2]bool{}, reload())
	for _, name := range names {
		w.write(name, `[{"content": "two"}]`)
		require.Equal(t, [2]bool{true, false}, reload(), name)
	}
	require.NoError(t, d.Close())
}

// A file that is read again keeps agents that did not change, with what they have started, and closes those that did. The new one learns what the old one left.
func TestReloadOfParts(t *testing.T) {
	t.Parallel()
	w := &partsWorld{t: t, dir: t.TempDir()}
	learned := make(chan string, 8)
	h := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if text := gjson.GetBytes(body, "messages.0.content").String(); strings.Contains(text, "newFacts") {
			learned <- text
		}
		done(out, r)
	}))
	t.Cleanup(h.Close)
	d := &Declared{}
	registry := graph.NewRegistry()
	reload := func(prompt, wait string) (changed bool) {
		w.write("langgraph.json", `{"graphs": {"a": {"agent": {"model": {"name": "openai:m", "base_url": "`+h.URL+`"}, "prompt": "`+prompt+`", "middleware": {"sandbox": {"folder": "files"}, "memory": {"folder": "files", "wait": "`+wait+`"}}}}}}`)
		c, _, err := config.Load(config.Source{File: filepath.Join(w.dir, "langgraph.json")})
		require.NoError(t, err)
		built, err := d.Rebuild(c, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		before := w.agent
		d.Replace(built, registry, time.Hour, slog.New(slog.DiscardHandler))
		w.agent = d.agents[0].built
		return before != w.agent
	}
	require.True(t, reload("one", "1h"))
	w.say("t", "I am Ann")
	require.False(t, reload("one", "1h"))
	require.True(t, reload("two", "1ms"))
	w.say("t2", "I am Ben")
	text := <-learned + <-learned
	require.Contains(t, text, "I am Ann")
	require.Contains(t, text, "I am Ben")
	require.NoError(t, d.Close())
	waiting, err := filepath.Glob(filepath.Join(w.dir, "files/memory-queue/*.json"))
	require.NoError(t, err)
	require.NotContains(t, strings.Join(waiting, " "), ".new-")
}
