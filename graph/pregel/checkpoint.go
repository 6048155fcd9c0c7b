package pregel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
)

// checkpointVersion is the version of LangGraph's checkpoint format that this package writes.
const checkpointVersion = 4

// checkpoint is the state of a graph between two steps, without the values of its channels.
type checkpoint struct {
	v       int
	id      string
	ts      string
	idBytes []byte
	// versions are those of the graph's channels by their index; "": never written.
	versions []string
	// others are versions of channels that the graph does not have (any more).
	others map[string]string
	// inline holds the values stored in the JSON of the loaded checkpoint, by channel. A channel that the graph does not have, or that is not
	// stored inline, keeps its version, so its value must be kept with it.
	inline map[string]inlineValue
	// seen holds, per node, the channel versions of its last run, and the versions at the last interrupt.
	seen    map[string]map[string]string
	changed changes // by the step that it ends
}

// inlineValue is a value as JSON, with the version of its channel.
type inlineValue struct {
	version string
	raw     []byte
}

func emptyCheckpoint(g *Graph) *checkpoint {
	id := newCheckpointID(-2)
	return &checkpoint{
		v: checkpointVersion, id: id, idBytes: idBytes(id), ts: now(), versions: make([]string, len(g.chans)), seen: map[string]map[string]string{},
	}
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// version returns the version of a channel, also of one that the graph does not have; "": never written.
func (c *checkpoint) version(g *Graph, channel string) string {
	if i, ok := g.chanIndex[channel]; ok {
		return c.versions[i]
	}
	return c.others[channel]
}

// highest returns the highest version of all channels; "" when there is none.
func (c *checkpoint) highest() string {
	top := ""
	for _, v := range c.versions {
		if v != "" && (top == "" || newer(v, top)) {
			top = v
		}
	}
	for _, v := range c.others {
		if top == "" || newer(v, top) {
			top = v
		}
	}
	return top
}

// written reports whether any channel was ever written.
func (c *checkpoint) written() bool {
	return len(c.others) > 0 || slices.ContainsFunc(c.versions, func(v string) bool { return v != "" })
}

func (c *checkpoint) see(node, channel, version string) {
	if c.seen[node] == nil {
		c.seen[node] = map[string]string{}
	}
	c.seen[node][channel] = version
}

// saved is a checkpoint as it was loaded.
type saved struct {
	*checkpoint
	chans    []channel
	pending  []pendingWrite
	parent   string
	metadata savedMetadata
	shape    string
}

// savedMetadata is the part of a checkpoint's metadata that the engine reads.
type savedMetadata struct {
	source  string
	step    int
	hasStep bool
	parents []field // {namespace: checkpoint id}
	run     string
	raw     json.RawMessage // as loaded; nil for a checkpoint of this run
}

// newChannels returns empty channels for the graph.
func (g *Graph) newChannels() []channel {
	out := make([]channel, len(g.chans))
	for i := range g.chans {
		out[i] = g.chans[i].spec.make(g.chans[i].name)
	}
	return out
}

// load reads a stored checkpoint.
func (g *Graph) load(t *checkpointer.Tuple) (*saved, error) {
	idsAfter(string(t.ID))
	doc := gjson.ParseBytes(t.Data)
	c := &checkpoint{
		v: int(doc.Get("v").Int()), id: string(t.ID), ts: doc.Get("ts").String(), idBytes: idBytes(string(t.ID)),
		versions: make([]string, len(g.chans)), seen: map[string]map[string]string{},
	}
	s := &saved{checkpoint: c, chans: g.newChannels(), parent: string(t.Parent), shape: t.Shape, metadata: readMetadata(t.Metadata)}
	doc.Get("channel_versions").ForEach(func(k, v gjson.Result) bool {
		if i, ok := g.chanIndex[k.String()]; ok {
			c.versions[i] = v.String()
		} else {
			if c.others == nil {
				c.others = map[string]string{}
			}
			c.others[k.String()] = v.String()
		}
		return true
	})
	doc.Get("versions_seen").ForEach(func(node, versions gjson.Result) bool {
		m := map[string]string{}
		versions.ForEach(func(k, v gjson.Result) bool {
			m[k.String()] = v.String()
			return true
		})
		c.seen[node.String()] = m
		return true
	})
	if updated := doc.Get("updated_channels"); updated.IsArray() {
		c.changed.known = true
		for _, u := range updated.Array() {
			c.changed.channels = append(c.changed.channels, u.String())
		}
	}
	var bad error
	doc.Get("channel_values").ForEach(func(k, v gjson.Result) bool {
		name, raw := k.String(), pyJSON(v.Raw)
		i, ok := g.chanIndex[name]
		if ok {
			bad = s.chans[i].load(fromJSON(raw))
		}
		if version := c.version(g, name); version != "" && (!ok || s.chans[i].checkpoint() == nil) {
			if c.inline == nil {
				c.inline = map[string]inlineValue{}
			}
			c.inline[name] = inlineValue{version, raw}
		}
		return bad == nil
	})
	for i := range t.Blobs {
		b := &t.Blobs[i]
		at, ok := g.chanIndex[b.Channel]
		if !ok || b.Type == "empty" || bad != nil {
			continue
		}
		var v *value
		if b.Items != nil {
			v = fromItems(known.of(b.Items))
		} else if v, bad = fromStored(b.Type, b.Data); bad != nil {
			bad = fmt.Errorf("channel %s: %w", b.Channel, bad)
			break
		} else if v.kind == ofPack && isArray((*v.pack.Load())[0]) {
			parts, err := b.SplitList()
			if err != nil {
				bad = fmt.Errorf("channel %s: %w", b.Channel, err)
				break
			}
			v = fromItems(known.of(parts))
		}
		if err := s.chans[at].load(v); err != nil {
			bad = fmt.Errorf("channel %s: %w", b.Channel, err)
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("read checkpoint %s: %w", t.ID, bad)
	}
	var err error
	if s.pending, err = readWrites(t.Writes); err != nil {
		return nil, fmt.Errorf("read writes on checkpoint %s: %w", t.ID, err)
	}
	return s, nil
}

// pyJSON converts JSON from Python, which escapes text and allows NaN, to our form.
func pyJSON(raw string) []byte {
	v := gjson.Parse(raw)
	switch {
	case v.Type == gjson.String:
		return appendQuoted(nil, v.Str)
	case raw == "NaN" || raw == "Infinity" || raw == "-Infinity":
		return jsonNull
	}
	return []byte(raw)
}

// readWrites reads stored writes in the order in which a step applies them.
func readWrites(writes []checkpointer.Write) ([]pendingWrite, error) {
	sorted := slices.Clone(writes)
	slices.SortStableFunc(sorted, func(a, b checkpointer.Write) int {
		switch {
		case a.Path != b.Path:
			return compareText(a.Path, b.Path)
		case a.TaskID != b.TaskID:
			return compareText(a.TaskID, b.TaskID)
		}
		return a.Index - b.Index
	})
	out := make([]pendingWrite, len(sorted))
	for i, w := range sorted {
		v, err := fromStored(w.Type, w.Data)
		if err != nil {
			return nil, fmt.Errorf("task %s, %s: %w", w.TaskID, w.Channel, err)
		}
		out[i] = pendingWrite{w.TaskID, w.Channel, v}
	}
	return out, nil
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func readMetadata(raw json.RawMessage) savedMetadata {
	doc := gjson.ParseBytes(raw)
	m := savedMetadata{source: doc.Get("source").String(), run: doc.Get("run_id").String(), step: -1, raw: raw}
	if step := doc.Get("step"); step.Type == gjson.Number {
		m.step, m.hasStep = int(step.Int()), true
	}
	doc.Get("parents").ForEach(func(k, v gjson.Result) bool {
		m.parents = append(m.parents, field{k.String(), fromString(v.String())})
		return true
	})
	return m
}

// appendJSON appends the checkpoint in the form of its database row, inline values included.
func (c *checkpoint) appendJSON(b []byte, g *Graph, chans []channel) []byte {
	b = append(b, `{"v":`...)
	b = strconv.AppendInt(b, int64(c.v), 10)
	b = append(b, `,"ts":"`...)
	b = append(b, c.ts...)
	b = append(b, `","id":"`...)
	b = append(b, c.id...)
	b = append(b, `","channel_values":{`...)
	first := true
	put := func(name string, raw []byte) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(appendQuoted(b, name), ':'), raw...)
	}
	for i := range g.chans {
		if c.versions[i] == "" {
			continue
		}
		if v := chans[i].checkpoint(); v != nil {
			if raw, ok := v.inline(); ok {
				put(g.chans[i].name, raw)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.inline)) {
		i, ok := g.chanIndex[name]
		if held := c.inline[name]; c.version(g, name) == held.version && (!ok || chans[i].checkpoint() == nil) {
			put(name, held.raw)
		}
	}
	b = append(b, `},"channel_versions":{`...)
	first = true
	for i := range g.chans {
		if c.versions[i] != "" {
			b = appendVersion(b, g.chans[i].name, c.versions[i], &first)
		}
	}
	b = appendVersions(b, c.others, &first)
	b = append(b, `},"versions_seen":{`...)
	nodes := make([]string, 0, len(c.seen))
	for node := range c.seen {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	for i, node := range nodes {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, node), ':', '{')
		inner := true
		b = appendVersions(b, c.seen[node], &inner)
		b = append(b, '}')
	}
	b = append(b, `},"updated_channels":`...)
	if !c.changed.known {
		return append(b, "null}"...)
	}
	b = append(b, '[')
	for i, u := range c.changed.channels {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, u)
	}
	return append(b, ']', '}')
}

