package pregel

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"understudy/graph/message"
)

// writer runs after a node: it is one write, or a conditional edge.
type writer struct {
	channel string
	value   *value
	branch  *branch
	keys    []string // what the branch reads
}

// write is one write of a task.
type write struct {
	channel string
	v       *value
}

// writesOf turns what a node returned into the writes of its task, and appends those of its edges. When a condition fails, the
// writes before it remain.
func (l *loop) writesOf(ctx context.Context, n *node, out any, writes []write) ([]write, error) {
	var err error
	if l.g.functional {
		return l.g.functionalWrites(out, writes)
	}
	keys := l.g.out
	if n.name == START {
		keys = l.g.inKeys
	}
	unknown := ""
	if writes, unknown, err = l.g.updates(keys, out, writes); err != nil {
		if n.name == START {
			err = &ofInput{l.g.name, err}
		}
		return nil, err
	}
	if unknown != "" && n.sub == nil {
		l.ignored(n.name, unknown)
	}
	if n.name != START && n.sub == nil {
		l.misfits(n.name, writes)
	}
	for _, w := range n.writers {
		if w.branch == nil {
			writes = append(writes, write{w.channel, w.value})
			continue
		}
		chosen, err := l.choose(ctx, w, out, writes)
		if err != nil {
			return writes, err
		}
		writes = chosen
	}
	return writes, nil
}

// ignored reports, once for each node, a key that the state does not have: often it is misspelled.
func (l *loop) ignored(node, key string) {
	if _, known := l.g.warned.LoadOrStore(node, true); known {
		return
	}
	if node == START {
		l.x.log.Warn("a key of the input is not one that the graph takes; it is ignored", "graph", l.g.name, "key", short([]byte(key)), "keys", someOf(slices.Clone(l.g.inKeys)))
		return
	}
	l.x.log.Warn("a node returned a key that the state does not have; it is ignored", "graph", l.g.name, "node", node, "key", short([]byte(key)),
		"keys", someOf(slices.Clone(l.g.out)))
}

// misfits reports, once for each node and key, values that no reader of the key's type gets. That is no error yet: other nodes may read the key as another
// type, and clients see what was written.
func (l *loop) misfits(node string, writes []write) {
	for _, w := range writes {
		i, isKey := l.g.chanIndex[w.channel]
		if !isKey || l.g.chans[i].typ == nil || !w.v.mayMisfit(l.g.chans[i].typ) {
			continue
		}
		c := &l.g.chans[i]
		key := misfit{node, c.name, w.v.goType()}
		if _, known := l.g.warned.Load(key); known || !c.spec.same(LastValue()) {
			continue
		}
		if l.g.warned.Store(key, true); w.v.into(reflect.New(c.typ).Elem()) == nil {
			continue
		}
		l.x.log.Warn("a node returned a value that is not of the type of its key; what reads the key as that type fails", "graph", l.g.name, "node", node,
			"key", c.name, "type", key.typ, "want", c.typ.String(), "fix", "return "+c.typ.String()+", or change the type of the key in the state")
	}
}

// mayMisfit reports whether a value that Go code returned may be one that a type cannot read. It does not look into lists and objects.
func (v *value) mayMisfit(t reflect.Type) bool {
	switch v.kind {
	case ofGo:
		of := reflect.TypeOf(v.goVal)
		return of != nil && !of.AssignableTo(t)
	case ofList:
		return t.Kind() != reflect.Slice && t.Kind() != reflect.Interface
	case ofObject:
		return t.Kind() != reflect.Map && t.Kind() != reflect.Struct && t.Kind() != reflect.Interface
	}
	return false
}

// misfit is a type that a node returned for a key that has another one.
type misfit struct{ node, key, typ string }

// updates appends the writes of a node's result to keys of the state and the targets of its Commands. unknown is a key that the state does not have.
func (g *Graph) updates(keys []string, out any, writes []write) (_ []write, unknown string, err error) {
	var gotos []write
	add := func(x any) {
		if cmd, ok := asCommand(x); ok {
			if cmd.Graph != "" {
				err = &parentCommand{cmd: cmd, ns: cmd.Graph}
				return
			}
			if gotos, err = g.gotos(cmd.Goto, gotos, null); err != nil {
				return
			}
			x = cmd.Update
		}
		if err == nil {
			writes, err = g.updateOf(keys, x, writes, &unknown)
		}
	}
	if list, ok := commandList(out); ok {
		for _, x := range list {
			if add(x); err != nil {
				return nil, "", err
			}
		}
	} else if add(out); err != nil {
		return nil, "", err
	}
	return append(writes, gotos...), unknown, nil
}

