package pregel

import (
	"cmp"
	"slices"
)

// input is what a run starts with.
type input struct {
	given   bool
	v       *value
	command *commandInput
}

// startKind says how a loop continues from the checkpoint that it loaded.
type startKind int

const (
	startFresh   startKind = iota // with an input
	startResume                   // where the checkpoint stopped
	startFork                     // as startResume, on a branch of its own: the checkpoint has a successor already, or may get one
	startPassive                  // a subgraph without input, in a run that began otherwise: it does what the checkpoint says
	startEmpty                    // without input or checkpoint: an error
)

// start is how a loop starts.
type start struct {
	kind startKind
	// replays: the caller named a checkpoint, and does not answer an interrupt of it. What it answered before does not count.
	replays bool
	// byClient: the checkpoint is a state update or a fork.
	byClient bool
}

func (s start) resumes() bool { return s.kind == startResume || s.kind == startFork }

// startOf decides the kind of start.
func (l *loop) startOf(in input) start {
	s := start{byClient: l.byClient()}
	named := l.addressed != "" || l.nested && l.x.replay != nil
	inMap := slices.ContainsFunc(l.above, func(f field) bool { return f.name == l.ns })
	answers := in.command != nil && in.command.resume != nil || l.resuming != nil && *l.resuming
	s.replays = named && (l.nested && inMap || !answers)

	resumes := !in.given || in.command != nil || !l.nested && l.x.run != "" && l.meta.run == string(l.x.run)
	if l.resuming != nil { // the graph around it has decided
		resumes = *l.resuming
	}
	switch {
	case resumes && l.cp.written() && s.replays && (!s.byClient || l.superseded):
		s.kind = startFork
	case resumes && l.cp.written():
		s.kind = startResume
	case in.given:
		s.kind = startFresh
	case l.resuming != nil:
		s.kind = startPassive
	default:
		s.kind = startEmpty
	}
	return s
}

func (l *loop) byClient() bool {
	return l.meta.source == sourceUpdate || l.meta.source == sourceFork
}

// first prepares the first step: LangGraph's _first.
func (l *loop) first(in input) error {
	s := l.startOf(in)
	l.replaying = s.replays || l.superseded
	if s.replays {
		l.pending.forget(writeResume)
	}
	var carried []write
	if in.command != nil {
		var err error
		if carried, err = l.command(in.command, s.kind == startFork); err != nil {
			return err
		}
	}
	changed := l.cp.changed
	changed.known = len(changed.channels) > 0
	more, err := l.applyNulls(carried)
	if err != nil {
		return err
	}
	if changed.known && len(more) > 0 {
		changed.channels = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(changed.channels), more...))))
	}
	bound := "" // of the replay
	switch s.kind {
	case startFresh:
		if err := l.startFresh(in, changed); err != nil {
			return err
		}
	case startFork:
		if s.byClient {
			bound = l.lineage.prevParent
		}
		if err := l.startFork(); err != nil {
			return err
		}
		l.changed = changed
	case startResume:
		l.startResume()
		l.changed = changed
	case startPassive:
		l.changed = changed
	case startEmpty:
		return Errorf(nameEmptyInput, "Received no input for %s", START)
	}
	if l.nested {
		return nil
	}
	if s.replays {
		if bound == "" && l.byClient() {
			bound = l.lineage.prevParent
		}
		l.x.replay = &replayState{before: cmp.Or(bound, l.cp.id), visited: map[string]bool{}}
	}
	resumes := s.resumes()
	l.resuming = &resumes
	return nil
}

// applyNulls applies the writes of no task, those of the checkpoint and carried ones, and returns the channels that changed.
func (l *loop) applyNulls(carried []write) (updated []string, err error) {
	writes := append(nulls(l.pending.list()), carried...)
	if len(writes) == 0 {
		return nil, nil
	}
	return l.applyWrites([]*task{{name: writeInput, writes: writes}}, true)
}

