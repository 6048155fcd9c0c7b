package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
)

// mirror writes checkpoints of an upstream thread into a Saver. It belongs to one call and is not safe for concurrent use.
type mirror struct {
	c      *client
	saver  graph.Saver
	thread id.Thread
	run    id.Run          // of this server; "" for an update
	own    *jsonobj.Object // metadata set by this server, not by the upstream

	versions map[checkpointer.Key]map[string]string // of channels, of checkpoints seen
	// kept are data and shape of checkpoints mirrored from the stream. They are not replaced: state read back from an upstream's
	// checkpoints has lost types, such as dates, that its streams still have.
	kept  map[checkpointer.Key]*checkpointer.Put
	words string // text of a summary reported since the last save
}

// ownMetadata are keys of a checkpoint's metadata that each server sets itself.
var ownMetadata = []string{
	"run_id", "thread_id", "graph_id", "assistant_id", "user_id", "created_by", "cron_id", "run_attempt", "langgraph_request_id", "langgraph_auth_user_id",
	"langgraph_api_version", "langgraph_plan", "langgraph_host", "langgraph_api_url",
}

func (g *Graph) newMirror(cfg *graph.Config, run id.Run) *mirror {
	m := &mirror{
		c: g.c, saver: cfg.Saver, thread: cfg.Thread, run: run, own: jsonobj.Of(nil), versions: map[checkpointer.Key]map[string]string{}, kept: map[checkpointer.Key]*checkpointer.Put{},
	}
	config := jsonobj.Of(cfg.Config)
	for _, from := range []*jsonobj.Object{jsonobj.Of(config.Get("configurable")), jsonobj.Of(config.Get("metadata"))} {
		for _, key := range ownMetadata {
			if v := from.Get(key); v != nil && string(v) != "null" {
				m.own.Set(key, v)
			}
		}
	}
	m.own.SetText("thread_id", string(cfg.Thread))
	if run != "" {
		m.own.SetText("run_id", string(run))
	}
	return m
}

// save saves the collected checkpoints and writes.
func (m *mirror) save(ctx context.Context, saves []graph.Save) error {
	if len(saves) == 0 {
		return nil
	}
	saves[0].Words, m.words = m.words, ""
	return m.saver.Save(ctx, saves...)
}

// put adds a checkpoint to saves.
func (m *mirror) put(ctx context.Context, saves []graph.Save, s *snapshot) ([]graph.Save, error) {
	p := &checkpointer.Put{}
	p.Key, p.Parent, p.Run = s.key(m.thread), s.Parent.ID, m.run
	p.Tasks = s.description()
	var err error
	if before := m.kept[p.Key]; before != nil {
		data := jsonobj.Of(before.Data)
		data.SetText("ts", s.CreatedAt)
		p.Data, p.Shape = data.JSON(), before.Shape
		delete(m.kept, p.Key)
	} else if p.Shape, p.ShapeJSON, err = m.content(ctx, s, p); err != nil {
		return saves, m.c.failed(0, err, "checkpoint %s cannot be read: %v", p.ID, err)
	}
	metadata := jsonobj.Of(s.Metadata)
	metadata.Delete(ownerKey)
	for _, key := range ownMetadata {
		if m.own.Get(key) == nil {
			metadata.Delete(key)
		}
	}
	metadata.Merge(m.own)
	p.Metadata = metadata.JSON()
	return append(saves, graph.Save{Put: p}), nil
}

