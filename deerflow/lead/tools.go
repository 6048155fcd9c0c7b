package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/access"
	"understudy/deerflow/files"
	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/address"
)

// Tools is where the agent's tools find things.
type Tools struct {
	Sandbox *sandbox.Local
	// Dir returns the folder of a thread.
	Dir func(user, thread string) string
	// Skills returns the folders of skills: the deployment's, and a user's own.
	Skills func(user string) (shared, own string, err error)
	// Lookup returns environment variables, for keys of services.
	Lookup func(name string) (string, bool)
	// Resolve makes a path of config.yaml absolute.
	Resolve func(path string) string
	// Python returns tools in Python by what names them, package.module:variable; nil: there are none. It may take as long as their modules need.
	Python func(ctx context.Context, uses []string) map[string]PythonTool
}

// PythonTool is a tool in Python, or why there is none.
type PythonTool struct {
	Tool         agent.Tool
	Problem, Fix string // "": it is there
}

// defaultUser owns runs without a user.
const defaultUser = "default"

// userOf returns whose run this is: the server's word, else what the Gateway wrote into the context.
func userOf(ctx context.Context) string {
	info, _ := pregel.Info(ctx)
	if a := access.OfRun(info.Config); a != nil {
		return a.Identity
	}
	if user := wish(ctx, "user_id").String(); user != "" {
		return user
	}
	return defaultUser
}

// RunOf returns what a tool in Python sees of a run: its user, thread and id.
func RunOf(ctx context.Context) json.RawMessage {
	info, _ := pregel.Info(ctx)
	raw, _ := json.Marshal(map[string]string{"thread_id": string(info.Thread), "run_id": string(info.Run), "user_id": userOf(ctx)}) // texts have no error
	return raw
}

// toolbox is the tools of settings, and what is offered of them in a run.
type toolbox struct {
	Tools
	of      func(ctx context.Context) (Character, error) // the agent of a run
	set     *settings.Settings
	groups  map[string][]string // of configured tools, by name
	lacking bool                // a tool in Python could not be loaded
	noBash  string              // why there is no bash; "": there is
}

// toolbox makes the middleware with the tools. Its nodes acquire and release the sandbox.
func (g *Graph) toolbox(ctx context.Context, b *building, models *models, guards []agent.Middleware) (agent.Middleware, error) {
	t := g.newToolbox(b.of)
	tools := t.all(ctx, g)
	b.lacking = t.lacking
	first, err := models.get("", thinking{})
	if err != nil {
		return agent.Middleware{}, err
	}
	limits := agent.Middleware{Name: "ToolGroupsMiddleware", WrapModelCall: t.offer, WrapToolCall: t.refuse}
	sub, err := newSubagents(b.of, models, first, tools, limits, guards, g)
	if err != nil {
		return agent.Middleware{}, fmt.Errorf("build subagents: %w", err)
	}
	sub.noBash = t.noBash
	g.checkNames(b.of, tools)
	m := t.holding(t.Sandbox.Release)
	m.Tools, m.WrapModelCall, m.WrapToolCall = append(tools, sub.tool()), t.offer, t.refuse
	return m, nil
}

// holding makes the middleware that gives a run its sandbox, and releases it. Its name is DeerFlow's.
func (t *toolbox) holding(release func(id string)) agent.Middleware {
	return agent.Middleware{
		Name: "SandboxMiddleware",
		BeforeAgent: agent.Hook{Run: func(ctx context.Context, _ pregel.Values) (any, error) {
			id := t.id(ctx)
			release(id) // what a run left that was cancelled between two calls
			return map[string]any{"sandbox": map[string]string{"sandbox_id": id}}, nil
		}},
		AfterAgent: agent.Hook{Run: func(ctx context.Context, _ pregel.Values) (any, error) {
			release(t.id(ctx))
			return nil, nil
		}},
	}
}

func (g *Graph) newToolbox(s *settings.Settings) *toolbox {
	return &toolbox{Tools: g.o.Tools, of: g.characterOf, set: s, groups: map[string][]string{}}
}

func (t *toolbox) id(ctx context.Context) string { return sandboxID(ctx) }

// sandboxID returns the ID of a run's sandbox.
func sandboxID(ctx context.Context) string {
	info, _ := pregel.Info(ctx)
	return "local:" + userOf(ctx) + ":" + string(info.Thread)
}

// open opens the sandbox of a run.
func (t *toolbox) open(ctx context.Context) (tool.Sandbox, error) {
	shared, own, err := t.Skills(userOf(ctx))
	if err != nil {
		return nil, err
	}
	at := strings.TrimSuffix(t.set.Skills.ContainerPath, "/")
	mounts := []sandbox.Mount{{Virtual: at, Host: t.Resolve(shared), Links: true}, {Virtual: at + "/custom", Host: t.Resolve(own)}}
	for _, m := range t.set.Sandbox.Mounts {
		mounts = append(mounts, sandbox.Mount{Virtual: m.Container, Host: t.Resolve(m.Host), Write: !m.ReadOnly})
	}
	return t.place(ctx, t.Sandbox, mounts)
}

