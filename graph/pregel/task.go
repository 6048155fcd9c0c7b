package pregel

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
)

// task is one execution of a node within a step.
type task struct {
	id       string
	name     string
	ns       string // its checkpoint namespace: that of a subgraph in it
	path     taskPath
	pathText string
	triggers []string
	input    *value
	node     *node
	call     *call // a functional task; it holds the input
	timeout  time.Duration
	scratch  *scratchpad

	mu     sync.Mutex // guards writes while the task runs
	writes []write
	parent *task  // whose function called this one
	under  uint64 // span of that call; 0: none
	span   *span  // nil: events are not read
	meta   []byte
}

// hidden reports whether the task is left out of all events.
func (t *task) hidden() bool { return t.node != nil && t.node.hidden }

func (t *task) shownTriggers(b []byte) []byte {
	b = append(b, '[')
	for i, s := range t.triggers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, s)
	}
	return append(b, ']')
}

// scratchpad holds the answers to a task's interrupts.
type scratchpad struct {
	l      *loop
	parent *scratchpad

	mu         sync.Mutex
	resume     []*value // answers, in order
	interrupts int
	calls      int
	subgraphs  int
	nullResume bool // the checkpoint has an answer for the first interrupt
	// again answers, by its ID, the question at againAt, which has an answer already: it counts if that one does not fit.
	again   *value
	againAt int
}

func (l *loop) newScratchpad(taskID, ns string, a answers) *scratchpad {
	s := &scratchpad{l: l, parent: l.scratch, nullResume: a.forAny}
	if v := a.byTask[taskID]; v != nil {
		if items, ok := v.list(); ok {
			s.resume = slices.Clone(items)
		} else {
			s.resume = []*value{v}
		}
	}
	if len(l.x.resumeMap) > 0 && !l.pending.empty() {
		if v, ok := l.x.resumeMap[interruptID(ns, len(s.resume))]; ok {
			s.resume = append(s.resume, v)
		} else if v, ok := l.x.resumeMap[interruptID(ns, 0)]; ok {
			s.resume = append(s.resume, v)
		} else {
			for at := 1; at < len(s.resume); at++ {
				if v, ok := l.x.resumeMap[interruptID(ns, at)]; ok {
					s.again, s.againAt = v, at
				}
			}
		}
	}
	return s
}

// takeNullResume returns, once, the answer for the first interrupt without an answer of its own; nil when there is none.
func (s *scratchpad) takeNullResume() *value {
	if !s.nullResume {
		if s.parent != nil {
			return s.parent.takeNullResume()
		}
		return nil
	}
	return s.l.pending.takeAnswer()
}

// taskNS returns the namespace of a task.
func (l *loop) taskNS(name, id string) string {
	if l.ns == "" {
		return name + ":" + id
	}
	return l.ns + "|" + name + ":" + id
}

func (l *loop) nodeNS(name string) string {
	if l.ns == "" {
		return name
	}
	return l.ns + "|" + name
}

// triggered reports whether one of a node's triggers has changed since its last run.
func (l *loop) triggered(n *node) bool {
	seen, ran := l.cp.seen[n.name]
	for _, t := range n.triggers {
		i := l.g.chanIndex[t]
		if !l.chans[i].available() {
			continue
		}
		if !ran || newer(l.cp.versions[i], seen[t]) {
			return true
		}
	}
	return false
}

// candidates returns the nodes that may have been triggered, in the order of their tasks.
func (l *loop) candidates(last changes) []string {
	if last.known && len(last.channels) > 0 {
		var names []string
		for _, u := range last.channels {
			if i, ok := l.g.chanIndex[u]; ok {
				names = append(names, l.g.chans[i].triggers...)
			}
		}
		if len(names) > 1 {
			slices.Sort(names)
			names = slices.Compact(names)
		}
		return names
	}
	if !l.cp.written() {
		return nil
	}
	return l.g.order
}