// startFresh applies the input, in place of the tasks that the checkpoint would have next, and saves it.
func (l *loop) startFresh(in input, last changes) error {
	v := in.v
	if in.command != nil { // no checkpoint to resume: the Command is the input of the thread
		v = &value{kind: ofGo, goVal: in.command}
	}
	var all []*task
	if l.cp.written() {
		all = l.prepare(last)
	}
	all = append(all, &task{name: writeInput, writes: []write{{START, v}}})
	updated, err := l.applyWrites(all, true)
	if err != nil {
		return err
	}
	l.changed = changes{channels: updated, known: true}
	_, err = l.put(sourceInput, false)
	return err
}

// startResume notes that no channel has news for an interrupt before a node.
func (l *loop) startResume() {
	l.seeInterrupt()
	l.showValues()
}

// startFork is startResume on a new checkpoint, without the interrupts of the one it copies.
func (l *loop) startFork() error {
	l.seeInterrupt()
	l.pending.forget(writeInterrupt)
	if _, err := l.put(sourceFork, false); err != nil {
		return err
	}
	l.showValues()
	return nil
}

func (l *loop) seeInterrupt() {
	for i := range l.g.chans {
		if v := l.cp.versions[i]; v != "" {
			l.cp.see(writeInterrupt, l.g.chans[i].name, v)
		}
	}
	if l.cp.seen[writeInterrupt] == nil {
		l.cp.seen[writeInterrupt] = map[string]string{}
	}
}

// command turns a Command into writes. With forks they are only returned, because the run saves them with its fork.
func (l *loop) command(c *commandInput, forks bool) ([]write, error) {
	if c.invalid != nil {
		return nil, c.invalid
	}
	isMap := false
	if c.resume != nil {
		if !l.keeps {
			return nil, Errorf("RuntimeError", "Cannot use Command(resume=...) without checkpointer")
		}
		fields, ok := c.resume.object()
		isMap = ok && !slices.ContainsFunc(fields, func(f field) bool { return !isInterruptID(f.name) })
		waiting := l.waiting()
		l.unasked = waiting == 0
		if l.unasked && !l.cp.written() {
			l.warnUnasked()
		}
		if isMap {
			l.x.resumeMap = map[string]*value{}
			for _, f := range fields {
				l.x.resumeMap[f.name] = f.v
			}
		} else if waiting > 1 {
			return nil, Errorf("RuntimeError", "When there are multiple pending interrupts, you must specify the interrupt id when resuming. "+
				"Docs: https://docs.langchain.com/oss/python/langgraph/interrupts#handling-multiple-interrupts.")
		}
	}
	writes := slices.Clone(c.gotos)
	if c.resume != nil && !isMap {
		writes = append(writes, write{writeResume, c.resume})
	}
	for _, f := range c.update {
		v := f.v
		writes = append(writes, write{f.name, v})
	}
	if len(writes) == 0 {
		if isMap {
			return nil, nil
		}
		return nil, Errorf(nameEmptyInput, "Received empty Command input")
	}
	if !forks {
		return nil, l.putWrites(nullTask, writes, false)
	}
	return writes, nil
}

// warnUnasked reports, once, an answer without a question. As in LangGraph it is no error, and the first question of this run takes it.
func (l *loop) warnUnasked() {
	l.unasked = false
	l.x.log.Warn("an answer came to a thread on which no question waits; only a question of this run takes it",
		"fix", "resume the thread that asked, while it waits: its questions are in Result.Interrupts, or in the interrupts of its state")
}

// waiting returns the number of unanswered interrupts.
func (l *loop) waiting() int {
	ids := map[string]bool{}
	for _, s := range l.pending.statuses("") {
		if s.finished() {
			continue
		}
		for _, i := range s.interrupts {
			ids[interruptIDOf(i)] = true
		}
	}
	return len(ids)
}
