package rows

import (
	"slices"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/compact"
	"understudy/thread"
)

// Pruning collects what a storage read of a thread for thread.Store.PlanPrune.
type Pruning struct {
	Thread id.Thread
	Rows   []PruneRow // in order of namespaces, newest first in each
	Size   int        // checkpoints of one step

	last   map[valueKey]int // the last step whose checkpoints name a value; stays: one that stays names it
	parts  []compact.Set    // of the lists that go with each step
	stay   compact.Set      // parts of lists that stay
	plan   thread.PrunePlan
	shared map[ChannelVersion]ChannelVersion
}

type valueKey struct {
	ns string
	ChannelVersion
}

// stays is the step of what is not deleted.
const stays = -1

// Add adds a checkpoint with its channel versions. Names that many checkpoints have are kept once.
func (p *Pruning) Add(r PruneRow) {
	if p.shared == nil {
		p.shared = map[ChannelVersion]ChannelVersion{}
	}
	for i, v := range r.Versions {
		if known, ok := p.shared[v]; ok {
			r.Versions[i] = known
		} else {
			p.shared[v] = v
		}
	}
	p.Rows = append(p.Rows, r)
}

// Choose decides which checkpoints go in which step, and with them which values: a value goes with
// the last checkpoint that names it. whole is that of Prunable.
func (p *Pruning) Choose(whole func(ns string, c id.Checkpoint, channels []string) (bool, error)) error {
	drop, err := Prunable(p.Thread, p.Rows, whole)
	if err != nil || len(drop) == 0 {
		return err
	}
	type place struct {
		ns string
		id id.Checkpoint
	}
	step := make(map[place]int, len(p.Rows))
	for _, r := range p.Rows {
		step[place{r.NS, r.ID}] = stays
	}
	for some := range slices.Chunk(drop, p.Size) {
		for _, k := range some {
			step[place{k.NS, k.ID}] = len(p.plan.Steps)
		}
		p.plan.Steps = append(p.plan.Steps, thread.PruneStep{Checkpoints: some})
	}
	p.parts = make([]compact.Set, len(p.plan.Steps))
	p.last = map[valueKey]int{}
	for _, r := range p.Rows {
		own := step[place{r.NS, r.ID}]
		for _, v := range r.Versions {
			k := valueKey{r.NS, v}
			if at, known := p.last[k]; own == stays || !known || at != stays && at < own {
				p.last[k] = own
			}
		}
		if r.Parent == "" {
			continue
		}
		// As langgraph-checkpoint-postgres: the parents of what stays are forgotten where they go,
		// and where they are gone already.
		parent, there := step[place{r.NS, r.Parent}]
		if !there {
			parent = 0
		}
		if parent != stays && (own == stays || own > parent) {
			s := &p.plan.Steps[parent]
			s.Orphans = append(s.Orphans, checkpointer.Key{Thread: p.Thread, NS: r.NS, ID: r.ID})
		}
	}
	for _, r := range p.Rows { // not from the map: in the same order each time
		for _, v := range r.Versions {
			if at, ok := p.last[valueKey{r.NS, v}]; ok && at != stays && at == step[place{r.NS, r.ID}] {
				s := &p.plan.Steps[at]
				s.Values = append(s.Values, thread.PruneValue{NS: r.NS, Channel: v.Channel, Version: v.Version})
			}
		}
	}
	return nil
}

// Any reports whether anything goes.
func (p *Pruning) Any() bool { return len(p.plan.Steps) > 0 }

// List is the set that the parts of a list are to be added to, whose value stands at that version.
func (p *Pruning) List(ns string, v ChannelVersion) *compact.Set {
	if at, ok := p.last[valueKey{ns, v}]; ok && at != stays {
		return &p.parts[at]
	}
	return &p.stay
}

// Plan returns the plan. A part goes with the last list that uses it.
func (p *Pruning) Plan() *thread.PrunePlan {
	for i := len(p.parts) - 1; i >= 0; i-- {
		of := p.parts[i].Runs()
		p.parts[i].Remove(p.stay)
		for _, r := range p.parts[i].Runs() {
			p.plan.Steps[i].Parts = append(p.plan.Steps[i].Parts, thread.PruneParts{First: r.First, Count: r.Count})
		}
		p.stay.Add(of)
	}
	return &p.plan
}
