package lead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"understudy/deerflow/files"
	"understudy/deerflow/memory"
	"understudy/deerflow/sandbox"
	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/deerflow/tool"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/pregel"
)

// Parts are parts of the lead agent for another one, each by itself. They start nothing before a run needs it. Close, which belongs to
// agent.Options.Closers, ends what they started.
type Parts struct {
	model agent.Model
	log   *slog.Logger
	set   settings.Settings
	g     *Graph // has the options of what was added

	mounts []sandbox.Mount                                 // of skills
	open   func(ctx context.Context) (tool.Sandbox, error) // of a run; nil: there is none

	mu      sync.Mutex
	closing []func()
	closed  bool
}

// Of the model of an agent, among the models of subagents.
const ownModel = "agent"

// NewParts returns parts for an agent with a model.
func NewParts(model agent.Model, log *slog.Logger) *Parts {
	p := &Parts{model: model, log: log}
	p.set.Skills.ContainerPath = "/mnt/skills"
	p.g = New(Options{Log: log})
	return p
}

// Close ends what the parts have started, and waits for it.
func (p *Parts) Close() error {
	p.mu.Lock()
	all := p.closing
	p.closing, p.closed = nil, true
	p.mu.Unlock()
	for _, end := range slices.Backward(all) {
		end()
	}
	return nil
}

// whenClosed calls end at Close; at once if that has been.
func (p *Parts) whenClosed(end func()) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.closing = append(p.closing, end)
	}
	p.mu.Unlock()
	if closed {
		end()
	}
}

// SandboxPart says where the files of threads are, and which tools there are for them.
type SandboxPart struct {
	sandbox.Options
	Home    string        // folder of all threads
	Names   []string      // of tools; nil: all but bash
	Bash    bool          // commands may run
	Timeout time.Duration // of a command; 0: the default
}

// Sandbox gives an agent the folders of its threads, and tools for them.
func (p *Parts) Sandbox(o SandboxPart) agent.Middleware {
	home := files.Home{Dir: o.Home}
	o.Log = p.log
	var once sync.Once
	var local *sandbox.Local
	open := func() *sandbox.Local { // says in the log what confines commands: when an agent works, not when a file is checked
		once.Do(func() {
			local = sandbox.NewLocal(o.Options)
			p.whenClosed(local.Close)
		})
		return local
	}
	p.g.o.Tools.Dir = home.ThreadDir
	p.set.Sandbox.BashTimeout = o.Timeout.Seconds()
	box := &toolbox{Tools: p.g.o.Tools, set: &p.set}
	options := box.options()
	options.Mounted = sandbox.WillFind(o.Options)
	options.Open = func(ctx context.Context) (tool.Sandbox, error) { return box.place(ctx, open(), p.mounts) }
	tools := append(tool.Files(options), tool.PresentFiles(options))
	if o.Names != nil {
		tools = slices.DeleteFunc(tools, func(t agent.Tool) bool { return !slices.Contains(o.Names, t.Name) })
	}
	if o.Bash {
		tools = append(tools, tool.Bash(options))
	}
	p.open = options.Open
	m := box.holding(func(id string) { open().Release(id) })
	m.Tools, m.State = tools, map[string]pregel.Channel{"sandbox": tool.State()["sandbox"], "artifacts": tool.State()["artifacts"]}
	return m
}

// errNoSandbox is a mistake of the program.
var errNoSandbox = errors.New("this part works in the folders of a sandbox; add Sandbox first")

// Uploads shows the model which files a person sent with a message.
func (p *Parts) Uploads() (agent.Middleware, error) {
	if p.open == nil {
		return agent.Middleware{}, errNoSandbox
	}
	m := uploads(p.g.o.Tools.Dir)
	m.State = map[string]pregel.Channel{"uploaded_files": tool.State()["uploaded_files"]}
	return m, nil
}

// ViewImage gives an agent the tool view_image, whose images the model sees.
func (p *Parts) ViewImage() (agent.Middleware, error) {
	if p.open == nil {
		return agent.Middleware{}, errNoSandbox
	}
	m := images()
	m.Tools = []agent.Tool{tool.ViewImage(tool.Options{Open: p.open})}
	m.State = map[string]pregel.Channel{viewedKey: tool.State()[viewedKey]}
	return m, nil
}

// ReadBeforeWrite refuses to replace files that the model has not read.
func (p *Parts) ReadBeforeWrite() (agent.Middleware, error) {
	if p.open == nil {
		return agent.Middleware{}, errNoSandbox
	}
	return readBeforeWrite(p.open), nil
}

// Keep writes a large result of a tool to a file that the agent can read; nil without a sandbox.
func (p *Parts) Keep() func(ctx context.Context, name, call, text string) (string, error) {
	if p.open == nil {
		return nil
	}
	return func(ctx context.Context, name, call, text string) (string, error) {
		return keep(ctx, p.open, name, call, text)
	}
}

// Skills informs the model of the skills in a folder, which it reads in the sandbox, and puts one in front of a task that a message begins with its name, as in
// `/skill-name task`. The folder is read again for each request.
func (p *Parts) Skills(dir string) agent.Middleware {
	p.mounts = []sandbox.Mount{{Virtual: p.set.Skills.ContainerPath + "/" + string(skill.Public), Host: dir, Links: true}}
	scan := skill.Scanner(dir, p.log)
	scan() // warns of mistakes before the first request
	p.g.o.Skills = func(string) ([]*skill.Skill, error) { return scan(), nil }
	m := p.g.skills(p.set.Skills, func() bool { return p.open != nil }) // otherwise it could not read them
	m.State = map[string]pregel.Channel{skillContextKey: pregel.Reducer(addSkills)}
	return m
}

