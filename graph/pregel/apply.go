package pregel

import (
	"cmp"
	"slices"
	"strings"
)

// applyWrites applies the writes of tasks to the channels, in the order of their paths, and returns the channels that changed, sorted.
func (l *loop) applyWrites(tasks []*task, versioned bool) ([]string, error) {
	if len(tasks) > 1 {
		tasks = slices.Clone(tasks)
		slices.SortStableFunc(tasks, func(a, b *task) int { return cmp.Compare(a.pathText, b.pathText) })
	}
	a := &applying{l: l, updated: make([]bool, len(l.chans))}
	bump := l.see(tasks)
	if versioned {
		a.version = nextVersion(l.cp.highest())
	}
	a.consume(tasks)
	if err := a.update(tasks); err != nil {
		return nil, err
	}
	if bump {
		if err := a.finish(); err != nil {
			return nil, err
		}
	}
	var names []string
	for i, u := range a.updated {
		if u {
			names = append(names, l.g.chans[i].name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// see notes the versions of the channels that triggered tasks, and reports whether there were any.
func (l *loop) see(tasks []*task) (triggered bool) {
	for _, t := range tasks {
		triggered = triggered || len(t.triggers) > 0
		if l.cp.seen[t.name] == nil {
			l.cp.seen[t.name] = map[string]string{}
		}
		for _, trigger := range t.triggers {
			if i, ok := l.g.chanIndex[trigger]; ok && l.cp.versions[i] != "" {
				l.cp.seen[t.name][trigger] = l.cp.versions[i]
			}
		}
	}
	return triggered
}

// applying is the application of one step's writes.
type applying struct {
	l       *loop
	version string // that channels get which change; "": they keep theirs, and do not count as updated
	updated []bool // by the index of the channel
}

func (a *applying) touch(i int, changed bool) {
	if changed && a.version != "" {
		a.l.cp.versions[i] = a.version
		a.updated[i] = a.l.chans[i].available()
	}
}

// consume empties the channels that triggered tasks, if they are of those that trigger once.
func (a *applying) consume(tasks []*task) {
	for _, t := range tasks {
		for _, trigger := range t.triggers {
			i, ok := a.l.g.chanIndex[trigger]
			if !ok || reserved[trigger] && trigger != START {
				continue
			}
			if a.l.chans[i].consume() && a.version != "" {
				a.l.cp.versions[i] = a.version
			}
		}
	}
}

// update passes each channel what tasks wrote to it.
func (a *applying) update(tasks []*task) error {
	l := a.l
	if l.writers == nil {
		l.writers = make([][]string, len(l.chans))
	}
	byChan := make([][]*value, len(l.chans))
	var order []int
	ignored := 0
	for _, t := range tasks {
		for _, w := range t.writes {
			switch w.channel {
			case writeNone, push, writeResume, writeInterrupt, writeReturn, writeError, writeErrorNode:
				continue
			}
			i, ok := l.g.chanIndex[w.channel]
			if !ok {
				if ignored++; ignored == 1 {
					l.warnUnknown(t, w.channel)
				}
				continue
			}
			if byChan[i] == nil {
				order = append(order, i)
				l.writers[i] = l.writers[i][:0]
			}
			if names := l.writers[i]; len(names) == 0 || names[len(names)-1] != t.name {
				l.writers[i] = append(names, t.name)
			}
			byChan[i] = append(byChan[i], w.v)
		}
	}
	for _, i := range order {
		changed, err := l.chans[i].update(byChan[i])
		if err != nil {
			return &unmerged{l.g.chans[i].name, l.g.chans[i].typ, l.writers[i], err}
		}
		a.touch(i, changed)
	}
	return nil
}

func (l *loop) warnUnknown(t *task, channel string) {
	if to, ok := strings.CutPrefix(channel, branchTo); ok {
		l.x.log.Warn("a node chose a node that does not exist; it is ignored", "node", t.name, "chosen", short([]byte(to)))
		return
	}
	l.x.log.Warn("writes to unknown channels are ignored in this step", "node", t.name, "first", short([]byte(channel)))
}

// finish lets channels know of the end of the step to which nothing was written, and, when nothing is triggered any more, of the end of the run.
func (a *applying) finish() error {
	l := a.l
	triggering := false
	for i := range l.chans {
		if !a.updated[i] && l.chans[i].available() {
			changed, err := l.chans[i].update(nil)
			if err != nil {
				return err
			}
			a.touch(i, changed)
		}
		triggering = triggering || a.updated[i] && len(l.g.chans[i].triggers) > 0
	}
	if !triggering {
		for i := range l.chans {
			a.touch(i, l.chans[i].finish())
		}
	}
	return nil
}