// place opens the folders of a run.
func (t *toolbox) place(ctx context.Context, in *sandbox.Local, mounts []sandbox.Mount) (tool.Sandbox, error) {
	info, _ := pregel.Info(ctx)
	user, thread := userOf(ctx), string(info.Thread)
	if !files.IsThread(thread) {
		return nil, errors.New("this thread cannot have files: its ID has characters that names of folders must not have")
	}
	return in.Open(sandbox.Place{ID: t.id(ctx), Dir: t.Dir(user, thread), Mounts: mounts})
}

func (t *toolbox) options() tool.Options {
	set := t.set.Sandbox
	o := tool.Options{Open: t.open, ReadLimit: set.ReadChars, ListLimit: set.ListChars, BashLimit: set.BashChars, Timeout: set.Timeout()}
	for name, value := range set.Environment {
		o.Env = append(o.Env, name+"="+value)
	}
	slices.Sort(o.Env)
	o.Mounted = t.Sandbox != nil && t.Sandbox.Finds()
	for _, c := range t.set.Tools {
		switch c.Name {
		case "glob":
			o.MaxGlob = c.MaxResults
		case "grep":
			o.MaxGrep = c.MaxResults
		}
	}
	return o
}

// taken are the names of tools that are no part of all: of subagents, and of middleware.
var taken = []string{"task", "write_todos", "tool_search"}

// all returns the configured tools that are known, and the built-in ones. The first of a name counts.
func (t *toolbox) all(ctx context.Context, g *Graph) []agent.Tool {
	o := t.options()
	own := map[string]agent.Tool{"bash": tool.Bash(o)}
	for _, one := range tool.Files(o) {
		own[one.Name] = one
	}
	var list []agent.Tool
	add := func(one agent.Tool) bool {
		if slices.ContainsFunc(list, func(have agent.Tool) bool { return have.Name == one.Name }) {
			return false
		}
		list = append(list, one)
		return true
	}
	python := t.python(ctx)
	t.noBash = "tools of config.yaml does not list it"
	for _, c := range t.set.Tools {
		one, err := t.configured(c, own)
		if other, ok := python[c.Use]; ok {
			one, err = inPython(other, c)
			t.lacking = t.lacking || err != nil
		}
		fix, isBash := python[c.Use].Fix, one.Name == "bash"
		if err == nil {
			switch {
			case one.Name == "":
				err, fix = errors.New("it has no name"), "give it one in its module"
			case slices.Contains(taken, one.Name):
				err, fix = fmt.Errorf("the agent has a tool %s of its own", one.Name), "give it another name in its module"
			case !add(one):
				err, fix = fmt.Errorf("another one before it is named %s", one.Name), "remove one of the two, or give it another name in its module"
			}
		}
		if err != nil {
			attrs := []any{"tool", c.Name, "use", c.Use, "reason", err}
			if fix != "" {
				attrs = append(attrs, "fix", fix)
			}
			g.o.Log.Warn("a tool of config.yaml is left out", attrs...)
			if isBash && t.noBash != "" {
				t.noBash = err.Error()
			}
			continue
		}
		if isBash {
			t.noBash = ""
		}
		t.groups[one.Name] = append(t.groups[one.Name], c.Group)
	}
	for _, one := range []agent.Tool{tool.PresentFiles(o), tool.AskClarification(), tool.ViewImage(o)} {
		add(one)
	}
	add(listUploads(t.Dir))
	for _, one := range append(g.managing(t.set), g.memorizing(t.set.Memory)...) {
		add(one)
	}
	if len(t.set.ACP) > 0 {
		add(g.invokeACP(t.set.ACP))
	}
	return list
}

// longestTool bounds calls of tools in Python that have no timeout of their own.
const longestTool = 10 * time.Minute

// InPython returns the `use` of the tools of settings that are in Python: all that are not known here, each once.
func InPython(s *settings.Settings) (uses []string) {
	for _, c := range s.Tools {
		if !isKnown(c.Use) && strings.Contains(c.Use, ":") && !slices.Contains(uses, c.Use) {
			uses = append(uses, c.Use)
		}
	}
	return uses
}

func (t *toolbox) python(ctx context.Context) map[string]PythonTool {
	uses := InPython(t.set)
	if t.Python == nil || len(uses) == 0 {
		return nil
	}
	return t.Python(ctx, uses)
}

func inPython(p PythonTool, c settings.Tool) (agent.Tool, error) {
	if p.Problem != "" {
		return agent.Tool{}, errors.New(p.Problem)
	}
	p.Tool.Timeout, p.Tool.Unwatched = longestTool, true // pydantic checks arguments, by schemas that Go may not understand
	if c.Timeout > 0 {
		p.Tool.Timeout = time.Duration(c.Timeout * float64(time.Second))
	}
	return p.Tool, nil
}

// isKnown reports whether a `use` names a tool that is in Go, or could be.
func isKnown(use string) bool {
	module, _, _ := strings.Cut(use, ":")
	return strings.HasSuffix(module, "sandbox.tools") || community(module) != ""
}