func asCommand(x any) (*Command, bool) {
	switch x := x.(type) {
	case *Command:
		return x, x != nil
	case Command:
		return &x, true
	}
	return nil, false
}

// commandList returns the items of a list that has at least one Command.
func commandList(out any) ([]any, bool) {
	var list []any
	switch x := out.(type) {
	case []*Command:
		for _, c := range x {
			list = append(list, c)
		}
	case []Command:
		for _, c := range x {
			list = append(list, c)
		}
	case []any:
		if slices.ContainsFunc(x, func(i any) bool { _, ok := asCommand(i); return ok }) {
			list = x
		}
	}
	return list, list != nil
}

// gotos appends the writes that trigger nodes.
func (g *Graph) gotos(to any, writes []write, mark *value) ([]write, error) {
	switch to := to.(type) {
	case nil:
	case string:
		if to == END || to == "" {
			break
		}
		writes = append(writes, write{branchTo + to, mark})
	case Send:
		v := fromSend(to)
		if err := v.goVal.(Send).Arg.(*value).check(); err != nil {
			return nil, fmt.Errorf("send to node '%s': %w", to.Node, err)
		}
		writes = append(writes, write{chanTasks, v})
	case *Send:
		return g.gotos(*to, writes, mark)
	default:
		rv := reflect.ValueOf(to)
		if rv.Kind() != reflect.Slice {
			return nil, Errorf("TypeError", "In Command.goto, expected Send/str, got %s", pyType(fromGo(to)))
		}
		var err error
		for i := range rv.Len() {
			if writes, err = g.gotos(rv.Index(i).Interface(), writes, mark); err != nil {
				return nil, err
			}
		}
	}
	return writes, nil
}

// updateOf appends the writes of one update, and sets unknown to a key that the state does not have.
func (g *Graph) updateOf(keys []string, x any, writes []write, unknown *string) ([]write, error) {
	fields, err := g.updateFields(x)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if !slices.Contains(keys, f.name) {
			if g.managed[f.name] == "" {
				*unknown = f.name
			}
			continue
		}
		if err := f.v.check(); err != nil {
			return nil, Errorf("TypeError", "key '%s': %w", f.name, err)
		}
		if g.chans[g.chanIndex[f.name]].messages {
			f.v = withIDs(f.v)
		}
		writes = append(writes, write{f.name, f.v})
	}
	return writes, nil
}

func (g *Graph) updateFields(x any) ([]field, error) {
	switch x := x.(type) {
	case nil:
		return nil, nil
	case []Write:
		fields := make([]field, len(x))
		for i, w := range x {
			fields[i] = field{w.Channel, fromGo(w.Value)}
		}
		return fields, nil
	case json.RawMessage:
		v := fromGo(x)
		if v.isNull() {
			return nil, v.bad
		}
		if fields, ok := v.object(); ok && v.bad == nil {
			return fields, nil
		}
	case *value:
		if x.isNull() {
			return nil, nil
		}
		if fields, ok := x.object(); ok {
			return fields, nil
		}
	case map[string]any:
		fields := make([]field, 0, len(x))
		if len(x) == 1 {
			for name, v := range x {
				fields = append(fields, field{name, fromGo(v)})
			}
			return fields, nil
		}
		for _, c := range g.chans { // in the order of the state, as maps have none
			if v, ok := x[c.name]; ok {
				fields = append(fields, field{c.name, fromGo(v)})
			}
		}
		return fields, nil
	default:
		rv := reflect.ValueOf(x)
		for rv.Kind() == reflect.Pointer {
			if rv.IsNil() {
				return nil, nil
			}
			rv = rv.Elem()
		}
		if rv.Kind() == reflect.Struct && rv.Type() != messageType || rv.Kind() == reflect.Map {
			return goFields(rv, true), nil
		}
	}
	v := fromGo(x)
	given, ok := v.text()
	if !ok {
		given = string(v.JSON())
	}
	return nil, invalidUpdate("Expected dict, got %s\nFor troubleshooting, visit: "+
		"https://docs.langchain.com/oss/python/langgraph/errors/INVALID_GRAPH_NODE_RETURN_VALUE", short([]byte(given)))
}

// withIDs sets the ids of Go messages that have none, so that readers of the update and of the state see the same id.
func withIDs(v *value) *value {
	if m, ok := v.goMessage(); ok {
		if m.ID == "" {
			return fromMessage(m.WithID(uuid.NewString()))
		}
		return v
	}
	if v.kind != ofList {
		return v
	}
	items, copied := v.items, false
	for i, item := range v.items {
		if m, ok := item.goMessage(); ok && m.ID == "" {
			if !copied {
				items, copied = slices.Clone(items), true
			}
			items[i] = fromMessage(m.WithID(uuid.NewString()))
		}
	}
	if !copied {
		return v
	}
	return fromItems(items)
}

