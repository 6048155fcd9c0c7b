package pregel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// at returns the graph of a namespace; nil when no node declares it.
func (g *Graph) at(ns string) *Graph {
	if ns == "" {
		return g
	}
	found := g
	for part := range strings.SplitSeq(withoutTaskIDs(ns), "|") {
		n := found.nodes[part]
		if n == nil || !n.keepsState() {
			return nil
		}
		found = n.sub
	}
	return found
}

// open returns a loop at a checkpoint, to read it or to write after it. It does not run nodes. t is nil when the thread has
// no checkpoint.
func (g *Graph) open(ctx context.Context, cfg graph.Config, key checkpointer.Key, t *checkpointer.Tuple) (*loop, error) {
	x := &exec{ctx: ctx, log: slog.Default(), thread: key.Thread, config: cfg.Config, saver: cfg.Saver, durability: durabilitySync}
	x.configure(g)
	l := &loop{scope: scope{g: g, x: x, ctx: ctx, ns: key.NS, nested: key.NS != "", keeps: true, outKeys: g.out}}
	if t == nil {
		l.cp, l.chans, l.meta = emptyCheckpoint(g), g.newChannels(), savedMetadata{step: -1}
		l.lineage.parent = string(key.ID)
		l.lineage.versions = slices.Clone(l.cp.versions)
		l.step, l.stop = 0, 2
		return l, nil
	}
	s, err := g.load(t)
	if err != nil {
		return nil, err
	}
	l.cp, l.chans, l.meta = s.checkpoint, s.chans, s.metadata
	l.pending.reset(s.pending)
	l.lineage = lineage{loaded: s.id, parent: s.id, prevParent: s.parent, shape: s.shape}
	l.lineage.versions = slices.Clone(l.cp.versions)
	l.step = l.meta.step + 1
	l.stop = l.step + 2
	return l, nil
}

// Explain implements graph.Graph.
func (g *Graph) Explain(ctx context.Context, cfg graph.Config, at checkpointer.Key, live bool) (checkpointer.Explanation, error) {
	key := keyOf(cfg, at)
	if live {
		key.ID = ""
	}
	sub := g.at(key.NS)
	if sub == nil {
		sub = g // as in LangGraph, for graphs that a node calls undeclared
	}
	if sub.mode == Always {
		key.NS = withoutIDs(key.NS)
	}
	e := checkpointer.Explanation{Values: json.RawMessage("{}"), Next: []string{}, Tasks: json.RawMessage("[]")}
	e.ShapeJSON, e.Shape = sub.shape()
	t, err := cfg.Saver.Load(ctx, key)
	if err != nil {
		return e, fmt.Errorf("explain checkpoint %s of thread %s: %w", at.ID, at.Thread, err)
	}
	if t == nil {
		return e, nil
	}
	l, err := sub.open(ctx, cfg, t.Key, t)
	if err != nil {
		return e, fmt.Errorf("explain checkpoint %s of thread %s: %w", at.ID, at.Thread, err)
	}
	tasks := l.prepare(changes{})
	if writes := nulls(l.pending.list()); len(writes) > 0 {
		if _, err := l.applyWrites([]*task{{name: writeInput, writes: writes}}, false); err != nil {
			return e, fmt.Errorf("explain checkpoint %s of thread %s: %w", at.ID, at.Thread, err)
		}
	}
	if live {
		l.reapply(tasks)
		done := slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return len(t.writes) == 0 })
		if len(done) > 0 {
			if _, err := l.applyWrites(done, false); err != nil {
				return e, fmt.Errorf("explain checkpoint %s of thread %s: %w", at.ID, at.Thread, err)
			}
		}
	}
	b := []byte{'['}
	for i, t := range tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":"`...)
		b = append(b, t.id...)
		b = append(appendQuoted(append(b, `","name":`...), t.name), `,"path":`...)
		b = t.path.appendJSON(b)
		b = append(b, `,"subgraph":`...)
		if t.node.keepsState() {
			b = append(b, "true}"...)
		} else {
			b = append(b, "false}"...)
		}
		if len(t.writes) == 0 {
			e.Next = append(e.Next, t.name)
		}
	}
	e.Tasks = append(b, ']')
	e.Values = l.values().JSON()
	return e, nil
}

// asInput and asCopy are names that an update may use instead of a node.
const (
	asInput = "__input__"
	asCopy  = "__copy__"
)

