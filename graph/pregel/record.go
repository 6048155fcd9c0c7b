package pregel

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"understudy/checkpointer"
	"understudy/graph"
)

// put creates a checkpoint of the current state and saves it. With exiting the checkpoint exists already and is only
// saved. It returns a channel that is closed after the commit.
func (l *loop) put(source string, exiting bool) (<-chan struct{}, error) {
	if exiting && l.cp.id == l.lineage.loaded {
		return nil, nil
	}
	if !exiting {
		l.meta = savedMetadata{source: source, step: l.step, hasStep: true, parents: l.above, run: string(l.x.run)}
	}
	save := l.keeps && (exiting || l.x.durability != durabilityExit)
	c := l.cp
	c.v = checkpointVersion
	c.ts = now()
	if !exiting {
		c.id = newCheckpointID(l.step)
		c.idBytes = idBytes(c.id)
	}
	c.changed = l.changed
	var held <-chan struct{}
	if save {
		p, size, err := l.putOf()
		if err != nil {
			return nil, err
		}
		l.lineage.prevParent = l.lineage.parent
		l.lineage.versions = slices.Clone(c.versions)
		l.lineage.parent = c.id
		l.lineage.saved = p.ID
		held = l.x.saves.add(graph.Save{Put: p}, size, l.ns == "" && l.x.modes.values && l.x.durability != durabilityExit)
	}
	if !exiting {
		l.step++
	}
	return held, nil
}

// putOf returns the checkpoint in the form that the saver takes, and its size.
func (l *loop) putOf() (*checkpointer.Put, int, error) {
	blobs, err := l.cp.blobs(l.g, l.storable(), l.lineage.versions)
	if err != nil {
		return nil, 0, err
	}
	p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Key: l.key(), Parent: checkpointID(l.lineage.parent), Run: l.x.run,
		Data: l.cp.appendJSON(make([]byte, 0, 512), l.g, l.chans), Metadata: l.metadata(),
		Tasks: l.describe(),
	}, Blobs: blobs}
	text, sum := l.g.shape()
	p.Shape = sum
	if l.lineage.shape != sum {
		p.ShapeJSON, l.lineage.shape = text, sum
	}
	size := len(p.Data) + len(p.Metadata)
	for i := range blobs {
		size += blobs[i].Size()
	}
	return p, size, nil
}

// metadata returns the stored metadata of a checkpoint: the configuration's and LangGraph's own.
func (l *loop) metadata() json.RawMessage {
	b := append(make([]byte, 0, 256), '{')
	add := func(f field) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, f.name), ':')
		b = append(b, f.v.JSON()...)
	}
	for _, f := range l.x.stored {
		add(f)
	}
	for _, f := range l.taskFields() {
		add(f)
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"source":"`...)
	b = append(b, l.meta.source...)
	b = append(b, `","step":`...)
	b = strconv.AppendInt(b, int64(l.meta.step), 10)
	b = append(b, `,"parents":`...)
	b = appendFields(b, l.meta.parents)
	return append(b, '}')
}

// taskFields returns, for the metadata of a nested graph's checkpoints, the task that the graph runs in.
func (l *loop) taskFields() []field {
	if l.task == nil {
		return nil
	}
	t := l.task
	fields := fieldSet{list: append([]field{{"checkpoint_map", fromFields(l.above)}}, t.fields(l.taskStep)...)}
	for _, f := range l.inherited {
		fields.setRaw(f.name, f.v.JSON())
	}
	fields.setRaw("checkpoint_ns", appendQuoted(nil, outermost(l.ns)))
	return fields.list
}

// outermost returns the namespace of the outermost task, which LangGraph puts into the metadata of everything nested.
func outermost(ns string) string {
	first, _, _ := strings.Cut(ns, "|")
	return first
}

// putWrites records the writes of a task and emits them.
func (l *loop) putWrites(id string, writes []write, cached bool) error {
	if len(writes) == 0 {
		return nil
	}
	if err := l.record(id, writes); err != nil {
		return err
	}
	if l.ticked {
		l.showWrites(id, writes, cached)
	}
	return nil
}

// record adds the writes of a task to the pending writes of the checkpoint.
func (l *loop) record(id string, writes []write) error {
	stored := l.pending.add(id, writes)
	if l.keeps && l.x.durability != durabilityExit {
		return l.saveWrites(id, stored)
	}
	return nil
}

// saveWrites queues writes to be saved with the checkpoint.
func (l *loop) saveWrites(id string, writes []write) error {
	writes = l.tracked(writes)
	path := ""
	if t := l.byID[id]; t != nil {
		path = t.pathText
	}
	rows, err := storedWrites(id, path, writes)
	if err != nil {
		return err
	}
	size := 0
	for i := range rows {
		size += len(rows[i].Data)
	}
	l.x.saves.add(graph.Save{At: l.key(), Writes: rows}, size, false)
	return nil
}

// tracked returns the writes without those that are never saved: writes to untracked channels, also in the input of a
// Send.
func (l *loop) tracked(writes []write) []write {
	if !slices.ContainsFunc(l.g.chans, func(c chanInfo) bool { return c.untracked }) {
		return writes
	}
	var out []write
	for _, w := range writes {
		if i, ok := l.g.chanIndex[w.channel]; ok && l.g.chans[i].untracked {
			continue
		}
		if w.channel == chanTasks {
			w.v = l.trackedSend(w.v)
		}
		out = append(out, w)
	}
	return out
}

// storable returns the channels as they are stored: without values of untracked channels in the inputs of Sends.
func (l *loop) storable() []channel {
	c, ok := l.chans[l.g.tasksChan].(*topic)
	if !ok || len(c.items) == 0 || !slices.ContainsFunc(l.g.chans, func(c chanInfo) bool { return c.untracked }) {
		return l.chans
	}
	items := slices.Clone(c.items)
	for i := range items {
		items[i] = l.trackedSend(items[i])
	}
	chans := slices.Clone(l.chans)
	chans[l.g.tasksChan] = &topic{items: items}
	return chans
}

func (l *loop) trackedSend(v *value) *value {
	node, arg, timeout, ok := sendOf(v)
	if !ok {
		return v
	}
	fields, ok := arg.object()
	if !ok {
		return v
	}
	kept := slices.DeleteFunc(slices.Clone(fields), func(f field) bool {
		i, ok := l.g.chanIndex[f.name]
		return ok && l.g.chans[i].untracked
	})
	if len(kept) == len(fields) {
		return v
	}
	return fromSend(Send{Node: node, Arg: fromFields(kept), Timeout: timeout})
}

// putPending saves the writes of the last step that durability exit deferred.
func (l *loop) putPending() error {
	tasks, writes := l.pending.ofThisRun()
	for _, id := range tasks {
		if err := l.saveWrites(id, writes[id]); err != nil {
			return err
		}
	}
	return nil
}
