package pregel

import "slices"

// input is what a run starts with.
type input struct {
	given   bool
	v       *value
	command *commandInput
}

// first prepares the first step: LangGraph's _first.
func (l *loop) first(in input) error {
	resumeFlag := !in.given || in.command != nil || !l.nested && l.x.run != "" && l.meta.run == string(l.x.run)
	if l.resuming != nil {
		resumeFlag = *l.resuming
	}
	resuming := l.cp.written() && resumeFlag
	isAddressed := l.addressed != "" || l.nested && l.x.replay != nil
	inMap := slices.ContainsFunc(l.above, func(f field) bool { return f.name == l.ns })
	traveling := isAddressed && (l.nested && inMap ||
		!(in.command != nil && in.command.resume != nil || l.resuming != nil && *l.resuming))
	l.replaying = traveling || l.superseded
	if traveling {
		l.pending = slices.DeleteFunc(l.pending, func(w pendingWrite) bool { return w.channel == writeResume })
	}
	ownUpdate := l.meta.source == sourceUpdate || l.meta.source == sourceFork
	forks := resuming && traveling && (!ownUpdate || l.superseded)
	replayBound := ""
	var carried []pendingWrite
	updated, known := l.cp.updated, l.cp.hasUpdated && len(l.cp.updated) > 0

	if in.command != nil {
		var err error
		if carried, err = l.command(in.command, forks); err != nil {
			return err
		}
	}
	var nulls []write
	for _, w := range l.pending {
		if w.task == nullTask {
			nulls = append(nulls, write{w.channel, w.v})
		}
	}
	for _, w := range carried {
		nulls = append(nulls, write{w.channel, w.v})
	}
	if len(nulls) > 0 {
		more, err := l.applyWrites([]*task{{name: writeInput, writes: nulls}}, true)
		if err != nil {
			return err
		}
		if known {
			updated = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(updated), more...))))
		}
	}
	switch {
	case resuming:
		for i := range l.g.chans {
			if v := l.cp.versions[i]; v != "" {
				l.cp.see(writeInterrupt, l.g.chans[i].name, v)
			}
		}
		if l.cp.seen[writeInterrupt] == nil {
			l.cp.seen[writeInterrupt] = map[string]string{}
		}
		if forks {
			if ownUpdate && l.prevParent != "" {
				replayBound = l.prevParent
			}
			l.pending = slices.DeleteFunc(l.pending, func(w pendingWrite) bool { return w.channel == writeInterrupt })
			if _, err := l.put(sourceFork, false); err != nil {
				return err
			}
		}
		l.showValues()
		l.updated, l.known = updated, known
	case in.given:
		if in.command != nil { // no checkpoint to resume: the Command is the input of the thread
			in.v = &value{kind: ofGo, goVal: in.command}
		}
		var discarded []*task
		if l.cp.written() {
			discarded = l.prepare(updated, known)
		}
		all := append(discarded, &task{name: writeInput, writes: []write{{START, in.v}}})
		var err error
		if l.updated, err = l.applyWrites(all, true); err != nil {
			return err
		}
		l.known = true
		if _, err := l.put(sourceInput, false); err != nil {
			return err
		}
	case l.resuming == nil:
		return Errorf(nameEmptyInput, "Received no input for %s", START)
	default:
		l.updated, l.known = updated, known
	}
	if !l.nested {
		if traveling {
			before := l.cp.id
			if replayBound != "" {
				before = replayBound
			} else if (l.meta.source == sourceUpdate || l.meta.source == sourceFork) && l.prevParent != "" {
				before = l.prevParent
			}
			l.x.replay = &replayState{before: before, visited: map[string]bool{}}
		}
		l.resuming = &resuming
	}
	return nil
}

// command turns a Command into writes. With forks they are only returned, because the run saves them with its fork.
func (l *loop) command(c *commandInput, forks bool) ([]pendingWrite, error) {
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
		if isMap {
			l.x.resumeMap = map[string]*value{}
			for _, f := range fields {
				l.x.resumeMap[f.name] = f.v
			}
		} else if l.waiting() > 1 {
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
	carried := make([]pendingWrite, len(writes))
	for i, w := range writes {
		carried[i] = pendingWrite{nullTask, w.channel, w.v}
	}
	return carried, nil
}

// waiting returns the number of unanswered interrupts.
func (l *loop) waiting() int {
	ids := map[string]bool{}
	all, _ := statuses(l.pending, nil)
	for _, s := range all {
		if s.finished() {
			continue
		}
		for _, i := range s.interrupts {
			ids[interruptIDOf(i)] = true
		}
	}
	return len(ids)
}