// Update implements graph.Graph.
func (g *Graph) Update(ctx context.Context, cfg graph.Config, at checkpointer.Key, steps [][]graph.StateUpdate) (checkpointer.Key, error) {
	key := keyOf(cfg, at)
	if cfg.Saver == nil {
		return key, fault.New(fault.Invalid, "No checkpointer set")
	}
	if len(steps) == 0 {
		return key, fault.New(fault.Invalid, "No supersteps provided")
	}
	for _, step := range steps {
		if len(step) == 0 {
			return key, fault.New(fault.Invalid, "No updates provided")
		}
	}
	idsAfter(string(cfg.After))
	sub := g.at(key.NS)
	if sub == nil {
		return key, fault.Newf(fault.Invalid, "Subgraph %s not found", withoutTaskIDs(key.NS))
	}
	cfg.Config = placed(cfg.Config, key, cfg.CheckpointMap)
	if sub.mode == Always {
		key.NS = withoutIDs(key.NS)
	}
	for i, step := range steps {
		next, err := sub.updateStep(ctx, cfg, key, step, i == 0)
		if err != nil {
			return key, err
		}
		key = next
	}
	return key, nil
}

// placed returns the configuration of an update at the named checkpoint. The checkpoint's place becomes metadata of what the
// update saves.
func placed(config json.RawMessage, at checkpointer.Key, mapping json.RawMessage) json.RawMessage {
	whole := jsonobj.Of(config)
	configurable := jsonobj.Of(whole.Get("configurable"))
	configurable.SetText("checkpoint_ns", at.NS)
	if at.ID != "" {
		configurable.SetText("checkpoint_id", string(at.ID))
	} else {
		configurable.Delete("checkpoint_id")
	}
	if len(mapping) > 0 {
		configurable.Set("checkpoint_map", mapping)
	}
	whole.Set("configurable", configurable.JSON())
	return whole.JSON()
}

// following returns the configuration of a superstep after the first: LangGraph passes on only the place of the previous checkpoint.
func following(t *checkpointer.Tuple) json.RawMessage {
	var mapping json.RawMessage
	if parents := (fieldSet{list: readMetadata(t.Metadata).parents}); len(parents.list) > 0 {
		parents.set(t.NS, fromString(string(t.ID)))
		mapping = fromFields(parents.list).JSON()
	}
	return placed(nil, t.Key, mapping)
}

// invalid turns an update that violates the graph's rules into an error of the request. Other errors, of a condition or a reducer, keep
// their name, as errors of a run do.
func invalid(err error) error {
	switch errorName(err) {
	case nameInvalidUpdate, "ValueError":
		return fault.Wrap(fault.Invalid, err.Error(), err)
	}
	return failure(err)
}

// updateStep writes one checkpoint as if nodes had run.
func (g *Graph) updateStep(ctx context.Context, cfg graph.Config, key checkpointer.Key, updates []graph.StateUpdate, first bool) (checkpointer.Key, error) {
	t, err := cfg.Saver.Load(ctx, key)
	if err != nil {
		return key, fmt.Errorf("update thread %s: %w", key.Thread, err)
	}
	if t != nil {
		key = t.Key
		if !first {
			cfg.Config = following(t)
		}
	}
	l, err := g.open(ctx, cfg, key, t)
	if err != nil {
		return key, fmt.Errorf("update thread %s: %w", key.Thread, err)
	}
	step := -1
	if t != nil {
		step = l.meta.step
	}
	parents := l.meta.parents
	u := updates[0]
	noValues := len(u.Values) == 0 || string(u.Values) == "null"
	noValues = noValues && len(u.Command) == 0
	switch {
	case noValues && u.AsNode == END:
		if len(updates) > 1 {
			return key, fault.New(fault.Invalid, "Cannot apply multiple updates when clearing state")
		}
		if t != nil {
			tasks := l.prepare(changes{})
			if writes := nulls(l.pending.list()); len(writes) > 0 {
				if _, err := l.applyWrites([]*task{{name: writeInput, writes: writes}}, true); err != nil {
					return key, invalid(err)
				}
			}
			l.reapply(tasks)
			if _, err := l.applyWrites(tasks, true); err != nil {
				return key, invalid(err)
			}
		}
		return l.saveUpdate(ctx, cfg, sourceUpdate, step+1, parents, step, nil)
	case u.AsNode == asInput:
		if len(updates) > 1 {
			return key, fault.New(fault.Invalid, "Cannot apply multiple updates when updating as input")
		}
		if noValues {
			return key, fault.Newf(fault.Invalid, "Received no input writes for %s", START)
		}
		if !json.Valid(u.Values) {
			return key, fault.New(fault.Invalid, "the values are not valid JSON")
		}
		writes := []write{{START, fromJSON(compact(u.Values))}}
		base, err := l.isBase(ctx, cfg, key, t, first)
		if err != nil {
			return key, err
		}
		var saves []graph.Save
		if base {
			rows, err := storedWrites(uuidOf(l.cp.id, writeInput), "", writes)
			if err != nil {
				return key, invalid(err)
			}
			saves = append(saves, graph.Save{At: l.key(), Writes: rows})
		}
		if _, err := l.applyWrites([]*task{{name: writeInput, writes: writes}}, true); err != nil {
			return key, invalid(err)
		}
		next := -1
		if t != nil && l.meta.hasStep {
			next = step + 1
		}
		return l.saveUpdate(ctx, cfg, sourceInput, next, parents, next, saves)
	case u.AsNode == asCopy:
		return g.copyStep(ctx, cfg, l, t, updates, step)
	}
	return l.updateAs(ctx, cfg, key, t, updates, step, first)
}