// MemoryPart says where memories are, and what is learned. Zero values are the defaults of DeerFlow.
type MemoryPart struct {
	Home       string
	Model      agent.Model // that learns
	Wait       time.Duration
	MaxFacts   int
	Confidence float64
	MaxTokens  int
}

// Memory lets an agent know its users, and the date, and learn of them. What waits to be learned is in files, and is worked off from the next run on.
func (p *Parts) Memory(o MemoryPart) []agent.Middleware {
	set := settings.Default().Memory
	limits := memory.Limits{Wait: time.Duration(set.Debounce) * time.Second, Confidence: set.Confidence, MaxFacts: set.MaxFacts}
	if o.Wait > 0 {
		limits.Wait = o.Wait
	}
	if o.MaxFacts > 0 {
		limits.MaxFacts = o.MaxFacts
	}
	if o.Confidence > 0 {
		limits.Confidence = o.Confidence
	}
	if o.MaxTokens > 0 {
		set.MaxTokens = o.MaxTokens
	}
	home := files.Home{Dir: o.Home}
	kept := memory.Files{Path: func(user string) string { return filepath.Join(home.UserDir(user), memory.FileName) }}
	book := &memory.Book{In: func(string) memory.Documents { return kept }, Now: time.Now}
	learner := &memory.Learner{
		Book: book, Queue: &memory.Folder{Dir: filepath.Join(o.Home, "memory-queue")}, Log: p.log, Limits: func() memory.Limits { return limits },
		Ask: func(ctx context.Context, prompt string) (string, error) {
			return Ask(ctx, o.Model, o.Model.Name, "", prompt)
		},
	}
	p.g.o.Memory = Memory{
		Read: func(ctx context.Context, user, _ string) (*memory.Memory, error) { return book.Read(ctx, user) },
		Learn: func(ctx context.Context, user, _, thread string, turns []memory.Turn) error {
			return learner.Add(ctx, user, thread, turns)
		},
	}
	var once sync.Once
	start := func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := learner.Run(ctx); err != nil {
				p.log.Error("learning about users stopped", "error", err)
			}
		}()
		p.whenClosed(func() { cancel(); <-ended })
	}
	about := middleware.DynamicContext(middleware.ContextOptions{About: p.g.about(set)})
	remember := p.g.remember(set)
	remember.BeforeAgent = agent.Hook{Run: func(context.Context, pregel.Values) (any, error) {
		once.Do(start)
		return nil, nil
	}}
	return []agent.Middleware{about, remember}
}

// SubagentPart are the subagents of an agent.
type SubagentPart struct {
	Types  map[string]settings.Subagent // by name, in addition to the built-in ones; Model is a key of Models, "": the agent's
	Models map[string]agent.Model
	Total  int                // in a run; 0: the default
	Tools  []agent.Tool       // of the agent
	More   []agent.Source     // whose tools the general types have too; the agent owns them
	Guards []agent.Middleware // that subagents have in common with the agent
}

// Subagents gives an agent the tool task, by which it gives work to subagents.
func (p *Parts) Subagents(o SubagentPart) ([]agent.Middleware, error) {
	set := p.set
	set.Subagents = settings.Default().Subagents
	if o.Total > 0 {
		set.Subagents.MaxTotal = o.Total
	}
	set.Models = []settings.Model{{Name: ownModel}}
	opened := map[string]agent.Model{ownModel: p.model}
	for name, m := range o.Models {
		set.Models, opened[name] = append(set.Models, settings.Model{Name: name}), m
	}
	set.Subagents.Custom, set.Subagents.Agents = map[string]settings.Subagent{}, map[string]settings.SubagentOverride{}
	for _, kind := range builtin {
		set.Subagents.Agents[kind.name] = settings.SubagentOverride{Model: ownModel}
	}
	for name, kind := range o.Types {
		if kind.Model == "" {
			kind.Model = ownModel
		}
		set.Subagents.Custom[name] = kind
	}
	p.g.o.Open = func(m *settings.Model, _ *int, _ map[string]json.RawMessage) (agent.Model, error) {
		return opened[m.Name], nil
	}
	p.g.o.Sources = o.More
	all := &models{settings: &set, open: p.g.o.Open, made: map[chosen]agent.Model{}}
	sub, err := newSubagents(&set, all, p.model, o.Tools, agent.Middleware{Name: "ToolGroupsMiddleware"}, o.Guards, p.g)
	if err != nil {
		return nil, fmt.Errorf("build subagents: %w", err)
	}
	sub.noBash = "the agent has no tool bash"
	p.g.checkNames(&set, o.Tools)
	limit := limitSubagents(set.Subagents.MaxTotal, func(context.Context) bool { return true })
	limit.Tools = []agent.Tool{sub.tool()}
	kept := durable()
	if p.g.o.Skills != nil { // which has the key too
		delete(kept.State, skillContextKey)
	}
	return []agent.Middleware{kept, limit}, nil
}