// providers are the services of DeerFlow's community tools, by the package of these.
var providers = map[string]string{
	"tavily": "tavily", "jina_ai": "jina", "firecrawl": "firecrawl", "serper": "serper", "exa": "exa", "brave": "brave", "searxng": "searxng", "ddg_search": "duckduckgo",
	"image_search": "duckduckgo",
}

// community returns the service of a community tool; "": none that is known.
func community(module string) string {
	_, name, _ := strings.Cut(module, "community.")
	name, _, _ = strings.Cut(name, ".")
	return providers[name]
}

// configured returns the tool that an entry of tools names by its `use`, module:variable.
func (t *toolbox) configured(c settings.Tool, own map[string]agent.Tool) (agent.Tool, error) {
	module, variable, _ := strings.Cut(c.Use, ":")
	name := strings.TrimSuffix(variable, "_tool")
	if strings.HasSuffix(module, "sandbox.tools") {
		one, ok := own[name]
		switch {
		case !ok:
			return one, errors.New("the sandbox has no such tool")
		case name == "bash" && !t.set.Sandbox.AllowHostBash && !t.Sandbox.Contained():
			if reason := t.Sandbox.Refusal(); reason != "" {
				return one, errors.New(reason)
			}
			return one, errors.New("commands would run on the server itself; set sandbox.allow_host_bash to allow them")
		}
		return one, nil
	}
	provider := community(module)
	if provider == "" {
		return agent.Tool{}, errors.New("it is not known here")
	}
	w := tool.Web{
		Provider: provider, Key: c.APIKey, URL: c.BaseURL, Results: c.MaxResults, Timeout: time.Duration(c.Timeout * float64(time.Second)),
		Rules: address.Rules{RefusePrivate: true},
	}
	variable = keyNames[provider]
	if w.Key == "" && variable != "" && t.Lookup != nil {
		w.Key, _ = t.Lookup(variable)
	}
	switch {
	case name == "web_search" && tool.Searches(provider):
		if w.Key == "" && w.URL == "" && !tool.Keyless(provider) {
			return agent.Tool{}, fmt.Errorf("it has no key; set %s", variable)
		}
		return tool.WebSearch(w), nil
	case name == "image_search" && (provider == "serper" || provider == "duckduckgo"):
		if w.Key == "" && w.URL == "" && !tool.Keyless(provider) {
			return agent.Tool{}, errors.New("it has no key; set SERPER_API_KEY")
		}
		return tool.ImageSearch(w), nil
	case name == "web_fetch" && slices.Contains([]string{"tavily", "jina", "firecrawl", "exa"}, provider):
		if w.Key == "" && w.URL == "" {
			w.Provider = "" // pages are read from here
		}
		return tool.WebFetch(w), nil
	}
	return agent.Tool{}, errors.New("it is not known here")
}

// keyNames are the variables with the keys of services.
var keyNames = map[string]string{
	"tavily": "TAVILY_API_KEY", "jina": "JINA_API_KEY", "firecrawl": "FIRECRAWL_API_KEY", "serper": "SERPER_API_KEY", "exa": "EXA_API_KEY", "brave": "BRAVE_SEARCH_API_KEY",
}

// offered reports whether a tool is there in a run whose agent may use these groups; nil: all. Those of other middleware are.
func (t *toolbox) offered(ctx context.Context, name string, allowed []string) bool {
	switch name {
	case "write_todos":
		return planning(ctx)
	case "task":
		return delegating(ctx)
	case "setup_agent":
		return wish(ctx, "is_bootstrap").Bool()
	case "update_agent":
		return agentOf(ctx) != "" && !wish(ctx, "is_bootstrap").Bool()
	case "ask_clarification":
		return !unattended(ctx)
	case "view_image":
		m := t.set.Model(wish(ctx, "model_name").String())
		if m == nil {
			m = &t.set.Models[0]
		}
		return m.Vision
	}
	groups, configured := t.groups[name]
	return !configured || allowed == nil || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(allowed, g) })
}

func (t *toolbox) offer(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
	c, err := t.of(ctx)
	if err != nil {
		return agent.ModelResponse{}, err
	}
	r.Tools = slices.DeleteFunc(slices.Clone(r.Tools), func(one agent.Tool) bool { return !t.offered(ctx, one.Name, c.Groups) })
	return next(ctx, r)
}

// refuse answers calls of tools that are not offered in the words for tools that do not exist.
func (t *toolbox) refuse(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
	c, err := t.of(ctx)
	if err != nil {
		return agent.ToolResult{}, err
	}
	if t.offered(ctx, r.Call.Name, c.Groups) && r.Tool != nil {
		return next(ctx, r)
	}
	var names []string
	for _, one := range r.Tools() {
		if t.offered(ctx, one.Name, c.Groups) {
			names = append(names, one.Name)
		}
	}
	m := message.Tool(fmt.Sprintf("Error: %s is not a valid tool, try one of [%s].", r.Call.Name, strings.Join(names, ", ")), r.Call.ID).WithName(r.Call.Name)
	m.Status = message.StatusError
	return agent.ToolResult{Message: &m}, nil
}
