package pregel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"understudy/graph/message"
)

// StateGraph builds a graph whose nodes read and update a state. It is LangGraph's StateGraph; Compile makes a Graph of it.
// Errors are collected and returned by Compile, so that calls can be chained.
type StateGraph[S any] struct{ b *builder }

// builder is a StateGraph without its type.
type builder struct {
	state, input, output *schema
	contextType          reflect.Type
	channels             []namedChannel // in the order of declaration
	managed              map[string]string
	nodes                []*node
	edges                [][2]string
	joins                []join
	branches             []*branch
	defaults             []NodeOption
	errs                 []error
	refused              []string // names of nodes that are not added, each with an error
}

type namedChannel struct {
	name string
	spec Channel
	typ  reflect.Type // nil: any
	doc  string
}

type join struct {
	from []string
	to   string
}

// branch is a conditional edge.
type branch struct {
	from    string
	name    string
	path    func(ctx context.Context, state *value) (any, error)
	schema  *schema // what path reads; nil: what its node does
	targets []pathTarget
}

type pathTarget struct{ label, node string }

// node is a node as it was declared.
type node struct {
	name     string
	call     func(ctx context.Context, input *value) (any, error)
	code     uintptr // of the function that is called
	schema   *schema
	sub      *Graph
	hidden   bool
	bare     string // reads this channel alone
	retry    []RetryPolicy
	timeout  time.Duration
	cache    *CachePolicy
	deferred bool
	metadata []field
	ends     []pathTarget

	// Filled by Compile.
	keys     []string
	triggers []string // sorted
	writers  []writer
}

// GraphOption is an option of NewStateGraph.
type GraphOption func(*builder) error

// WithChannel declares a key of the state in addition to those of the state type, or sets how an existing key takes
// updates.
func WithChannel(name string, c Channel) GraphOption {
	return func(b *builder) error {
		if err := checkKey(name); err != nil {
			return err
		}
		return b.declare(namedChannel{name: name, spec: c}, true)
	}
}

// WithManaged declares a managed value of a state of Values: is_last_step or remaining_steps.
func WithManaged(name, kind string) GraphOption {
	return func(b *builder) error {
		if kind != managedLastStep && kind != managedRemaining {
			return fmt.Errorf("key %q: unknown managed value %q", name, kind)
		}
		b.managed[name] = kind
		return nil
	}
}

// WithInputKeys sets the keys of the state that the input may have. It must follow the options that declare these keys.
func WithInputKeys(keys ...string) GraphOption {
	return func(b *builder) (err error) {
		b.input, err = b.keySchema("Input", keys)
		return err
	}
}

// WithOutputKeys sets the keys of the state that the graph returns when it is invoked or is a node of another graph.
func WithOutputKeys(keys ...string) GraphOption {
	return func(b *builder) (err error) {
		b.output, err = b.keySchema("Output", keys)
		return err
	}
}

func (b *builder) keySchema(name string, keys []string) (*schema, error) {
	s := &schema{typ: valuesType, name: name, keys: []schemaKey{}}
	for _, key := range keys {
		if !slices.ContainsFunc(b.channels, func(c namedChannel) bool { return c.name == key }) {
			return nil, fmt.Errorf("%s: there is no key '%s'", strings.ToLower(name), key)
		}
		s.keys = append(s.keys, schemaKey{name: key})
	}
	return s, nil
}

// WithInput sets the graph's input to the fields of I, which are keys of the state.
func WithInput[I any]() GraphOption {
	return func(b *builder) (err error) {
		b.input, err = b.addSchema(reflect.TypeFor[I]())
		return err
	}
}

// WithOutput sets the graph's output, when it is invoked or is a node of another graph, to the fields of O.
func WithOutput[O any]() GraphOption {
	return func(b *builder) (err error) {
		b.output, err = b.addSchema(reflect.TypeFor[O]())
		return err
	}
}

// WithMoreOutput adds keys of the state to those of WithOutput, which comes before it.
func WithMoreOutput(keys ...string) GraphOption {
	return func(b *builder) error { return b.addKeys("Output", &b.output, keys) }
}

// WithMoreInput adds keys of the state to those of WithInput, which comes before it.
func WithMoreInput(keys ...string) GraphOption {
	return func(b *builder) error { return b.addKeys("Input", &b.input, keys) }
}

func (b *builder) addKeys(name string, to **schema, keys []string) error {
	more, err := b.keySchema(name, keys)
	if err != nil {
		return err
	}
	s := **to
	s.keys = append(slices.Clone(s.keys), more.keys...)
	*to = &s
	return nil
}

