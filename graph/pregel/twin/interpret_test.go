package twin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

// interpreter makes a Go graph of a description. It is the same as twin.py.
type interpreter struct {
	mu     sync.Mutex
	counts map[string]int
	flags  map[string]chan struct{}
	cache  pregel.Cache
	race   race
}

// race says how long nodes wait before they end, those that fail and the others, and how long conditions wait. start is how much later each
// node begins than the one that was declared before it.
type race struct{ failing, branching, others, start time.Duration }

// wait is a pause before the end of a node.
func (r race) wait(ctx context.Context, fails bool) error {
	if fails {
		return wait(ctx, r.failing)
	}
	return wait(ctx, r.others)
}

func wait(ctx context.Context, pause time.Duration) error {
	if pause == 0 {
		return nil
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newInterpreter() *interpreter {
	return &interpreter{counts: map[string]int{}, flags: map[string]chan struct{}{}, cache: pregel.NewMemoryCache(100)}
}

func (in *interpreter) flag(name string) chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.flags[name] == nil {
		in.flags[name] = make(chan struct{})
	}
	return in.flags[name]
}

// forget lowers all flags: they are of one step.
func (in *interpreter) forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	clear(in.flags)
}

func (in *interpreter) raise(name string) {
	ch := in.flag(name)
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// fails counts a failure of a node, and reports whether it is to fail this time.
func (in *interpreter) fails(name string, o op) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.counts[name]++
	times, limited := o["times"]
	return !limited || in.counts[name] <= int(number(times))
}

func number(x any) int64 {
	switch x := x.(type) {
	case int:
		return int64(x)
	case float64:
		return int64(x)
	}
	return 0
}

var kinds = map[string]func() pregel.Channel{
	"last": pregel.LastValue, "append": pregel.Append, "add": pregel.Add, "messages": pregel.Messages, "ephemeral": pregel.Ephemeral,
	"topic": func() pregel.Channel { return pregel.Topic(false) }, "topic_all": func() pregel.Channel { return pregel.Topic(true) },
	"untracked": pregel.Untracked,
}

func (in *interpreter) build(d graphDesc, subgraph bool) (*pregel.Graph, error) {
	if d.Functional != nil {
		return in.functional(d)
	}
	var options []pregel.GraphOption
	for _, c := range d.Channels {
		if make, ok := kinds[c[1]]; ok {
			options = append(options, pregel.WithChannel(c[0], make()))
		} else {
			options = append(options, pregel.WithManaged(c[0], c[1]))
		}
	}
	if d.Input != nil {
		options = append(options, pregel.WithInputKeys(d.Input...))
	}
	if d.Output != nil {
		options = append(options, pregel.WithOutputKeys(d.Output...))
	}
	if d.Typed {
		return buildOf(in, pregel.NewStateGraph[typedState](), d, subgraph)
	}
	return buildOf(in, pregel.NewStateGraph[pregel.Values](options...), d, subgraph)
}

// buildOf adds nodes and edges to a graph with a state.
func buildOf[S any](in *interpreter, g *pregel.StateGraph[S], d graphDesc, subgraph bool) (*pregel.Graph, error) {
	graphs := map[string]*pregel.Graph{}
	for name, sub := range d.Graphs {
		var err error
		if graphs[name], err = in.build(sub, true); err != nil {
			return nil, err
		}
	}
	for i, n := range d.Nodes {
		var opts []pregel.NodeOption
		if n.Defer {
			opts = append(opts, pregel.Deferred())
		}
		if n.Retry != nil {
			on := n.Retry.On
			opts = append(opts, pregel.WithRetry(pregel.RetryPolicy{
				InitialInterval: time.Millisecond, NoJitter: true, MaxAttempts: n.Retry.Max,
				RetryOn: func(err error) bool { return slices.Contains(on, nameOf(err)) },
			}))
		}
		if n.Cache {
			opts = append(opts, pregel.WithCachePolicy(pregel.CachePolicy{}))
		}
		if n.Metadata != nil {
			opts = append(opts, pregel.WithMetadata(n.Metadata))
		}
		if n.Subgraph != nil {
			sub, err := in.build(*n.Subgraph, true)
			if err != nil {
				return nil, err
			}
			g.AddSubgraph(n.Name, sub, opts...)
			continue
		}
		program := in.program(n, graphs)
		g.AddNode(n.Name, func(ctx context.Context, s S) (any, error) {
			time.Sleep(time.Duration(i) * in.race.start)
			out, err := program(ctx, valuesOf(s))
			_, bad := out.(string)
			if late := in.race.wait(ctx, bad || err != nil && !errors.Is(err, pregel.ErrInterrupted)); late != nil {
				return nil, late
			}
			return out, err
		}, opts...)
	}
	for _, e := range d.Edges {
		if from := names(e[0]); len(from) > 1 {
			g.AddJoin(from, e[1].(string))
		} else {
			g.AddEdge(from[0], e[1].(string))
		}
	}
	for _, br := range d.Branches {
		path := route(br.Rule)
		g.AddConditionalEdges(br.From, func(ctx context.Context, s S) (any, error) {
			if err := wait(ctx, in.race.branching); err != nil {
				return nil, err
			}
			return path(ctx, valuesOf(s))
		}, br.Targets...)
	}
	var opts []pregel.CompileOption
	if d.Before != nil {
		opts = append(opts, pregel.InterruptBefore(names(d.Before)...))
	}
	if d.After != nil {
		opts = append(opts, pregel.InterruptAfter(names(d.After)...))
	}
	if slices.ContainsFunc(d.Nodes, func(n nodeDesc) bool { return n.Cache }) {
		opts = append(opts, pregel.WithCache(in.cache))
	}
	if subgraph && d.Checkpointer != nil {
		mode := pregel.Never
		if *d.Checkpointer {
			mode = pregel.Always
		}
		opts = append(opts, pregel.WithCheckpointer(mode))
	}
	return g.Compile(opts...)
}