// content fills in data and blobs, and returns the shape: the visible channels in order.
func (m *mirror) content(ctx context.Context, s *snapshot, p *checkpointer.Put) (shapeDigest string, shape json.RawMessage, err error) {
	values := s.Values
	if len(values) == 0 {
		values = json.RawMessage("{}")
	}
	type kind struct {
		Kind  string    `json:"kind"`
		Empty *struct{} `json:"empty"`
	}
	var form struct {
		Out      any             `json:"out"`
		Channels map[string]kind `json:"channels"`
		Stateful []string        `json:"stateful"`
	}
	form.Channels, form.Stateful = map[string]kind{}, []string{}
	names, each := []string{}, map[string]json.RawMessage{}
	if values[0] == '{' {
		o, err := jsonobj.Parse(values)
		if err != nil {
			return "", nil, err
		}
		o.Each(func(k string, v json.RawMessage) { names, each[k] = append(names, k), v })
		form.Out = names
	} else { // a graph with one channel shows its bare value
		const root = "__root__"
		names, each[root], form.Out = []string{root}, values, root
	}
	old, err := m.versionsOf(ctx, checkpointer.Key{Thread: m.thread, NS: p.NS, ID: s.Parent.ID})
	if err != nil {
		return "", nil, err
	}
	known := m.versions[p.Key]
	next := 1
	for _, v := range old {
		n, _, _ := strings.Cut(v, ".")
		if n, err := strconv.Atoi(n); err == nil && n >= next {
			next = n + 1
		}
	}
	versions := make(map[string]string, len(names))
	inline, written := jsonobj.Of(nil), jsonobj.Of(nil)
	for _, name := range names {
		v := each[name]
		form.Channels[name] = kind{Kind: "LastValue"}
		suffix := "." + digest(v)
		switch {
		case strings.HasSuffix(known[name], suffix):
			versions[name] = known[name] // saved again
		case strings.HasSuffix(old[name], suffix):
			versions[name] = old[name]
		default:
			versions[name] = fmt.Sprintf("%032d%s", next, suffix)
		}
		written.SetText(name, versions[name])
		if v[0] != '{' && v[0] != '[' {
			inline.Set(name, v)
			continue
		}
		if versions[name] == old[name] || versions[name] == known[name] {
			continue
		}
		data, err := jsonplus.AppendState(nil, v)
		if err != nil {
			return "", nil, fmt.Errorf("channel %s: %w", name, err)
		}
		p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: name, Version: versions[name], Type: jsonplus.TypeMsgpack, Data: data})
	}
	m.versions[p.Key] = versions
	data := jsonobj.Of(nil)
	data.Set("v", json.RawMessage("4"))
	data.SetText("ts", s.CreatedAt)
	data.SetText("id", string(p.ID))
	data.Set("channel_values", inline.JSON())
	data.Set("channel_versions", written.JSON())
	data.Set("versions_seen", json.RawMessage("{}"))
	p.Data = data.JSON()
	if shape, err = json.Marshal(form); err != nil {
		return "", nil, err
	}
	return digest(shape), shape, nil
}

// versionsOf returns the channel versions of a checkpoint; nil when there is none.
func (m *mirror) versionsOf(ctx context.Context, k checkpointer.Key) (map[string]string, error) {
	if k.ID == "" {
		return nil, nil
	}
	if v, ok := m.versions[k]; ok {
		return v, nil
	}
	t, err := m.saver.Load(ctx, k)
	if err != nil || t == nil {
		return nil, err
	}
	v := map[string]string{}
	gjson.GetBytes(t.Data, "channel_versions").ForEach(func(key, value gjson.Result) bool {
		v[key.String()] = value.String()
		return true
	})
	m.versions[k] = v
	return v, nil
}

// Indexes of the writes that record the outcome of a task.
const (
	errorIndex     = -1
	interruptIndex = -3
)