func appendVersions(b []byte, versions map[string]string, first *bool) []byte {
	if len(versions) == 1 {
		for name, v := range versions {
			b = appendVersion(b, name, v, first)
		}
		return b
	}
	names := make([]string, 0, len(versions))
	for name := range versions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = appendVersion(b, name, versions[name], first)
	}
	return b
}

func appendVersion(b []byte, name, v string, first *bool) []byte {
	if !*first {
		b = append(b, ',')
	}
	*first = false
	b = append(appendQuoted(b, name), ':')
	if plainVersion(v) {
		return append(b, v...)
	}
	b = append(b, '"')
	return append(append(b, v...), '"')
}

// blobs returns the values to store next to the checkpoint: those of channels whose version is newer than in before.
func (c *checkpoint) blobs(g *Graph, chans []channel, before []string) ([]checkpointer.Blob, error) {
	var out []checkpointer.Blob
	for i := range g.chans {
		if c.versions[i] == "" || c.versions[i] == before[i] {
			continue
		}
		v := chans[i].checkpoint()
		if v == nil {
			continue
		}
		if _, ok := v.inline(); ok {
			continue
		}
		b := checkpointer.Blob{Channel: g.chans[i].name, Version: c.versions[i], Type: "msgpack"}
		if v.kind == ofList {
			b.Items = make([][]byte, len(v.items))
			for j, item := range v.items {
				p, err := item.packed()
				if err != nil {
					return nil, fmt.Errorf("channel %s: %w", g.chans[i].name, err)
				}
				b.Items[j] = p
			}
		} else {
			p, err := v.packed()
			if err != nil {
				return nil, fmt.Errorf("channel %s: %w", g.chans[i].name, err)
			}
			b.Data = p
		}
		out = append(out, b)
	}
	return out, nil
}

// storedWrites encodes the writes of a task. first is the index of the first of them.
func storedWrites(task, path string, writes []write) ([]checkpointer.Write, error) {
	out := make([]checkpointer.Write, len(writes))
	for i, w := range writes {
		p, err := w.v.packed()
		if err != nil {
			return nil, fmt.Errorf("write to %s: %w", w.channel, err)
		}
		index, special := specialIndex(w.channel)
		if !special {
			index = i
		}
		out[i] = checkpointer.Write{TaskID: task, Index: index, Channel: w.channel, Type: "msgpack", Data: p, Path: path}
	}
	return out, nil
}

func checkpointID(s string) id.Checkpoint { return id.Checkpoint(s) }