func nameOf(err error) string {
	if named, ok := err.(interface{ ErrorName() string }); ok {
		return named.ErrorName()
	}
	return ""
}

func names(x any) []string {
	switch x := x.(type) {
	case string:
		return []string{x}
	case []string:
		return x
	case []any:
		var out []string
		for _, name := range x {
			out = append(out, name.(string))
		}
		return out
	}
	return nil
}

func raw(x any) json.RawMessage {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return b
}

func operand(o op, s pregel.Values) any {
	if from, ok := o["from"].(string); ok {
		if v, ok := s[from]; ok {
			return v
		}
		return nil
	}
	return raw(o["value"])
}

func text(o op, key string) string { s, _ := o[key].(string); return s }

func (in *interpreter) program(n nodeDesc, graphs map[string]*pregel.Graph) func(context.Context, pregel.Values) (any, error) {
	return func(ctx context.Context, s pregel.Values) (any, error) {
		var update []pregel.Write
		put := func(key string, v any) {
			if i := slices.IndexFunc(update, func(w pregel.Write) bool { return w.Channel == key }); i >= 0 {
				update[i].Value = v
				return
			}
			update = append(update, pregel.Write{Channel: key, Value: v})
		}
		var commands []any
		var messages []message.Message
		for _, o := range n.Ops {
			key := text(o, "key")
			switch o["do"] {
			case "set":
				put(key, operand(o, s))
			case "incr":
				have, _, err := pregel.Get[int64](s, key)
				if err != nil {
					return nil, err
				}
				step := int64(1)
				if v, ok := o["by"]; ok {
					step = number(v)
				}
				put(key, have+step)
			case "keys":
				put(key, []string{n.Name + ":" + strings.Join(slices.Sorted(maps.Keys(s)), ",")})
			case "interrupt":
				answer, err := pregel.Interrupt[json.RawMessage](ctx, raw(o["value"]))
				if err != nil {
					return nil, err
				}
				if o["list"] == true {
					put(key, []json.RawMessage{raw(n.Name), answer})
				} else {
					put(key, answer)
				}
			case "fail":
				if in.fails(n.Name, o) {
					return nil, pregel.Errorf(text(o, "kind"), "%s", text(o, "text"))
				}
			case "failif":
				if have, ok := s[key]; ok && string(raw(have)) == string(raw(o["equals"])) {
					return nil, pregel.Errorf("ValueError", "%s", text(o, "text"))
				}
			case "emit":
				if err := pregel.Emit(ctx, operand(o, s)); err != nil {
					return nil, err
				}
			case "message":
				m := message.Message{Type: text(o, "role"), Content: message.Text(text(o, "text")), ID: text(o, "id")}
				if m.Type == "tool" {
					m.ToolCallID, m.Status = "c", "success"
					if c := text(o, "call"); c != "" {
						m.ToolCallID = c
					}
				}
				messages = append(messages, m)
				put("messages", messages)
			case "remove":
				messages = append(messages, message.Remove(text(o, "id")))
				put("messages", messages)
			case "overwrite":
				put(key, pregel.Overwrite{Value: raw(o["value"])})
			case "after":
				select {
				case <-in.flag(text(o, "node")):
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			case "hang":
				<-ctx.Done()
				return nil, context.Cause(ctx)
			case "call":
				out, err := pregel.Invoke[json.RawMessage](ctx, graphs[text(o, "graph")], operand(o, s))
				if err != nil {
					return nil, err
				}
				put(key, out.State)
			case "command":
				c := &pregel.Command{}
				if o["parent"] == true {
					c.Graph = pregel.Parent
				}
				if u, ok := o["update"].(map[string]any); ok && u != nil {
					c.Update = rawWrites(u)
				}
				if list, _ := o["goto"].([]any); len(list) > 0 {
					to, err := destination(list)
					if err != nil {
						return nil, err
					}
					c.Goto = to
				}
				commands = append(commands, c)
			case "nothing":
				return nil, nil
			case "bad":
				return o["value"], nil
			}
		}
		switch {
		case len(commands) > 0 && len(update) > 0:
			return append(commands, returned(n.Returns, update)), nil
		case len(commands) == 1:
			return commands[0], nil
		case len(commands) > 0:
			return commands, nil
		case len(update) > 0:
			return returned(n.Returns, update), nil
		}
		return nil, nil
	}
}

func rawWrites(u map[string]any) []pregel.Write {
	out := []pregel.Write{}
	for _, k := range slices.Sorted(maps.Keys(u)) {
		out = append(out, pregel.Write{Channel: k, Value: raw(u[k])})
	}
	return out
}

func route(r rule) func(context.Context, pregel.Values) (any, error) {
	return func(_ context.Context, s pregel.Values) (any, error) {
		switch r.Kind {
		case "by":
			key := "null"
			if x, ok := s[r.Key]; ok {
				v := raw(x)
				key = string(v)
				var str string
				if json.Unmarshal(v, &str) == nil && key != "null" {
					key = str
				}
			}
			to, ok := r.Cases[key]
			if !ok {
				to = r.Default
			}
			return destination(to)
		case "const":
			return destination(r.To)
		}
		items, _, err := pregel.Get[[]json.RawMessage](s, r.Key)
		if err != nil {
			return nil, err
		}
		sends := []pregel.Send{}
		for _, item := range items {
			sends = append(sends, pregel.Send{Node: r.Node, Arg: pregel.Values{r.As: item}})
		}
		return sends, nil
	}
}

// destination is where a condition or a Command leads.
func destination(to any) (any, error) {
	switch to := to.(type) {
	case []any:
		out := make([]any, len(to))
		for i := range to {
			var err error
			if out[i], err = destination(to[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if name, fails := to["raise"].(string); fails {
			return nil, pregel.Errorf(name, "%s", to["text"])
		}
		return pregel.Send{Node: to["node"].(string), Arg: raw(to["arg"])}, nil
	}
	return to, nil
}

func (in *interpreter) functional(d graphDesc) (*pregel.Graph, error) {
	f := d.Functional
	tasks := map[string]*pregel.Task[json.RawMessage, json.RawMessage]{}
	for name, t := range f.Tasks {
		tasks[name] = pregel.NewTask(name, in.taskProgram(name, t))
	}
	body := func(ctx context.Context, given json.RawMessage) (map[string]json.RawMessage, error) {
		vars := map[string]json.RawMessage{"in": given, "prev": json.RawMessage("null")}
		if prev, ok, err := pregel.Previous[json.RawMessage](ctx); err != nil {
			return nil, err
		} else if ok {
			vars["prev"] = prev
		}
		for _, o := range f.Ops {
			to := text(o, "to")
			var err error
			switch o["do"] {
			case "task":
				vars[to], err = tasks[text(o, "name")].Call(ctx, vars[text(o, "arg")])
			case "parallel":
				var list []json.RawMessage
				if err := json.Unmarshal(vars[text(o, "arg")], &list); err != nil {
					return nil, err
				}
				var futures []*pregel.Future[json.RawMessage]
				for _, x := range list {
					futures = append(futures, tasks[text(o, "name")].Start(ctx, x))
				}
				results := []json.RawMessage{}
				for _, future := range futures {
					out, err := future.Get()
					if err != nil {
						return nil, err
					}
					results = append(results, out)
				}
				vars[to] = raw(results)
			case "interrupt":
				vars[to], err = pregel.Interrupt[json.RawMessage](ctx, raw(o["value"]))
			case "set":
				vars[to] = raw(o["value"])
			}
			if err != nil {
				return nil, err
			}
		}
		return vars, nil
	}
	if f.Save != "" {
		return pregel.NewEntrypoint(f.Name, func(ctx context.Context, given json.RawMessage) (pregel.Final[json.RawMessage, json.RawMessage], error) {
			vars, err := body(ctx, given)
			return pregel.Final[json.RawMessage, json.RawMessage]{Value: vars[f.Return], Save: vars[f.Save]}, err
		})
	}
	return pregel.NewEntrypoint(f.Name, func(ctx context.Context, given json.RawMessage) (json.RawMessage, error) {
		vars, err := body(ctx, given)
		return vars[f.Return], err
	})
}

func (in *interpreter) taskProgram(name string, t taskDesc) func(context.Context, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, x json.RawMessage) (json.RawMessage, error) {
		for _, o := range t.Ops {
			switch o["do"] {
			case "double":
				var n int64
				if err := json.Unmarshal(x, &n); err != nil {
					return nil, err
				}
				x = raw(2 * n)
			case "interrupt":
				answer, err := pregel.Interrupt[json.RawMessage](ctx, raw(o["value"]))
				if err != nil {
					return nil, err
				}
				x = raw([]json.RawMessage{x, answer})
			case "fail":
				if in.fails(name, o) {
					return nil, pregel.Errorf("ValueError", "%s", text(o, "text"))
				}
			case "emit":
				if err := pregel.Emit(ctx, raw(o["value"])); err != nil {
					return nil, err
				}
			default:
				return nil, fmt.Errorf("unknown op %v", o["do"])
			}
		}
		return x, nil
	}
}