// writes adds the results of a checkpoint's tasks to saves.
func (m *mirror) writes(saves []graph.Save, s *snapshot) ([]graph.Save, error) {
	var all []checkpointer.Write
	for _, t := range s.Tasks {
		add := func(index int, channel string, data []byte) {
			w := checkpointer.Write{TaskID: t.ID, Index: index, Channel: channel, Type: jsonplus.TypeMsgpack, Data: data}
			if bytes.HasPrefix(t.Path, []byte(`["__pregel_pull"`)) {
				w.Path = "~__pregel_pull, " + t.Name
			}
			all = append(all, w)
		}
		if t.Error != nil {
			add(errorIndex, "__error__", msgp.AppendString(nil, *t.Error))
		}
		if len(t.Interrupts) > 0 {
			data := msgp.AppendArrayHeader(nil, uint32(len(t.Interrupts)))
			for _, one := range t.Interrupts {
				var err error
				if data, err = appendInterrupt(data, one); err != nil {
					return saves, m.c.failed(0, err, "interrupt of task %s cannot be read: %v", t.ID, err)
				}
			}
			add(interruptIndex, "__interrupt__", data)
		}
		if len(t.Result) > 0 && !bytes.Equal(t.Result, []byte("null")) {
			data, err := jsonplus.AppendState(nil, t.Result)
			if err != nil {
				return saves, m.c.failed(0, err, "result of task %s cannot be read: %v", t.ID, err)
			}
			add(0, "__return__", data)
		}
	}
	if len(all) == 0 {
		return saves, nil
	}
	return append(saves, graph.Save{At: s.key(m.thread), Writes: all}), nil
}

