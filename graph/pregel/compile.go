package pregel

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/internal/typo"
)

// Graph is a compiled graph: a graph.Graph, safe for concurrent use. Register it with a server, or run it with Invoke.
type Graph struct {
	name  string
	nodes map[string]*node
	order []string // of the nodes: START first, the others as they were added

	chans     []chanInfo
	chanIndex map[string]int
	tasksChan int
	managed   map[string]string

	inKeys  []string // what the input may write
	out     []string // what values shows; one name when bare
	result  []string // keys that Invoke returns
	bareOut bool

	triggers map[string][]string // channel -> names of the nodes it triggers, sorted

	before, after []string // static breakpoints; "*" all
	mode          CheckpointerMode
	retry         []RetryPolicy
	cache         Cache
	limits        Limits
	steps         int // recursion limit; 0: that of the configuration, or of the run around it
	functional    bool
	joinSubs      bool // a subgraph is a node

	state, input, output *schema
	contextType          reflect.Type
	builder              *builder

	warned    sync.Map // names of nodes that returned unknown keys, and misfits, once reported or found to fit
	shapeOnce sync.Once
	shapeText json.RawMessage
	shapeSum  string
}

type chanInfo struct {
	name      string
	spec      Channel
	typ       reflect.Type
	doc       string
	shown     bool // part of values
	untracked bool
	messages  bool
	triggers  []string // nodes
}

// CheckpointerMode says whether a graph that is a node of another keeps checkpoints.
type CheckpointerMode int

const (
	// Inherit keeps checkpoints as the parent graph does, until the task has finished.
	Inherit CheckpointerMode = iota
	// Always keeps one history per thread: each call resumes from the end of the last one.
	Always
	// Never keeps no checkpoints. A run that was interrupted in the graph restarts it.
	Never
)

// Limits bound the concurrency of one process.
type Limits struct {
	// PerRun is how many tasks of a run may execute concurrently; 0: DefaultPerRun. A run's max_concurrency lowers it.
	PerRun int
	// CancelGrace is how long a run that is cancelled waits for nodes that ignore their context; 0: 5 seconds.
	CancelGrace time.Duration
}

func (l Limits) check() error {
	if l.PerRun < 0 || l.CancelGrace < 0 {
		return errors.New("limits must not be negative")
	}
	return nil
}

// DefaultPerRun is the default of Limits.PerRun.
const DefaultPerRun = 256

// CompileOption is an option of Compile.
type CompileOption func(*Graph)

// WithName names the graph, in schemas and in events. Default: LangGraph.
func WithName(name string) CompileOption { return func(g *Graph) { g.name = name } }

// InterruptBefore stops each run before these nodes; "*": before all.
func InterruptBefore(nodes ...string) CompileOption { return func(g *Graph) { g.before = nodes } }

// InterruptAfter stops each run after these nodes; "*": after all.
func InterruptAfter(nodes ...string) CompileOption { return func(g *Graph) { g.after = nodes } }

// WithCheckpointer sets how the graph keeps checkpoints when it is a node of another graph.
func WithCheckpointer(mode CheckpointerMode) CompileOption { return func(g *Graph) { g.mode = mode } }

// WithRecursionLimit sets how many steps a run has whose configuration says nothing, and, in place of the limit of the run around it, a run within a node of
// another graph. 0: LangGraph's default, and the limit of the run around it.
func WithRecursionLimit(steps int) CompileOption { return func(g *Graph) { g.steps = steps } }

// WithCache sets the cache for nodes with a CachePolicy.
func WithCache(c Cache) CompileOption { return func(g *Graph) { g.cache = c } }

// WithLimits bounds concurrency.
func WithLimits(l Limits) CompileOption { return func(g *Graph) { g.limits = l } }

// Compile validates the graph and prepares it to run. The error joins all mistakes, each with its node or key.
func (g *StateGraph[S]) Compile(options ...CompileOption) (*Graph, error) {
	return g.b.compile(options)
}

// MustCompile is Compile for graphs that are known to be valid. It panics on an error.
func (g *StateGraph[S]) MustCompile(options ...CompileOption) *Graph {
	out, err := g.Compile(options...)
	if err != nil {
		panic(err)
	}
	return out
}

