package pregel

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// showsAny reports whether one of the channels is part of values.
func (l *loop) showsAny(updated []string) bool {
	return slices.ContainsFunc(updated, func(u string) bool { return slices.Contains(l.outKeys, u) })
}

// writesOut reports whether a task of the step wrote a key that values shows.
func (l *loop) writesOut() bool {
	for _, t := range l.tasks {
		for _, w := range t.writes {
			if slices.Contains(l.outKeys, w.channel) {
				return true
			}
		}
	}
	return false
}

// showValues emits the state when no checkpoint comes with it.
func (l *loop) showValues() {
	l.hadValues = true
	l.showSettledID()
	if l.emits() && l.x.modes.values {
		l.emitSettled(l.values().JSON())
	}
}

// emitSettled emits values that belong to no coming checkpoint, after those that are still waiting for their commit.
func (l *loop) emitSettled(data []byte) {
	var held <-chan struct{}
	if l.ns == "" && l.x.saves != nil && l.x.durability != durabilityExit {
		held = l.x.saves.last()
	}
	l.emitValues(data, held, "")
}

func (l *loop) showTasks(tasks []*task) {
	if !l.emits() || !l.x.modes.tasks && !l.x.modes.debug {
		return
	}
	for _, t := range tasks {
		if t.hidden() {
			continue
		}
		b := append(make([]byte, 0, 256), `{"id":"`...)
		b = append(b, t.id...)
		b = append(appendQuoted(append(b, `","name":`...), t.name), `,"input":`...)
		b = append(b, t.input.JSON()...)
		b = t.shownTriggers(append(b, `,"triggers":`...))
		if md := l.taskMetadata(t); len(md) > 2 {
			b = append(append(b, `,"metadata":`...), md...)
		}
		b = append(b, '}')
		if l.x.modes.tasks {
			l.emit("tasks", b)
		}
		if l.x.modes.debug {
			l.emitDebug("task", l.step, b)
		}
	}
}

// showWrites emits the events of a task's writes.
func (l *loop) showWrites(id string, writes []write, cached bool) {
	t := l.byID[id]
	if t == nil || t.hidden() || !l.emits() {
		return
	}
	m := l.x.modes
	switch {
	case writes[0].channel == writeInterrupt:
		if t.call != nil {
			return // shown by the task that called it
		}
		if m.updates || m.values {
			shown := interruptsJSON(writes)
			if m.updates {
				l.emit("updates", append(append([]byte(`{"__interrupt__":`), shown...), '}'))
			}
			if m.values {
				l.emitSettled(l.valuesWith(shown))
			}
		}
	case writes[0].channel != writeError:
		if m.updates {
			l.emit("updates", l.updateJSON(t, writes, cached))
		}
	}
	if !cached && (m.tasks || m.debug) {
		b := l.resultJSON(t, writes)
		if m.tasks {
			l.emit("tasks", b)
		}
		if m.debug {
			l.emitDebug("task_result", l.step, b)
		}
	}
}

// interruptsJSON returns the interrupts among writes as a list.
func interruptsJSON(writes []write) []byte {
	b := []byte{'['}
	for _, w := range writes {
		if w.channel != writeInterrupt {
			continue
		}
		items, ok := w.v.list()
		if !ok {
			items = []*value{w.v}
		}
		for _, i := range items {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(b, i.JSON()...)
		}
	}
	return append(b, ']')
}

// valuesWith returns the state with the interrupts added.
func (l *loop) valuesWith(interrupts []byte) []byte {
	if l.g.bareOut {
		return append(append([]byte(`{"__interrupt__":`), interrupts...), '}')
	}
	b := slices.Clone(l.values().JSON())
	b = b[:len(b)-1]
	if len(b) > 1 {
		b = append(b, ',')
	}
	return append(append(append(b, `"__interrupt__":`...), interrupts...), '}')
}

// updateJSON returns the `updates` payload of a task.
func (l *loop) updateJSON(t *task, writes []write, cached bool) []byte {
	b := append(appendQuoted([]byte{'{'}, t.name), ':')
	if i := slices.IndexFunc(writes, func(w write) bool { return w.channel == writeReturn }); i >= 0 {
		b = append(b, writes[i].v.JSON()...)
	} else {
		b = l.updatesJSON(b, writes)
	}
	if cached {
		b = append(b, `,"__metadata__":{"cached":true}`...)
	}
	return append(b, '}')
}

func (l *loop) updatesJSON(b []byte, writes []write) []byte {
	var shown []write
	twice := false
	for _, w := range writes {
		if slices.Contains(l.outKeys, w.channel) {
			twice = twice || slices.ContainsFunc(shown, func(o write) bool { return o.channel == w.channel })
			shown = append(shown, w)
		}
	}
	if len(shown) == 0 {
		return append(b, "null"...)
	}
	if l.g.bareOut {
		if len(shown) == 1 {
			return append(b, shown[0].v.JSON()...)
		}
		b = append(b, '[')
		for i, w := range shown {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, w.v.JSON()...)
		}
		return append(b, ']')
	}
	if !twice {
		b = append(b, '{')
		for i, w := range shown {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, w.channel), ':')
			b = append(b, w.v.JSON()...)
		}
		return append(b, '}')
	}
	b = append(b, '[')
	for i, w := range shown {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(append(b, '{'), w.channel), ':')
		b = append(append(b, w.v.JSON()...), '}')
	}
	return append(b, ']')
}