func appendInterrupt(dst []byte, text json.RawMessage) ([]byte, error) {
	var in struct {
		ID     string          `json:"id"`
		Value  json.RawMessage `json:"value"`
		Schema json.RawMessage `json:"response_schema"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	if in.Value == nil {
		in.Value = json.RawMessage("null")
	}
	value, err := jsonplus.AppendValue(nil, in.Value)
	if err != nil {
		return nil, err
	}
	var schema []byte
	if len(in.Schema) > 0 && !bytes.Equal(in.Schema, []byte("null")) {
		if schema, err = jsonplus.AppendValue(nil, in.Schema); err != nil {
			return nil, err
		}
	}
	return jsonplus.AppendInterrupt(dst, value, in.ID, schema), nil
}

// span selects the checkpoints of an upstream thread to mirror.
type span struct {
	expect int                    // expected number
	new    func(s *snapshot) bool // reports whether the call created a checkpoint; the first other one ends the span
	base   id.Checkpoint          // start of the call, whose task results are new; "": none
}

// pageLimit is the number of checkpoints per request; each has the whole state.
const pageLimit = 20

// whole mirrors the checkpoints that a call created upstream, each after its parent: root checkpoints, results of their tasks, and nested
// ones. It completes those mirrored from the stream.
func (m *mirror) whole(ctx context.Context, sp span) error {
	seen := map[string]bool{}
	keep := func(list ...*snapshot) (err error) {
		var saves []graph.Save
		for _, s := range list {
			if sp.new(s) {
				if saves, err = m.put(ctx, saves, s); err != nil {
					return err
				}
			}
		}
		for _, s := range list {
			if saves, err = m.writes(saves, s); err != nil {
				return err
			}
			if saves, err = m.nested(ctx, saves, s, sp.new, seen); err != nil {
				return err
			}
		}
		return m.save(ctx, saves)
	}
	var fresh []*snapshot
	oldest, base := sp.base, (*snapshot)(nil)
	limit := min(max(sp.expect, 1)+1, pageLimit)
	var before id.Checkpoint
walk:
	for {
		page, err := m.history(ctx, "", before, limit)
		if err != nil {
			return err
		}
		for _, s := range page {
			if s.Checkpoint.ID == sp.base || !sp.new(s) {
				if s.Checkpoint.ID == oldest { // also of a joined run, whose start is unknown
					base = s
				}
				break walk
			}
			oldest = s.Parent.ID
			if _, known := m.versions[s.key(m.thread)]; !known {
				fresh = append(fresh, s)
			} else if err := keep(s); err != nil { // a long run is not held in memory
				return err
			}
		}
		if len(page) < limit {
			break
		}
		before, limit = page[len(page)-1].Checkpoint.ID, pageLimit
	}
	if base == nil && sp.base != "" {
		var err error
		if base, err = m.c.record(ctx, m.thread, "", sp.base); err != nil {
			return err
		}
		if !base.exists() {
			return m.c.lacks(m.thread, sp.base)
		}
	}
	if base != nil {
		fresh = append(fresh, base)
	}
	slices.Reverse(fresh)
	return keep(fresh...)
}

// nested adds the checkpoints below the tasks of a checkpoint to saves.
func (m *mirror) nested(ctx context.Context, saves []graph.Save, s *snapshot, isNew func(*snapshot) bool, seen map[string]bool) ([]graph.Save, error) {
	for _, t := range s.Tasks {
		if t.Checkpoint == nil || t.Checkpoint.NS == "" || seen[t.Checkpoint.NS] {
			continue
		}
		seen[t.Checkpoint.NS] = true
		var found []*snapshot
		for before := id.Checkpoint(""); ; {
			page, err := m.history(ctx, t.Checkpoint.NS, before, pageLimit)
			if err != nil {
				return saves, err
			}
			for _, n := range page {
				if n.Checkpoint.NS == "" {
					n.Checkpoint.NS = t.Checkpoint.NS
				}
			}
			found = append(found, page...)
			if len(page) < pageLimit || !isNew(page[len(page)-1]) {
				break
			}
			before = page[len(page)-1].Checkpoint.ID
		}
		slices.Reverse(found)
		for _, n := range found {
			var err error
			if isNew(n) {
				if saves, err = m.put(ctx, saves, n); err != nil {
					return saves, err
				}
			}
			if saves, err = m.writes(saves, n); err != nil {
				return saves, err
			}
			if saves, err = m.nested(ctx, saves, n, isNew, seen); err != nil {
				return saves, err
			}
		}
	}
	return saves, nil
}

// history returns checkpoints of a namespace, newest first.
func (m *mirror) history(ctx context.Context, ns string, before id.Checkpoint, limit int) ([]*snapshot, error) {
	body := map[string]any{"limit": limit}
	if before != "" {
		body["before"] = map[string]any{"configurable": map[string]any{"checkpoint_id": before, "checkpoint_ns": ns}}
	}
	if ns != "" {
		body["checkpoint"] = map[string]any{"thread_id": m.thread, "checkpoint_ns": ns}
	}
	var page []*snapshot
	if err := m.c.post(ctx, threadPath(m.thread)+"/history", body, &page); err != nil {
		return nil, err
	}
	if slices.Contains(page, nil) {
		return nil, m.c.failed(0, nil, "its history holds nulls")
	}
	// A reader that continues after the last entry must terminate.
	if n := len(page); n > 0 && n >= limit && (page[n-1].Checkpoint.ID == "" || before != "" && page[n-1].Checkpoint.ID >= before) {
		return nil, m.c.failed(0, nil, "its history does not go back")
	}
	return page, nil
}

// record returns a checkpoint by its id.
func (c *client) record(ctx context.Context, t id.Thread, ns string, at id.Checkpoint) (*snapshot, error) {
	s := &snapshot{}
	err := c.post(ctx, threadPath(t)+"/state/checkpoint", map[string]any{
		"checkpoint": map[string]any{"thread_id": t, "checkpoint_ns": ns, "checkpoint_id": at},
	}, s)
	if s.Checkpoint.NS == "" {
		s.Checkpoint.NS = ns
	}
	return s, err
}

// head returns the live head of a namespace.
func (c *client) head(ctx context.Context, t id.Thread, ns string) (*snapshot, error) {
	s := &snapshot{}
	if ns == "" {
		return s, c.get(ctx, threadPath(t)+"/state", s)
	}
	err := c.post(ctx, threadPath(t)+"/state/checkpoint", map[string]any{"checkpoint": map[string]any{"thread_id": t, "checkpoint_ns": ns}}, s)
	if s.Checkpoint.NS == "" {
		s.Checkpoint.NS = ns
	}
	return s, err
}

// lacks returns the error for a thread that was deleted or rolled back upstream.
func (c *client) lacks(t id.Thread, at id.Checkpoint) *upstreamError {
	return c.failed(0, errLacks, "the upstream server does not have checkpoint %s of thread %s, which is here: it was reset, or the thread was made elsewhere. "+
		"The conversation can be read, but not continued there", at, t)
}

var errLacks = errors.New("the upstream lacks a checkpoint")

func threadPath(t id.Thread) string { return "/threads/" + string(t) }