func (v *value) goMessage() (message.Message, bool) {
	if v.kind != ofGo {
		return message.Message{}, false
	}
	m, ok := v.goVal.(message.Message)
	return m, ok
}

// choose runs a conditional edge.
func (l *loop) choose(ctx context.Context, w writer, out any, writes []write) ([]write, error) {
	state, err := l.fresh(w.keys, writes)
	if err != nil {
		return nil, err
	}
	if w.branch.schema.open() {
		state = l.g.passThrough(out, state)
	}
	got, err := w.branch.path(ctx, state)
	if err != nil {
		if tc := taskOf(ctx); tc != nil {
			wrote(tc.t, writes, err)
		}
		return nil, err
	}
	targets, err := destinations(got)
	if err != nil {
		return nil, fmt.Errorf("conditional edges of '%s': %w", w.branch.from, err)
	}
	for _, to := range targets {
		if s, ok := to.(Send); ok {
			if s.Node == END {
				return nil, invalidUpdate("Cannot send a packet to the END node")
			}
			if writes, err = l.g.gotos(s, writes, null); err != nil {
				return nil, err
			}
			continue
		}
		name := to.(string)
		if len(w.branch.targets) > 0 {
			at := slices.IndexFunc(w.branch.targets, func(t pathTarget) bool { return t.label == name })
			if at < 0 {
				return nil, &undeclared{chosen: name, from: w.branch.from}
			}
			name = w.branch.targets[at].node
		}
		if name == "" || name == START {
			return nil, Errorf("ValueError", "Branch did not return a valid destination")
		}
		if name != END {
			writes = append(writes, write{branchTo + name, null})
		}
	}
	return writes, nil
}

// undeclared is the error of a condition that chose what its conditional edges do not name. Clients see LangGraph's KeyError.
type undeclared struct{ chosen, from string }

func (e *undeclared) ErrorName() string { return "KeyError" }

func (e *undeclared) Error() string { return e.chosen }

func (e *undeclared) fix() string {
	return fmt.Sprintf("the conditional edges of '%s' chose '%s', which is not among their targets; add it there", e.from, e.chosen)
}

// passThrough adds to a node's result the keys of the state that it lacks, so that a condition sees them. For START the result is the
// input. A Command, or a list with one, adds nothing.
func (g *Graph) passThrough(out any, state *value) *value {
	if _, ok := asCommand(out); ok {
		return state
	}
	if _, ok := commandList(out); ok {
		return state
	}
	var given []field
	if values, ok := out.(map[string]any); ok {
		given = goFields(reflect.ValueOf(values), false)
	} else {
		var err error
		if given, err = g.updateFields(out); err != nil {
			return state
		}
	}
	merged := fieldSet{list: slices.Clone(given)}
	fields, ok := state.object()
	if !ok {
		return state
	}
	for _, f := range fields {
		merged.set(f.name, f.v)
	}
	return fromFields(merged.list)
}

func destinations(got any) ([]any, error) {
	switch x := got.(type) {
	case nil:
		return nil, Errorf("ValueError", "Branch did not return a valid destination")
	case string:
		return []any{x}, nil
	case Send:
		return []any{x}, nil
	case *Send:
		return []any{*x}, nil
	case bool:
		return []any{map[bool]string{true: "true", false: "false"}[x]}, nil
	}
	rv := reflect.ValueOf(got)
	if rv.Kind() == reflect.String {
		return []any{rv.String()}, nil
	}
	if rv.Kind() != reflect.Slice {
		return nil, Errorf("TypeError", "a condition returns a node's name, a Send or a list of these, not %s", pyType(fromGo(got)))
	}
	var out []any
	for i := range rv.Len() {
		one, err := destinations(rv.Index(i).Interface())
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// fresh reads keys of the state with only the writes of one task applied.
func (l *loop) fresh(keys []string, writes []write) (*value, error) {
	var fields []field
	for _, key := range keys {
		i, ok := l.g.chanIndex[key]
		if !ok {
			continue
		}
		var vals []*value
		for _, w := range writes {
			if w.channel == key {
				vals = append(vals, w.v)
			}
		}
		c := l.chans[i].clone()
		if _, err := c.update(vals); err != nil {
			return nil, err
		}
		if v := c.get(); v != nil {
			fields = append(fields, field{key, v})
		}
	}
	return fromFields(l.managed(keys, fields)), nil
}
