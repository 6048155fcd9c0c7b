package pregel

import (
	"slices"
	"sync"
)

// pendingWrite is a write on a checkpoint that its step has not applied yet.
type pendingWrite struct {
	task    string
	channel string
	v       *value
}

// pendingWrites are those of one checkpoint, in the order in which they were made: tasks add theirs while others run. Its methods are safe for concurrent
// use. The zero value has none.
type pendingWrites struct {
	mu      sync.Mutex
	writes  []pendingWrite  // appended to, and otherwise replaced: list hands it out
	tasks   map[string]bool // those that have some
	written map[string]bool // tasks that added some in this run, to this checkpoint or to one before
}

// reset begins a run on a checkpoint that has these writes.
func (p *pendingWrites) reset(writes []pendingWrite) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes, p.tasks, p.written = writes, make(map[string]bool, len(writes)), map[string]bool{}
	for _, w := range writes {
		p.tasks[w.task] = true
	}
}

// applied drops all writes: the next checkpoint has them in its values.
func (p *pendingWrites) applied() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = nil
	clear(p.tasks)
}

// list returns the writes as they are now. It is not to be changed.
func (p *pendingWrites) list() []pendingWrite {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

func (p *pendingWrites) empty() bool { return len(p.list()) == 0 }

// add adds the writes of a task in place of those that it made before, and returns those to store, which are in place of all its stored ones. The writes of
// no task stay, but for answers and the like, of which there is one each.
func (p *pendingWrites) add(id string, writes []write) (stored []write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks == nil {
		p.tasks, p.written = map[string]bool{}, map[string]bool{}
	}
	p.written[id] = true
	if !slices.ContainsFunc(writes, func(w write) bool { return !special(w.channel) }) {
		writes = lastOfEach(writes)
	}
	stored = writes
	if id == nullTask {
		p.drop(func(w pendingWrite) bool { return w.task == id && special(w.channel) })
		ordinary := slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return special(w.channel) })
		specials := slices.DeleteFunc(slices.Clone(writes), func(w write) bool { return !special(w.channel) })
		writes = append(ordinary, specials...)
		stored = append(nulls(p.writes), writes...)
	} else if p.tasks[id] {
		p.drop(func(w pendingWrite) bool { return w.task == id })
	}
	p.tasks[id] = true
	for _, w := range writes {
		p.writes = append(p.writes, pendingWrite{id, w.channel, w.v})
	}
	return stored
}

// special reports whether a channel is one of LangGraph's own, to which a task writes once.
func special(channel string) bool {
	_, is := specialIndex(channel)
	return is
}

// lastOfEach returns, of each channel, the last write, in the place of the first.
func lastOfEach(writes []write) []write {
	out := make([]write, 0, len(writes))
	for _, w := range writes {
		if i := slices.IndexFunc(out, func(o write) bool { return o.channel == w.channel }); i >= 0 {
			out[i] = w
		} else {
			out = append(out, w)
		}
	}
	return out
}

// drop drops the writes that gone selects. The caller holds mu.
func (p *pendingWrites) drop(gone func(pendingWrite) bool) {
	p.writes = slices.DeleteFunc(slices.Clone(p.writes), gone)
}

// forget drops the writes to a channel.
func (p *pendingWrites) forget(channel string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(func(w pendingWrite) bool { return w.channel == channel })
}

// nulls returns the writes of no task: those of a Command.
func nulls(pending []pendingWrite) (writes []write) {
	for _, w := range pending {
		if w.task == nullTask {
			writes = append(writes, write{w.channel, w.v})
		}
	}
	return writes
}

// ofThisRun returns the writes of each task that wrote in this run, in the order of the first write of each.
func (p *pendingWrites) ofThisRun() (tasks []string, writes map[string][]write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	writes = map[string][]write{}
	for _, w := range p.writes {
		if !p.written[w.task] {
			continue
		}
		if writes[w.task] == nil {
			tasks = append(tasks, w.task)
		}
		writes[w.task] = append(writes[w.task], write{w.channel, w.v})
	}
	return tasks, writes
}

// answers are the answers stored with a checkpoint.
type answers struct {
	forAny bool // one for the first interrupt
	byTask map[string]*value
}

func (p *pendingWrites) answers() (a answers) {
	for _, w := range p.list() {
		switch {
		case w.channel != writeResume:
		case w.task == nullTask:
			a.forAny = true
		case a.byTask[w.task] == nil:
			if a.byTask == nil {
				a.byTask = map[string]*value{}
			}
			a.byTask[w.task] = w.v
		}
	}
	return a
}

// takeAnswer returns, once, the answer for the first interrupt without an answer of its own; nil when there is none.
func (p *pendingWrites) takeAnswer() *value {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.writes {
		if w.task == nullTask && w.channel == writeResume {
			p.writes = slices.Delete(slices.Clone(p.writes), i, i+1)
			return w.v
		}
	}
	return nil
}

// taskStatus is the progress of a task, read from pending writes.
type taskStatus struct {
	output     []write
	interrupts []*value
	failed     *value
}

func (s *taskStatus) finished() bool { return len(s.output) > 0 }

// statuses returns the progress of the tasks that have pending writes, by their ids; of a single task, if only is its id.
func (p *pendingWrites) statuses(only string) map[string]*taskStatus {
	out := map[string]*taskStatus{}
	for _, w := range p.list() {
		if w.task == nullTask || only != "" && w.task != only {
			continue
		}
		s := out[w.task]
		if s == nil {
			s = &taskStatus{}
			out[w.task] = s
		}
		switch {
		case w.channel == writeInterrupt:
			if items, ok := w.v.list(); ok {
				s.interrupts = append(s.interrupts, items...)
			} else {
				s.interrupts = append(s.interrupts, w.v)
			}
		case w.channel == writeError:
			if s.failed == nil {
				s.failed = w.v
			}
		case !controlWrite(w.channel):
			s.output = append(s.output, write{w.channel, w.v})
		}
	}
	return out
}
