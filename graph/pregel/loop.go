package pregel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"understudy/checkpointer"
	"understudy/id"
)

// scope is what a loop runs, where, and within which limits. It is set before the loop enters, and does not change then.
type scope struct {
	g   *Graph
	x   *exec
	ctx context.Context //nolint:containedctx // of the task that the graph runs in, or of the run

	task     *task       // that the graph runs in; nil at the root
	taskStep int         // of that task
	scratch  *scratchpad // of that task
	under    uint64      // span that the graph runs in; 0: none
	// inherited is the metadata of the nodes around this graph.
	inherited []field

	ns     string
	nested bool
	above  []field // checkpoint_map: {namespace: checkpoint id} of the graphs above
	// addressed names the checkpoint to start from; "": the newest.
	addressed string
	keeps     bool // checkpoints are kept
	// outKeys are the keys that values shows; for nested graphs, the keys that they return.
	outKeys []string

	before, after []string // nodes with breakpoints
	limit         int      // steps
}

// lineage relates a loop to the checkpoints that it has loaded and saved.
type lineage struct {
	loaded     string        // id of the checkpoint that it began with
	parent     string        // id under which the next checkpoint is saved
	prevParent string        // the one before, for events
	saved      id.Checkpoint // the checkpoint that was saved last, or loaded
	versions   []string      // of channels that are stored already
	shape      string        // that the storage has
}

// changes are the channels that a step changed.
type changes struct {
	channels []string // sorted
	known    bool
}

// loop executes one graph of a run, from its start to its end: LangGraph's PregelLoop. It loads a checkpoint, and saves one after each step.
type loop struct {
	scope
	lineage lineage
	pending pendingWrites

	cp      *checkpoint
	chans   []channel
	writers [][]string // of each channel: the nodes that wrote it last in this run, for errors
	meta    savedMetadata
	changed changes // by the last step

	// resuming reports whether nested graphs resume; nil means not known.
	resuming   *bool
	replaying  bool
	superseded bool
	unasked    bool // the run began with an answer, and no question waited

	step, stop int
	tasks      []*task
	byID       map[string]*task
	ticked     bool            // there are tasks, so their writes can be shown
	stopped    *GraphInterrupt // why the run ended before its end; nil: it did not

	span      *span  // nil: events are not read
	shownID   string // the checkpoint whose id was emitted last
	hadValues bool   // values was shown, or would have been
}

var errRecursion = errors.New("recursion limit")

// enter loads the checkpoint from which the run resumes.
func (l *loop) enter() error {
	var t *checkpointer.Tuple
	var err error
	l.lineage.loaded = ""
	if l.keeps {
		key := checkpointer.Key{Thread: l.x.thread, NS: l.ns, ID: checkpointID(l.addressed)}
		switch {
		case l.addressed != "":
			if t, err = l.x.load(key); err != nil {
				return err
			}
			if t == nil {
				l.lineage.parent = l.addressed // as in LangGraph: the parent is recorded even if it was deleted
			} else {
				head, err := l.x.load(checkpointer.Key{Thread: l.x.thread, NS: l.ns})
				if err != nil {
					return err
				}
				l.superseded = head != nil && head.ID != t.ID
			}
		case l.nested && l.x.replay != nil:
			if l.x.replay.first(l.ns) {
				found, err := l.x.list(checkpointer.List{Thread: l.x.thread, NS: &l.ns, Before: checkpointID(l.x.replay.before), Limit: 1})
				if err != nil {
					return err
				}
				if len(found) > 0 {
					t = found[0]
				}
			} else if t, err = l.x.load(key); err != nil {
				return err
			}
			l.resuming = nil
		default:
			if t, err = l.x.load(key); err != nil {
				return err
			}
		}
	}
	if t == nil {
		l.cp, l.chans = emptyCheckpoint(l.g), l.g.newChannels()
		l.meta = savedMetadata{step: -2}
		l.lineage.loaded = l.cp.id
		l.pending.reset(nil)
	} else {
		s, err := l.g.load(t)
		if err != nil {
			return err
		}
		l.cp, l.chans, l.meta = s.checkpoint, s.chans, s.metadata
		l.pending.reset(s.pending)
		l.lineage = lineage{loaded: s.id, parent: s.id, prevParent: s.parent, saved: t.ID, shape: s.shape}
	}
	l.lineage.versions = slices.Clone(l.cp.versions)
	l.step = l.meta.step + 1
	l.stop = l.step + l.limit + 1
	return nil
}

// tick prepares a step. It returns false when there is none.
func (l *loop) tick() (bool, error) {
	if l.step > l.stop {
		l.prepareStep()
		return false, errRecursion
	}
	l.prepareStep()
	if len(l.tasks) == 0 {
		if l.unasked {
			l.warnUnasked()
		}
		return false, nil
	}
	l.unasked = false // a breakpoint stopped the run before
	if !l.replaying && !l.pending.empty() {
		l.reapply(l.tasks)
	}
	if len(l.before) > 0 && l.breaksAt(l.before) {
		return false, &GraphInterrupt{}
	}
	l.showTasks(l.tasks)
	for _, t := range l.tasks {
		if len(t.writes) > 0 {
			l.showWrites(t.id, t.writes, true)
		}
	}
	return true, nil
}