func (b *builder) compile(options []CompileOption) (*Graph, error) {
	g := &Graph{
		name: "LangGraph", nodes: map[string]*node{}, chanIndex: map[string]int{}, managed: b.managed, triggers: map[string][]string{},
		state: b.state, input: b.input, output: b.output, contextType: b.contextType, builder: b,
	}
	for _, option := range options {
		option(g)
	}
	if err := errors.Join(append(slices.Clone(b.errs), b.validate(g)...)...); err != nil {
		return nil, fmt.Errorf("graph %s: %w", g.name, err)
	}
	for _, c := range b.channels {
		g.addChannel(c.name, c.spec, c.typ, c.doc)
		g.chans[len(g.chans)-1].shown = true
		g.out = append(g.out, c.name)
	}
	g.inKeys, g.result = b.keysOf(b.input), b.keysOf(b.output)
	g.addChannel(START, Ephemeral(), nil, "")
	g.addChannel(chanTasks, Topic(false), nil, "")
	g.tasksChan = g.chanIndex[chanTasks]

	start := &node{name: START, hidden: true, bare: START, triggers: []string{START}}
	g.attach(start)
	for _, declared := range b.nodes {
		n := *declared
		applyDefaults(&n, b.defaults)
		n.keys = b.readableKeys(n.schema)
		spec := Channel(EphemeralAny())
		if n.deferred {
			spec = afterFinishSpec{}
		}
		g.addChannel(branchTo+n.name, spec, nil, "")
		n.triggers = []string{branchTo + n.name}
		g.attach(&n)
	}
	for _, e := range b.edges {
		if e[1] != END {
			n := g.nodes[e[0]]
			n.writers = append(n.writers, writer{channel: branchTo + e[1], value: null})
		}
	}
	for _, j := range b.joins {
		if j.to == END {
			continue
		}
		name := "join:" + strings.Join(j.from, "+") + ":" + j.to
		names := slices.Compact(slices.Sorted(slices.Values(j.from)))
		if _, known := g.chanIndex[name]; !known {
			g.addChannel(name, barrierSpec{names, g.nodes[j.to].deferred}, nil, "")
		}
		to := g.nodes[j.to]
		if !slices.Contains(to.triggers, name) {
			to.triggers = append(to.triggers, name)
		}
		for _, from := range names {
			n := g.nodes[from]
			n.writers = append(n.writers, writer{channel: name, value: fromString(from)})
		}
	}
	for _, br := range b.branches {
		n := g.nodes[br.from]
		w := *br
		w.schema = b.state
		n.writers = append(n.writers, writer{branch: &w, keys: b.readableKeys(b.state)})
	}
	g.index()
	return g, nil
}

func applyDefaults(n *node, defaults []NodeOption) {
	var d node
	for _, option := range defaults {
		option(&d)
	}
	if n.retry == nil {
		n.retry = d.retry
	}
	if n.timeout == 0 {
		n.timeout = d.timeout
	}
	if n.cache == nil {
		n.cache = d.cache
	}
}

// keysOf returns the channels that a schema sees.
func (b *builder) keysOf(s *schema) []string {
	var keys []string
	for _, c := range b.channels {
		if s.open() || slices.ContainsFunc(s.keys, func(k schemaKey) bool { return k.name == c.name }) {
			keys = append(keys, c.name)
		}
	}
	return keys
}

// readableKeys returns the channels and managed values that a schema sees.
func (b *builder) readableKeys(s *schema) []string {
	keys := b.keysOf(s)
	for _, name := range slices.Sorted(maps.Keys(b.managed)) {
		if s.open() || slices.ContainsFunc(s.keys, func(k schemaKey) bool { return k.name == name }) {
			keys = append(keys, name)
		}
	}
	return keys
}

func (g *Graph) addChannel(name string, spec Channel, typ reflect.Type, doc string) {
	g.chanIndex[name] = len(g.chans)
	c := chanInfo{name: name, spec: spec, typ: typ, doc: doc}
	_, c.untracked = spec.(untrackedSpec)
	if r, ok := spec.(reducerSpec); ok {
		c.messages = r.r == messagesReducer
	}
	g.chans = append(g.chans, c)
}

func (g *Graph) attach(n *node) {
	g.nodes[n.name] = n
	g.order = append(g.order, n.name)
	g.joinSubs = g.joinSubs || n.sub != nil
}

// index fills the lookup tables used while running.
func (g *Graph) index() {
	for _, name := range g.order {
		n := g.nodes[name]
		slices.Sort(n.triggers)
		for _, t := range n.triggers {
			g.triggers[t] = append(g.triggers[t], name)
		}
	}
	for i := range g.chans {
		c := &g.chans[i]
		slices.Sort(g.triggers[c.name])
		c.triggers = g.triggers[c.name]
	}
}