// WithContext declares the type of the run's context, which nodes read with ContextOf. A struct tag
// `jsonschema:"default=…"` sets the value of a field that the client does not send.
func WithContext[C any]() GraphOption {
	return func(b *builder) error {
		b.contextType = reflect.TypeFor[C]()
		return nil
	}
}

// NewStateGraph makes a graph without nodes. The state S is a struct whose exported fields are the keys, or Values, whose keys
// WithChannel declares. A field's key is the name in its graph tag, else in its json tag, else the field's. After the name, the
// graph tag says how the key takes updates; without, the last value counts:
//
//	Messages []message.Message `graph:"messages,reducer=add_messages"`
//	Items    []string          `graph:"items,reducer=append"`      // operator.add of lists
//	Total    int               `graph:"total,reducer=add"`         // operator.add of numbers or text
//	Next     string            `graph:"next,ephemeral"`            // gone after the next step; ephemeral=any: takes several
//	Cache    map[string]any    `graph:"cache,untracked"`           // never saved; untracked=any: takes several
//	Seen     []string          `graph:"seen,topic=accumulate"`     // topic: of the last step only
//	Left     int               `graph:"left,managed=remaining_steps"` // or is_last_step: computed
//	Topic    string            `graph:"topic,required"`               // descriptions say that it has to be there
//
// State is shared between nodes: a node must not modify its input in place.
func NewStateGraph[S any](options ...GraphOption) *StateGraph[S] {
	b := &builder{managed: map[string]string{}}
	s, err := b.addSchema(reflect.TypeFor[S]())
	if err != nil {
		b.errs = append(b.errs, err)
		s = &schema{typ: valuesType}
	}
	b.state, b.input, b.output = s, s, s
	for _, option := range options {
		if err := option(b); err != nil {
			b.errs = append(b.errs, err)
		}
	}
	return &StateGraph[S]{b}
}

func checkKey(name string) error {
	switch {
	case name == "":
		return errors.New("a key of the state needs a name")
	case strings.HasPrefix(name, "branch:to:") || strings.HasPrefix(name, "join:") || reserved[name]:
		return fmt.Errorf("key %q is reserved", name)
	}
	return nil
}

// addSchema adds the keys of a type to the channels.
func (b *builder) addSchema(t reflect.Type) (*schema, error) {
	s, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	for _, k := range s.keys {
		if err := checkKey(k.name); err != nil {
			return nil, fmt.Errorf("state %s: %w", s.typ, err)
		}
		if k.managed != "" {
			b.managed[k.name] = k.managed
			continue
		}
		if err := b.declare(namedChannel{k.name, k.channel, k.typ, k.doc}, false); err != nil {
			return nil, fmt.Errorf("state %s: %w", s.typ, err)
		}
	}
	return s, nil
}

// declare adds a channel. A key may be declared again without a reducer. With replace, the later declaration wins.
func (b *builder) declare(c namedChannel, replace bool) error {
	for i := range b.channels {
		if b.channels[i].name != c.name {
			continue
		}
		if replace {
			b.channels[i].spec = c.spec
			return nil
		}
		if _, last := c.spec.(lastValueSpec); !last && !c.spec.same(b.channels[i].spec) {
			return fmt.Errorf("channel '%s' already exists with a different type", c.name)
		}
		return nil
	}
	b.channels = append(b.channels, c)
	return nil
}

// NodeOption is an option of a node.
type NodeOption func(*node)

// WithRetry sets when a failed node runs again. Of several policies, the first whose RetryOn returns true applies.
func WithRetry(policies ...RetryPolicy) NodeOption {
	return func(n *node) {
		n.retry = nil
		for _, p := range policies {
			n.retry = append(n.retry, p.withDefaults())
		}
	}
}

// WithTimeout bounds each attempt of a node. When the time is up, the node's context ends and the task fails with
// NodeTimeoutError.
func WithTimeout(d time.Duration) NodeOption { return func(n *node) { n.timeout = d } }

// WithCachePolicy caches the writes of a node by its input.
func WithCachePolicy(p CachePolicy) NodeOption { return func(n *node) { n.cache = &p } }

// WithMetadata adds to the metadata of a node's tasks, in messages and tasks events.
func WithMetadata(metadata map[string]any) NodeOption {
	return func(n *node) { n.metadata = goFields(reflect.ValueOf(metadata), false) }
}

// Deferred delays a node until no other node is left to run.
func Deferred() NodeOption { return func(n *node) { n.deferred = true } }

// Destinations declares where Commands of a node may go. Only drawings use it.
func Destinations(nodes ...string) NodeOption {
	return func(n *node) {
		for _, to := range nodes {
			n.ends = append(n.ends, pathTarget{node: to})
		}
	}
}