// saveUpdate saves the state as a new checkpoint. clock is the step in its id.
func (l *loop) saveUpdate(
	ctx context.Context, cfg graph.Config, source string, step int, parents []field, clock int, before []graph.Save,
) (checkpointer.Key, error) {
	l.meta = savedMetadata{source: source, step: step, hasStep: true, parents: parents}
	l.cp.v, l.cp.ts, l.cp.id = checkpointVersion, now(), newCheckpointID(clock)
	l.cp.idBytes = idBytes(l.cp.id)
	l.cp.changed = changes{}
	p, _, err := l.putOf()
	if err != nil {
		return checkpointer.Key{}, err
	}
	if err := cfg.Saver.Save(ctx, append(before, graph.Save{Put: p})...); err != nil {
		return p.Key, fmt.Errorf("update thread %s: %w", p.Thread, err)
	}
	return p.Key, nil
}

// copyStep forks a checkpoint, and applies the given updates to it.
func (g *Graph) copyStep(
	ctx context.Context, cfg graph.Config, l *loop, t *checkpointer.Tuple, updates []graph.StateUpdate, step int,
) (checkpointer.Key, error) {
	if len(updates) > 1 {
		return checkpointer.Key{}, fault.New(fault.Invalid, "Cannot copy checkpoint with multiple updates")
	}
	if t == nil {
		return checkpointer.Key{}, fault.New(fault.Invalid, "Cannot copy a non-existent checkpoint")
	}
	parents := l.meta.parents
	l.lineage.parent = string(t.Parent)
	l.x.stored = nil
	key, err := l.saveUpdate(ctx, cfg, sourceFork, step+1, parents, step, nil)
	if err != nil {
		return key, err
	}
	items := gjson.ParseBytes(updates[0].Values)
	if !items.IsArray() || len(items.Array()) == 0 {
		return key, nil
	}
	l.step = step + 2
	ids := map[string][]string{}
	for _, t := range l.prepare(changes{}) {
		ids[t.name] = append(ids[t.name], t.id)
	}
	var order []string
	groups := map[string][]graph.StateUpdate{}
	for _, item := range items.Array() {
		pair := item.Array()
		if !item.IsArray() || len(pair) < 2 {
			return key, fault.Newf(fault.Invalid, "Invalid update item: %s when copying checkpoint", short([]byte(item.Raw)))
		}
		name := pair[1].String()
		u := graph.StateUpdate{AsNode: name}
		if pair[0].Type != gjson.Null {
			u.Values = json.RawMessage(pair[0].Raw)
		}
		if n := len(groups[name]); n < len(ids[name]) {
			u.TaskID = ids[name][n]
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], u)
	}
	var all []graph.StateUpdate
	for _, name := range order {
		all = append(all, groups[name]...)
	}
	return g.updateStep(ctx, cfg, key, all, false)
}