// unknown reports a name that is none of a node, with the nodes that there are. A node that was refused has an error of its own.
func (b *builder) unknown(bad report, name, format string, args ...any) {
	if slices.Contains(b.refused, name) {
		return
	}
	var names []string
	for _, n := range b.nodes {
		names = append(names, n.name)
	}
	hint := "; the graph has no nodes: AddNode adds them"
	if near := typo.Meant(name, names); near != "" {
		hint = "; did you mean `" + near + "`?"
	} else if len(names) > 0 {
		hint = "; the nodes are " + someOf(names)
	}
	bad(format+"%s", append(args, hint)...)
}

// report adds an error in the definition of a graph.
type report = func(format string, args ...any)

// validate returns all errors in the graph's definition.
func (b *builder) validate(g *Graph) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	b.validateEdges(bad)
	if len(b.channels) == 0 && len(b.errs) == 0 {
		bad("the state has no key: give its struct fields, or declare keys with WithChannel")
	}
	if !b.hasStart() {
		bad("graph must have an entrypoint: add at least one edge from START to another node")
	}
	b.validateNodes(g, bad)
	if err := g.limits.check(); err != nil {
		errs = append(errs, err)
	}
	for _, name := range slices.Concat(g.before, g.after) {
		if name != "*" && b.node(name) == nil {
			bad("interrupt node `%s` not found", name)
		}
	}
	for name := range b.managed {
		if slices.ContainsFunc(b.channels, func(c namedChannel) bool { return c.name == name }) {
			bad("managed value '%s' is a channel as well", name)
		}
	}
	return errs
}

func (b *builder) hasStart() bool {
	return slices.ContainsFunc(b.edges, func(e [2]string) bool { return e[0] == START }) ||
		slices.ContainsFunc(b.branches, func(br *branch) bool { return br.from == START })
}

// validateEdges checks that edges, joins and conditional edges connect nodes that exist.
func (b *builder) validateEdges(bad report) {
	exists := func(name string) bool { return b.node(name) != nil }
	for _, e := range b.edges {
		if e[0] != START && !exists(e[0]) {
			b.unknown(bad, e[0], "found edge starting at unknown node '%s'", e[0])
		}
		if e[1] != END && !exists(e[1]) {
			b.unknown(bad, e[1], "found edge from '%s' to unknown node `%s`", e[0], e[1])
		}
	}
	for _, j := range b.joins {
		for _, f := range j.from {
			if f == START {
				bad("START cannot be part of a join (to `%s`)", j.to)
			} else if !exists(f) {
				b.unknown(bad, f, "found join starting at unknown node '%s'", f)
			}
		}
		if j.to == START || j.to != END && !exists(j.to) {
			b.unknown(bad, j.to, "found join to unknown node `%s`", j.to)
		}
	}
	for _, br := range b.branches {
		if br.from == END || br.from != START && !exists(br.from) {
			b.unknown(bad, br.from, "found conditional edges starting at unknown node '%s'", br.from)
		}
		for _, t := range br.targets {
			if t.node != END && !exists(t.node) {
				b.unknown(bad, t.node, "at '%s' node, the conditional edges name an unknown node '%s'", br.from, t.node)
			}
		}
	}
}

// validateNodes checks the settings of each node.
func (b *builder) validateNodes(g *Graph, bad report) {
	for _, n := range b.nodes {
		for _, e := range n.ends {
			if e.node != END && b.node(e.node) == nil {
				b.unknown(bad, e.node, "node `%s` names an unknown destination '%s'", n.name, e.node)
			}
		}
		if n.sub != nil && n.sub.functional {
			bad("node `%s`: a functional graph cannot be a node; call it inside of one", n.name)
		}
		if n.timeout < 0 {
			bad("node `%s`: a timeout must be positive", n.name)
		}
		if n.cache != nil && g.cache == nil {
			bad("node `%s` has a cache policy, but the graph has no cache", n.name)
		}
		for _, p := range n.retry {
			if p.MaxAttempts < 1 || p.BackoffFactor < 0 || p.InitialInterval < 0 || p.MaxInterval < 0 {
				bad("node `%s`: a retry policy has negative values", n.name)
			}
		}
	}
}
