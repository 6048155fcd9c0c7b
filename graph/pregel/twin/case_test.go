package twin

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"understudy/graph"
)

// testCase describes a graph, and what is done with it on one thread.
type testCase struct {
	Name  string    `json:"name"`
	Graph graphDesc `json:"graph"`
	Steps []step    `json:"steps"`
	Saver *bool     `json:"saver,omitempty"` // false: nothing is kept
	// Patience is how many seconds a step may take.
	Patience float64 `json:"patience,omitempty"`
}

// graphDesc describes a graph.
type graphDesc struct {
	// Channels are the keys of the state by kind: last, append, add, messages, ephemeral, topic, topic_all, untracked, is_last_step,
	// remaining_steps. Their order is that of ChannelOrder, which JSON keeps by being written out.
	Channels     channels             `json:"channels,omitempty"`
	Nodes        []nodeDesc           `json:"nodes,omitempty"`
	Edges        [][2]any             `json:"edges,omitempty"` // [from | [from, …], to]
	Branches     []branchDesc         `json:"branches,omitempty"`
	Before       any                  `json:"before,omitempty"` // list of nodes, or "*"
	After        any                  `json:"after,omitempty"`
	Input        []string             `json:"input,omitempty"`
	Output       []string             `json:"output,omitempty"`
	Checkpointer *bool                `json:"checkpointer,omitempty"` // of a subgraph
	Graphs       map[string]graphDesc `json:"graphs,omitempty"`       // that nodes call
	Functional   *functionalDesc      `json:"functional,omitempty"`
	// Typed: the state is typedState in Go, and conditions name its type in Python.
	Typed bool `json:"typed,omitempty"`
}

// channels keep their order in JSON.
type channels [][2]string