// updateAs writes what the named nodes would have written.
func (l *loop) updateAs(
	ctx context.Context, cfg graph.Config, key checkpointer.Key, t *checkpointer.Tuple, updates []graph.StateUpdate, step int, first bool,
) (checkpointer.Key, error) {
	ids := map[string][]string{}
	if t != nil {
		for _, task := range l.prepare(changes{}) {
			ids[task.name] = append(ids[task.name], task.id)
		}
	}
	if len(updates) == 1 && updates[0].AsNode == "" {
		name := l.lastNode()
		if name == "" {
			return key, fault.New(fault.Invalid, "Ambiguous update, specify as_node")
		}
		updates = slices.Clone(updates)
		updates[0].AsNode = name
	}
	for _, u := range updates {
		if u.AsNode == "" {
			return key, fault.New(fault.Invalid, "as_node is required when applying multiple updates")
		}
		if l.g.nodes[u.AsNode] == nil {
			return key, &graph.UnknownNode{Node: u.AsNode}
		}
	}
	base, err := l.isBase(ctx, cfg, key, t, first)
	if err != nil {
		return key, err
	}
	var tasks []*task
	var saves []graph.Save
	for i, u := range updates {
		out, err := updateValues(u)
		if err != nil {
			return key, invalid(err)
		}
		n := l.g.nodes[u.AsNode]
		writes, err := l.writesOf(ctx, n, out, nil)
		if err != nil {
			return key, invalid(err)
		}
		run := &task{name: u.AsNode, triggers: []string{writeInterrupt}, writes: writes, pathText: "~" + writeInterrupt + ", " + padded(i)}
		tasks = append(tasks, run)
		run.id = u.TaskID
		if run.id == "" {
			if prepared := ids[u.AsNode]; len(prepared) > 0 {
				run.id, ids[u.AsNode] = prepared[0], prepared[1:]
			} else {
				run.id = updateTaskID(l.cp.id, i)
			}
		}
		if base && len(writes) > 0 {
			rows, err := storedWrites(run.id, run.pathText, l.tracked(writes))
			if err != nil {
				return key, invalid(err)
			}
			saves = append(saves, graph.Save{At: l.key(), Writes: rows})
		}
	}
	parents := l.meta.parents
	if _, err := l.applyWrites(tasks, true); err != nil {
		return key, invalid(err)
	}
	return l.saveUpdate(ctx, cfg, sourceUpdate, step+1, parents, step+1, saves)
}

// updateValues reads the update that a client sends in place of a node's result.
func updateValues(u graph.StateUpdate) (any, error) {
	if len(u.Command) > 0 {
		c := readCommand(u.Command)
		if c.invalid != nil {
			return nil, c.invalid
		}
		return c.asCommand(), nil
	}
	if len(u.Values) == 0 {
		return nil, nil
	}
	if !json.Valid(u.Values) {
		return nil, Errorf("ValueError", "the values are not valid JSON")
	}
	return fromJSON(compact(u.Values)), nil
}

// isBase reports whether the writes of an update are stored on the checkpoint that it starts from, which is so unless the thread has
// moved past it.
func (l *loop) isBase(ctx context.Context, cfg graph.Config, key checkpointer.Key, t *checkpointer.Tuple, first bool) (bool, error) {
	if t == nil || !first {
		return t != nil, nil
	}
	head, err := cfg.Saver.Load(ctx, checkpointer.Key{Thread: key.Thread, NS: key.NS})
	if err != nil {
		return false, fmt.Errorf("update thread %s: %w", key.Thread, err)
	}
	return head == nil || head.ID == t.ID, nil
}

// uuidOf derives an id from a checkpoint's id and a name.
func uuidOf(checkpoint, name string) string {
	ns, err := uuid.Parse(checkpoint)
	if err != nil {
		ns = uuid.NewSHA1(uuid.NameSpaceOID, []byte(checkpoint))
	}
	return uuid.NewSHA1(ns, []byte(name)).String()
}

// updateTaskID returns the id of an update that does not stand for a task.
func updateTaskID(checkpoint string, i int) string {
	name := writeInterrupt
	if i > 0 {
		name = fmt.Sprintf("%s:%d", writeInterrupt, i)
	}
	return uuidOf(checkpoint, name)
}

// lastNode returns the node that updated the state last; "" when there were several.
func (l *loop) lastNode() string {
	if len(l.g.order) == 1 {
		return l.g.order[0]
	}
	best, second, name := "", "", ""
	any := false
	for node, versions := range l.cp.seen {
		for _, v := range versions {
			if v == "" {
				continue
			}
			any = true
			if l.g.nodes[node] == nil {
				continue
			}
			switch {
			case best == "" || newer(v, best) || v == best && node > name:
				best, second, name = v, best, node
			case second == "" || newer(v, second):
				second = v
			}
		}
	}
	if !any {
		if l.g.nodes[START] != nil {
			return START
		}
		return ""
	}
	if best == second {
		return ""
	}
	return name
}