// prepare returns the tasks of the next step: first Sends, then nodes that were triggered.
func (l *loop) prepare(last changes) []*task {
	var tasks []*task
	waiting := l.pending.answers()
	if c := l.chans[l.g.tasksChan]; c.available() {
		items, _ := c.get().list()
		ignored := 0
		for i, item := range items {
			if t := l.prepareSend(i, item, waiting); t != nil {
				tasks = append(tasks, t)
			} else if ignored++; ignored == 1 {
				l.x.log.Warn("Sends to unknown nodes are ignored in this step", "first", short(item.JSON()))
			}
		}
	}
	step := strconv.Itoa(l.step)
	var inputs map[*schema]*value
	for _, name := range l.candidates(last) {
		n := l.g.nodes[name]
		if !l.triggered(n) {
			continue
		}
		t := &task{name: name, node: n, path: taskPath{kind: pull, node: name}, triggers: n.triggers, timeout: n.timeout}
		parts := append(make([]string, 0, 4+len(n.triggers)), l.nodeNS(name), step, name, pull)
		t.id = taskID(l.cp.idBytes, l.cp.v <= 1, append(parts, n.triggers...)...)
		t.ns = l.taskNS(name, t.id)
		t.scratch = l.newScratchpad(t.id, t.ns, waiting)
		if n.bare != "" {
			if t.input = l.chans[l.g.chanIndex[n.bare]].get(); t.input == nil {
				continue
			}
		} else if t.input = inputs[n.schema]; t.input == nil {
			t.input = l.read(n.keys)
			if len(l.g.managed) == 0 { // shared by nodes of the step with the same keys
				if inputs == nil {
					inputs = map[*schema]*value{}
				}
				inputs[n.schema] = t.input
			}
		}
		t.pathText = t.path.text()
		tasks = append(tasks, t)
	}
	return tasks
}

var pushTrigger = []string{push}

// prepareSend makes the task of a Send; nil when its node is unknown.
func (l *loop) prepareSend(i int, item *value, waiting answers) *task {
	name, arg, timeout, ok := sendOf(item)
	n := l.g.nodes[name]
	if !ok || n == nil {
		return nil
	}
	t := &task{name: name, node: n, path: taskPath{kind: push, index: i}, triggers: pushTrigger, input: arg, timeout: n.timeout}
	if timeout > 0 {
		t.timeout = timeout
	}
	t.id = taskID(l.cp.idBytes, l.cp.v <= 1, l.nodeNS(name), strconv.Itoa(l.step), name, push, strconv.Itoa(i))
	t.ns = l.taskNS(name, t.id)
	t.scratch = l.newScratchpad(t.id, t.ns, waiting)
	t.pathText = t.path.text()
	return t
}

// sendOf reads a Send of a run, or of a checkpoint.
func sendOf(v *value) (node string, arg *value, timeout time.Duration, ok bool) {
	if v.kind == ofGo {
		s, ok := v.goVal.(Send)
		if !ok {
			return "", nil, 0, false
		}
		return s.Node, s.Arg.(*value), s.Timeout, true
	}
	if v.kind == ofPack {
		if node, arg, ok := splitSend(*v.pack.Load()); ok {
			return node, fromPack(arg), 0, true
		}
	}
	return "", nil, 0, false
}

// read returns the values of the keys that are not empty.
func (l *loop) read(keys []string) *value {
	fields := make([]field, 0, len(keys))
	for _, key := range keys {
		if i, ok := l.g.chanIndex[key]; ok {
			if v := l.chans[i].get(); v != nil {
				fields = append(fields, field{key, v})
			}
		}
	}
	return fromFields(l.managed(keys, fields))
}

// managed appends the managed values among the keys.
func (l *loop) managed(keys []string, fields []field) []field {
	for _, key := range keys {
		switch l.g.managed[key] {
		case managedLastStep:
			fields = append(fields, field{key, fromGo(l.step == l.stop-1)})
		case managedRemaining:
			fields = append(fields, field{key, fromGo(l.stop - l.step)})
		}
	}
	return fields
}

// values returns the state as values shows it.
func (l *loop) values() *value {
	if l.g.bareOut {
		v := l.chans[l.g.chanIndex[l.g.out[0]]].get()
		if v == nil {
			return null
		}
		return v
	}
	return l.read(l.outKeys)
}

// interruptIDOf reads the id of a stored interrupt.
func interruptIDOf(v *value) string {
	if v.kind == ofGo {
		if i, ok := v.goVal.(interrupt); ok {
			return i.id
		}
	}
	return gjson.GetBytes(v.JSON(), "id").String()
}

func (l *loop) key() checkpointer.Key {
	return checkpointer.Key{Thread: l.x.thread, NS: l.ns, ID: checkpointID(l.cp.id)}
}

func (l *loop) contextErr() error { return context.Cause(l.ctx) }