func (c channels) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, kv := range c {
		if i > 0 {
			b = append(b, ',')
		}
		k, _ := json.Marshal(kv[0])
		v, _ := json.Marshal(kv[1])
		b = append(append(append(b, k...), ':'), v...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads channels in their order.
func (c *channels) UnmarshalJSON(text []byte) error {
	*c = nil
	gjson.ParseBytes(text).ForEach(func(k, v gjson.Result) bool {
		*c = append(*c, [2]string{k.String(), v.String()})
		return true
	})
	return nil
}

type nodeDesc struct {
	Name     string         `json:"name"`
	Ops      []op           `json:"ops,omitempty"`
	Subgraph *graphDesc     `json:"subgraph,omitempty"`
	Defer    bool           `json:"defer,omitempty"`
	Retry    *retryDesc     `json:"retry,omitempty"`
	Cache    bool           `json:"cache,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
	// Returns is the form in which the node returns its update in Go: values, raw, struct, or "": a list of writes.
	Returns string `json:"returns,omitempty"`
}

type retryDesc struct {
	Max int      `json:"max"`
	On  []string `json:"on"`
}

type branchDesc struct {
	From    string   `json:"from"`
	Rule    rule     `json:"rule"`
	Targets []string `json:"targets,omitempty"`
}

// rule is a condition: by (the value of a key), const, or fan (a Send for each item of a key). A destination is a node, a Send as an object,
// a list of these, or {"raise": name, "text": …}: the condition fails.
type rule struct {
	Kind    string         `json:"kind"`
	Key     string         `json:"key,omitempty"`
	Cases   map[string]any `json:"cases,omitempty"`
	Default any            `json:"default,omitempty"`
	To      any            `json:"to,omitempty"`
	Node    string         `json:"node,omitempty"`
	As      string         `json:"as,omitempty"`
}

// op is one thing that a node does. interpret_test.go and twin.py say what each means.
type op map[string]any

type functionalDesc struct {
	Name   string              `json:"name"`
	Ops    []op                `json:"ops"`
	Tasks  map[string]taskDesc `json:"tasks,omitempty"`
	Return string              `json:"return"`
	Save   string              `json:"save,omitempty"`
}

type taskDesc struct {
	Ops []op `json:"ops"`
}

// step is a run, an update of the state, or a crash: the loss of what the run before it saved last.
type step struct {
	Op              string          `json:"op"` // run, update, crash
	Input           json.RawMessage `json:"input,omitempty"`
	Command         json.RawMessage `json:"command,omitempty"` // "$ask NODE" is the id of the question that a node asks, "$ask 0" that of the first one
	Modes           []string        `json:"modes,omitempty"`
	Subgraphs       bool            `json:"subgraphs,omitempty"`
	Durability      string          `json:"durability,omitempty"`
	At              *int            `json:"at,omitempty"`    // index of a root checkpoint, the oldest is 0
	NS              *string         `json:"ns,omitempty"`    // of an update: a node's subgraph
	Limit           *int            `json:"limit,omitempty"` // default 25
	InterruptBefore any             `json:"interrupt_before,omitempty"`
	InterruptAfter  any             `json:"interrupt_after,omitempty"`
	Updates         [][]updateDesc  `json:"updates,omitempty"`
	// Again is the second attempt of the run before: under its id, with the input "" (new run), "null", or "input": null only if a
	// checkpoint of that run is there.
	Again string `json:"again,omitempty"`
	// Keep is how many root checkpoints of the run before survive the crash. Lose: what it wrote after them is lost as well.
	Keep int  `json:"keep,omitempty"`
	Lose bool `json:"lose,omitempty"`
}

type updateDesc struct {
	Values  json.RawMessage `json:"values,omitempty"`
	AsNode  string          `json:"as_node,omitempty"`
	Command json.RawMessage `json:"command,omitempty"`
}

var allModes = []string{"values", "updates", "tasks", "checkpoints", "custom", graph.ModeIDs}

func run(input string) step {
	return step{Op: "run", Input: json.RawMessage(input), Modes: allModes}
}

func command(c string) step { return step{Op: "run", Command: json.RawMessage(c), Modes: allModes} }

func goOn() step { return step{Op: "run", Modes: allModes} }

func update(values, as string) step {
	u := updateDesc{AsNode: as}
	if values != "" {
		u.Values = json.RawMessage(values)
	}
	return step{Op: "update", Updates: [][]updateDesc{{u}}}
}

func (s step) at(i int) step                { s.At = &i; return s }
func (s step) durability(d string) step     { s.Durability = d; return s }
func (s step) modes(m ...string) step       { s.Modes = m; return s }
func (s step) deep() step                   { s.Subgraphs = true; return s }
func (s step) limit(n int) step             { s.Limit = &n; return s }
func (s step) before(nodes any) step        { s.InterruptBefore = nodes; return s }
func (s step) after(nodes any) step         { s.InterruptAfter = nodes; return s }
func (s step) in(node string) step          { s.NS = &node; return s }
func node(name string, ops ...op) nodeDesc  { return nodeDesc{Name: name, Ops: ops} }
func sub(name string, g graphDesc) nodeDesc { return nodeDesc{Name: name, Subgraph: &g} }
func set(key string, v any) op              { return op{"do": "set", "key": key, "value": v} }
func from(key, other string) op             { return op{"do": "set", "key": key, "from": other} }
func incr(key string) op                    { return op{"do": "incr", "key": key} }
func ask(key string, v any) op              { return op{"do": "interrupt", "key": key, "value": v} }
func fail(kind, text string) op             { return op{"do": "fail", "kind": kind, "text": text} }
func failTimes(n int, kind, text string) op {
	return op{"do": "fail", "kind": kind, "text": text, "times": n}
}
func emit(v any) op                { return op{"do": "emit", "value": v} }
func add(items ...any) op          { return op{"do": "set", "key": "items", "value": items} }
func say(role, text, id string) op { return op{"do": "message", "role": role, "text": text, "id": id} }
func keys() op                     { return op{"do": "keys", "key": "items"} }
func after(n string) op            { return op{"do": "after", "node": n} }
func cmd(update map[string]any, to ...any) op {
	return op{"do": "command", "update": update, "goto": to}
}
func send(node string, arg any) map[string]any { return map[string]any{"node": node, "arg": arg} }

func edge(from any, to string) [2]any { return [2]any{from, to} }

// chain connects nodes from START to END.
func chain(names ...string) (edges [][2]any) {
	last := "__start__"
	for _, n := range names {
		edges = append(edges, edge(last, n))
		last = n
	}
	return append(edges, edge(last, "__end__"))
}

func by(from, key string, cases map[string]any, otherwise any, targets ...string) branchDesc {
	return branchDesc{From: from, Rule: rule{Kind: "by", Key: key, Cases: cases, Default: otherwise}, Targets: targets}
}

func fan(from, key, to, as string) branchDesc {
	return branchDesc{From: from, Rule: rule{Kind: "fan", Key: key, Node: to, As: as}, Targets: []string{to}}
}