// SetNodeDefaults sets options for all nodes; options of a node itself take precedence.
func (g *StateGraph[S]) SetNodeDefaults(options ...NodeOption) *StateGraph[S] {
	g.b.defaults = options
	return g
}

// AddNode adds a node. Its function takes the state and returns an update: Values, a struct whose fields are keys (those that are not
// zero count), raw JSON of an object, []Write, *Command, []any of these, or nil for none.
func (g *StateGraph[S]) AddNode(name string, fn func(ctx context.Context, state S) (any, error), options ...NodeOption) *StateGraph[S] {
	if fn == nil {
		g.b.refuse(name, "node `%s` has no function", name)
		return g
	}
	g.b.addNode(&node{name: name, schema: g.b.state, call: typedCall(fn), code: reflect.ValueOf(fn).Pointer()}, options)
	return g
}

// AddNode adds a node whose input differs from the graph's state: the fields of I, or the argument of a Send. Fields that the
// state lacks become additional keys.
func AddNode[I, S any](g *StateGraph[S], name string, fn func(ctx context.Context, input I) (any, error), options ...NodeOption) *StateGraph[S] {
	if fn == nil {
		g.b.refuse(name, "node `%s` has no function", name)
		return g
	}
	s := g.b.state
	if t := reflect.TypeFor[I](); t.Kind() == reflect.Struct || t == valuesType || t.Kind() == reflect.Pointer {
		var err error
		if s, err = g.b.addSchema(t); err != nil {
			g.b.refuse(name, "node `%s`: %w", name, err)
			return g
		}
	}
	g.b.addNode(&node{name: name, schema: s, call: typedCall(fn), code: reflect.ValueOf(fn).Pointer()}, options)
	return g
}

// AddSubgraph adds a graph, or an agent, as a node. It reads and updates the keys that both have.
func (g *StateGraph[S]) AddSubgraph(name string, sub Compiled, options ...NodeOption) *StateGraph[S] {
	if v := reflect.ValueOf(sub); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() || sub.compiled() == nil {
		g.b.refuse(name, "node `%s` has no graph", name)
		return g
	}
	g.b.addNode(&node{name: name, schema: g.b.state, sub: sub.compiled()}, options)
	return g
}