// resultJSON returns the `tasks` payload of a task that ended.
func (l *loop) resultJSON(t *task, writes []write) []byte {
	b := append(make([]byte, 0, 256), `{"id":"`...)
	b = append(b, t.id...)
	b = append(appendQuoted(append(b, `","name":`...), t.name), `,"error":`...)
	if i := slices.IndexFunc(writes, func(w write) bool { return w.channel == writeError }); i >= 0 {
		b = append(b, writes[i].v.JSON()...)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"result":`...)
	b = foldedWrites(b, writes, l.g.out, true)
	b = append(b, `,"interrupts":`...)
	return append(append(b, interruptsJSON(writes)...), '}')
}

// foldedWrites returns the writes to the named keys by channel. Several writes to a channel form a list under $writes.
func foldedWrites(b []byte, writes []write, keys []string, withReturn bool) []byte {
	type group struct {
		name   string
		values []*value
	}
	var groups []group
	for _, w := range writes {
		if !slices.Contains(keys, w.channel) && !(withReturn && w.channel == writeReturn) {
			continue
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.name == w.channel })
		if i < 0 || len(groups[i].values) == 1 && groups[i].values[0].isNull() {
			if i < 0 {
				groups = append(groups, group{name: w.channel})
				i = len(groups) - 1
			}
			groups[i].values = []*value{w.v}
			continue
		}
		groups[i].values = append(groups[i].values, w.v)
	}
	b = append(b, '{')
	for i, g := range groups {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, g.name), ':')
		if len(g.values) == 1 {
			b = append(b, g.values[0].JSON()...)
			continue
		}
		b = append(b, `{"$writes":[`...)
		for j, v := range g.values {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, v.JSON()...)
		}
		b = append(b, "]}"...)
	}
	return append(b, '}')
}

// showID emits the id of the current checkpoint, before the values that it has, unless it was emitted. held and at are those of the values.
func (l *loop) showID(held <-chan struct{}, at id.Checkpoint) {
	if !l.x.modes.ids || !l.emits() || !l.keeps || l.x.durability == durabilityExit || l.shownID == l.cp.id {
		return
	}
	l.shownID = l.cp.id
	b := appendQuoted([]byte(`{"id":`), l.cp.id)
	if l.lineage.prevParent != "" {
		b = appendQuoted(append(b, `,"parent_id":`...), l.lineage.prevParent)
	}
	metadata := l.ownMetadata(nil)
	for _, key := range []string{"step", "source"} {
		value := jsonscan.Raw(metadata, key)
		if value == nil {
			value = []byte("null")
		}
		b = append(append(append(append(b, `,"`...), key...), `":`...), value...)
	}
	e := graph.Event{Name: graph.ModeIDs, NS: l.ns, Data: append(b, '}')}
	if l.ns == "" {
		e.Hold, e.Checkpoint = held, at
	}
	l.x.out.push(l.x.ctx, e)
}

// showSettledID is showID where no values of the checkpoint come.
func (l *loop) showSettledID() {
	var held <-chan struct{}
	if l.ns == "" && l.x.saves != nil {
		held = l.x.saves.last()
	}
	l.showID(held, "")
}

// showCheckpoint emits the checkpoint at the beginning of the step.
func (l *loop) showCheckpoint() {
	l.showSettledID()
	if !l.emits() || !l.keeps || !l.x.modes.checkpoints && !l.x.modes.debug {
		return
	}
	b := append(make([]byte, 0, 1024), `{"config":`...)
	b = l.configJSON(b, l.cp.id)
	b = append(b, `,"parent_config":`...)
	parent := l.lineage.prevParent
	if parent == "" {
		b = append(b, "null"...)
	} else {
		b = l.configJSON(b, parent)
	}
	b = append(b, `,"values":`...)
	if l.g.bareOut {
		b = append(b, l.values().JSON()...)
	} else {
		b = append(b, l.read(l.g.out).JSON()...)
	}
	b = append(b, `,"metadata":`...)
	b = l.ownMetadata(b)
	b = append(b, `,"next":[`...)
	for i, t := range l.tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, t.name)
	}
	b = append(b, `],"tasks":[`...)
	all := l.pending.statuses("")
	for i, t := range l.tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = l.checkpointTask(b, t, all[t.id], false)
	}
	payload := append(b, "]}"...)
	if l.x.modes.checkpoints {
		l.emit("checkpoints", payload)
	}
	if l.x.modes.debug {
		l.emitDebug("checkpoint", l.step-1, l.debugCheckpoint(payload, all, parent))
	}
}

// debugCheckpoint returns the debug payload of a checkpoint: bare references in addition to its configurations.
func (l *loop) debugCheckpoint(payload []byte, all map[string]*taskStatus, parent string) []byte {
	at := strings.LastIndex(string(payload), `,"tasks":[`)
	b := slices.Clone(payload[:at+len(`,"tasks":[`)])
	for i, t := range l.tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = l.checkpointTask(b, t, all[t.id], true)
	}
	b = append(b, `],"checkpoint":`...)
	b = l.reference(b, l.cp.id)
	b = append(b, `,"parent_checkpoint":`...)
	if parent == "" {
		b = append(b, "null"...)
	} else {
		b = l.reference(b, parent)
	}
	return append(b, '}')
}

func (l *loop) reference(b []byte, id string) []byte {
	b = append(b, `{"checkpoint_id":`...)
	b = appendQuoted(b, id)
	b = append(b, `,"thread_id":`...)
	b = appendQuoted(b, string(l.x.thread))
	b = append(b, `,"checkpoint_ns":`...)
	b = appendQuoted(b, l.ns)
	if len(l.meta.parents) > 0 {
		b = append(b, `,"checkpoint_map":`...)
		b = l.checkpointMap(b, id)
	}
	return append(b, '}')
}

func (l *loop) checkpointMap(b []byte, id string) []byte {
	m := append(slices.Clone(l.meta.parents), field{l.ns, fromString(id)})
	return appendFields(b, m)
}

// configJSON returns the configuration of a checkpoint in the form of events.
func (l *loop) configJSON(b []byte, id string) []byte {
	b = append(b, `{"configurable":{`...)
	first := true
	gjson.GetBytes(l.x.config, "configurable").ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map":
			return true
		}
		if strings.HasPrefix(k.Str, "__pregel_") {
			return true
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(b, k.Raw...), ':')
		b = append(b, v.Raw...)
		return true
	})
	if !first {
		b = append(b, ',')
	}
	b = append(b, `"thread_id":`...)
	b = appendQuoted(b, string(l.x.thread))
	b = append(b, `,"checkpoint_ns":`...)
	b = appendQuoted(b, l.ns)
	b = append(b, `,"checkpoint_id":`...)
	b = appendQuoted(b, id)
	if len(l.meta.parents) > 0 {
		b = append(b, `,"checkpoint_map":`...)
		b = l.checkpointMap(b, id)
	}
	return append(b, "}}"...)
}

func (l *loop) ownMetadata(b []byte) []byte {
	if l.meta.raw != nil {
		return append(b, compact(l.meta.raw)...)
	}
	b = append(b, `{"source":`...)
	b = appendQuoted(b, l.meta.source)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, int64(l.meta.step), 10)
	b = append(b, `,"parents":`...)
	return append(appendFields(b, l.meta.parents), '}')
}

// checkpointTask appends a task of a checkpoint in the form of events.
func (l *loop) checkpointTask(b []byte, t *task, s *taskStatus, debug bool) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, t.id...)
	b = append(appendQuoted(append(b, `","name":`...), t.name), ',')
	state := `"state":null`
	if t.node != nil && t.node.keepsState() {
		config := append([]byte(`{"thread_id":`), appendQuoted(nil, string(l.x.thread))...)
		config = append(append(config, `,"checkpoint_ns":`...), appendQuoted(nil, t.ns)...)
		config = append(config, '}')
		state = `"state":{"configurable":` + string(config) + `}`
		if debug {
			state = `"checkpoint":` + string(config)
		}
	}
	if s != nil && s.failed != nil && !s.failed.isNull() {
		b = append(b, `"error":`...)
		b = append(b, s.failed.JSON()...)
		return append(append(append(b, ','), state...), '}')
	}
	interrupts := []byte("[]")
	if s != nil {
		interrupts = []byte{'['}
		for i, v := range s.interrupts {
			if i > 0 {
				interrupts = append(interrupts, ',')
			}
			interrupts = append(interrupts, v.JSON()...)
		}
		interrupts = append(interrupts, ']')
		if s.finished() {
			if result := l.resultOf(s.output); len(result) > 2 && string(result) != "null" {
				b = append(append(append(b, `"result":`...), result...), ',')
			}
		}
	}
	b = append(append(append(b, `"interrupts":`...), interrupts...), ',')
	return append(append(b, state...), '}')
}

// resultOf returns the writes of a finished task in the form of checkpoint events: LangGraph shows values of all keys there, and results
// of output keys.
func (l *loop) resultOf(output []write) []byte {
	if i := slices.IndexFunc(output, func(w write) bool { return w.channel == writeReturn }); i >= 0 {
		return output[i].v.JSON()
	}
	if l.g.bareOut {
		folded := gjson.ParseBytes(foldedWrites(nil, output, l.outKeys, false)).Get(gjson.Escape(l.outKeys[0]))
		if !folded.Exists() {
			return jsonNull
		}
		return []byte(folded.Raw)
	}
	return foldedWrites(nil, output, l.outKeys, false)
}