func (l *loop) prepareStep() {
	l.tasks = l.prepare(l.changed)
	l.byID = make(map[string]*task, len(l.tasks))
	for _, t := range l.tasks {
		l.byID[t.id] = t
	}
	l.ticked = true
	l.showCheckpoint()
}

// reapply restores the writes of tasks that finished before the run was interrupted.
func (l *loop) reapply(tasks []*task) {
	only := ""
	if len(tasks) == 1 {
		only = tasks[0].id
	}
	all := l.pending.statuses(only)
	for _, t := range tasks {
		if s := all[t.id]; s != nil {
			t.writes = append(t.writes, s.output...)
		}
	}
}

// breaksAt reports whether a breakpoint stops the run now.
func (l *loop) breaksAt(nodes []string) bool {
	seen := l.cp.seen[writeInterrupt]
	news := false
	for i := range l.g.chans {
		if v := l.cp.versions[i]; v != "" && newer(v, seen[l.g.chans[i].name]) {
			news = true
			break
		}
	}
	if !news {
		return false
	}
	for _, t := range l.tasks {
		if slices.Contains(nodes, t.name) || !t.hidden() && slices.Contains(nodes, "*") {
			return true
		}
	}
	return false
}

// afterTick ends a step.
func (l *loop) afterTick() error {
	updated, err := l.applyWrites(l.tasks, true)
	if err != nil {
		return err
	}
	l.changed = changes{channels: updated, known: true}
	l.pending.applied()
	l.replaying = false
	var data []byte
	show := l.showsAny(updated)
	if show && l.emits() && l.x.modes.values && l.writesOut() {
		data = l.values().JSON()
	}
	l.hadValues = l.hadValues || show && l.writesOut()
	held, err := l.put(sourceLoop, false)
	if err != nil {
		return err
	}
	if data != nil {
		at := id.Checkpoint("")
		if l.keeps && l.x.durability != durabilityExit {
			at = l.lineage.saved
		}
		l.showID(held, at)
		l.emitValues(data, held, at)
	}
	if len(l.after) > 0 && l.breaksAt(l.after) {
		l.prepareStep()
		return &GraphInterrupt{}
	}
	l.resuming = nil
	return nil
}

// leave ends the loop. It saves what durability exit deferred, and emits a last state after an interrupt. It returns the error to propagate.
func (l *loop) leave(cause error) error {
	var gi *GraphInterrupt
	interrupted := errors.As(cause, &gi)
	// A nested graph at its recursion limit has not failed yet: the error belongs to its task.
	failed := cause != nil && !errors.Is(cause, errRecursion)
	if l.keeps && l.x.durability == durabilityExit && (!l.nested || failed || !strings.Contains(l.ns, ":")) {
		if _, err := l.put("", true); err != nil && cause == nil {
			cause = err
		}
		if err := l.putPending(); err != nil && cause == nil {
			cause = err
		}
	}
	if !interrupted || l.nested {
		return cause
	}
	l.stopped = gi
	if l.ticked && !l.pending.empty() && slices.ContainsFunc(l.tasks, func(t *task) bool { return len(t.writes) > 0 }) {
		updated, err := l.applyWrites(l.tasks, true)
		if err != nil {
			return err
		}
		if l.showsAny(updated) && l.writesOut() && l.emits() && l.x.modes.values {
			l.emitSettled(l.values().JSON())
		}
	}
	if len(gi.interrupts) == 0 && l.emits() && l.x.modes.updates {
		l.emit("updates", []byte(`{"__interrupt__":[]}`))
	}
	return nil
}

// run runs the graph to its end, to an interrupt, or to an error.
func (l *loop) run(in input) error {
	err := l.enter()
	if err == nil {
		l.startEvents(in)
		// With durability exit the input of a run that cannot start is not saved.
		if err = l.first(in); err == nil {
			err = l.leave(l.steps())
		}
		l.endEvents(err)
	}
	if errors.Is(err, errRecursion) {
		next := make([]string, len(l.tasks))
		for i, t := range l.tasks {
			next[i] = t.place()
		}
		return &located{someOf(next), Errorf(nameRecursion, "Recursion limit of %d reached without hitting a stop condition. You can increase the limit by setting "+
			"the `recursion_limit` config key.\nFor troubleshooting, visit: "+
			"https://docs.langchain.com/oss/python/langgraph/errors/GRAPH_RECURSION_LIMIT", l.limit)}
	}
	return err
}

func (l *loop) steps() error {
	for {
		if l.ctx.Err() != nil {
			return l.contextErr()
		}
		more, err := l.tick()
		if err != nil || !more {
			return err
		}
		if err := l.runTasks(); err != nil {
			return err
		}
		if err := l.afterTick(); err != nil {
			return err
		}
		if l.x.saves != nil {
			if l.x.durability == durabilitySync && l.keeps {
				if err := l.x.saves.wait(); err != nil {
					return l.x.savingFailed(err)
				}
			} else {
				l.x.saves.throttle(l.ctx)
			}
		}
	}
}

const (
	durabilitySync  = "sync"
	durabilityAsync = "async"
	durabilityExit  = "exit"
)