func (b *builder) fail(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// refuse reports why a node is not added.
func (b *builder) refuse(name, format string, args ...any) {
	b.refused = append(b.refused, name)
	b.fail(format, args...)
}

func (b *builder) addNode(n *node, options []NodeOption) {
	switch {
	case n.name == "":
		b.refuse("", "a node needs a name")
		return
	case n.name == START || n.name == END:
		b.refuse(n.name, "node `%s` is reserved", n.name)
		return
	case strings.ContainsAny(n.name, "|:"):
		b.refuse(n.name, "node `%s`: '|' and ':' are reserved characters", n.name)
		return
	case reserved[n.name]:
		b.refuse(n.name, "node `%s` is reserved", n.name)
		return
	case b.node(n.name) != nil:
		b.refuse(n.name, "node `%s` is already present", n.name)
		return
	}
	for _, option := range options {
		option(n)
	}
	b.nodes = append(b.nodes, n)
}

func (b *builder) node(name string) *node {
	for _, n := range b.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// AddEdge runs to after from. With from START, to runs on the input; with to END, the path ends.
func (g *StateGraph[S]) AddEdge(from, to string) *StateGraph[S] {
	switch {
	case from == END:
		g.b.fail("END cannot be a start node (edge to `%s`)", to)
	case to == START:
		g.b.fail("START cannot be an end node (edge from `%s`)", from)
	case slices.Contains(g.b.edges, [2]string{from, to}):
	default:
		g.b.edges = append(g.b.edges, [2]string{from, to})
	}
	return g
}

// AddJoin runs to once all nodes in from have run.
func (g *StateGraph[S]) AddJoin(from []string, to string) *StateGraph[S] {
	if len(from) == 0 {
		g.b.fail("a join to `%s` needs start nodes", to)
		return g
	}
	for _, f := range from {
		if f == END {
			g.b.fail("END cannot be a start node (join to `%s`)", to)
			return g
		}
	}
	g.b.joins = append(g.b.joins, join{slices.Clone(from), to})
	return g
}

// AddSequence adds an edge from each node to the one that follows.
func (g *StateGraph[S]) AddSequence(nodes ...string) *StateGraph[S] {
	for i := 1; i < len(nodes); i++ {
		g.AddEdge(nodes[i-1], nodes[i])
	}
	return g
}

// AddConditionalEdges lets path choose which nodes run after from. path returns a node's name, a Send, or a list ([]string, []Send,
// []any). It sees the state with what from has just written. targets names the nodes it may choose, for checks and drawings;
// without targets it may choose any.
func (g *StateGraph[S]) AddConditionalEdges(from string, path func(ctx context.Context, state S) (any, error), targets ...string) *StateGraph[S] {
	list := make([]pathTarget, len(targets))
	for i, t := range targets {
		list[i] = pathTarget{t, t}
	}
	return g.addBranch(from, path, list)
}

// AddConditionalEdgesMap is AddConditionalEdges for a path that returns labels, which routes translates to nodes.
func (g *StateGraph[S]) AddConditionalEdgesMap(from string, path func(ctx context.Context, state S) (any, error), routes map[string]string) *StateGraph[S] {
	var list []pathTarget
	for label, to := range routes {
		list = append(list, pathTarget{label, to})
	}
	slices.SortFunc(list, func(a, b pathTarget) int { return strings.Compare(a.label, b.label) })
	return g.addBranch(from, path, list)
}

func (g *StateGraph[S]) addBranch(from string, path func(ctx context.Context, state S) (any, error), targets []pathTarget) *StateGraph[S] {
	if path == nil {
		g.b.fail("the conditional edges of `%s` have no function", from)
		return g
	}
	n := 0
	for _, b := range g.b.branches {
		if b.from == from {
			n++
		}
	}
	name := "condition"
	if n > 0 {
		name = fmt.Sprintf("condition_%d", n+1)
	}
	g.b.branches = append(g.b.branches, &branch{from: from, name: name, path: typedCall(path), schema: g.b.state, targets: targets})
	return g
}

// SetEntryPoint is AddEdge(START, node).
func (g *StateGraph[S]) SetEntryPoint(node string) *StateGraph[S] { return g.AddEdge(START, node) }

// SetFinishPoint is AddEdge(node, END).
func (g *StateGraph[S]) SetFinishPoint(node string) *StateGraph[S] { return g.AddEdge(node, END) }

// typedCall adapts a typed node function to values.
func typedCall[I any](fn func(ctx context.Context, input I) (any, error)) func(context.Context, *value) (any, error) {
	if reflect.TypeFor[I]() == valuesType {
		return func(ctx context.Context, input *value) (any, error) {
			state, err := input.values()
			if err != nil {
				return nil, reading(ctx, err)
			}
			return fn(ctx, any(state).(I))
		}
	}
	return func(ctx context.Context, input *value) (any, error) {
		var in I
		if err := decodeTo(input, &in); err != nil {
			return nil, reading(ctx, err)
		}
		return fn(ctx, in)
	}
}

// values returns an input in the form that nodes of Values take: lists of messages as []message.Message, all else as raw
// JSON.
func (v *value) values() (Values, error) {
	fields, ok := v.object()
	if !ok {
		if v.isNull() {
			return Values{}, nil
		}
		return nil, fmt.Errorf("%s is not an object", short(v.JSON()))
	}
	out := make(Values, len(fields))
	for _, f := range fields {
		x, err := f.v.messages()
		switch {
		case err != nil:
			return nil, &unfit{f.name, f.v, messagesType, err}
		case x != nil:
			out[f.name] = x
		default:
			out[f.name] = json.RawMessage(f.v.JSON())
		}
	}
	return out, nil
}

// messages returns a list that begins with a message: as []message.Message, unless something else is in it too; nil for other values. All nodes share it: each of the
// many nodes of an agent reads the whole conversation.
func (v *value) messages() (any, error) {
	if known := v.typed.Load(); known != nil && known.t == messagesType {
		return known.v.Interface(), nil
	}
	items, ok := v.list()
	if !ok || len(items) == 0 {
		return nil, nil
	}
	if _, _, ok := items[0].messageID(); !ok {
		return nil, nil
	}
	all := make([]message.Message, len(items))
	for i, item := range items {
		m, ok := item.message()
		if !ok {
			return v.plain()
		}
		all[i] = m
	}
	v.typed.Store(&typedValue{messagesType, reflect.ValueOf(all)})
	return all, nil
}

// Get reads a key of a state of Values. ok is false when it is not there.
func Get[T any](state Values, key string) (v T, ok bool, err error) {
	x, ok := state[key]
	if !ok {
		return v, false, nil
	}
	if typed, ok := x.(T); ok {
		return typed, true, nil
	}
	if err = decodeTo(fromGo(x), &v); err != nil {
		err = fmt.Errorf("key '%s': %w", key, err)
	}
	return v, true, err
}
