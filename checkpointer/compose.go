package checkpointer

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
)

// nullTask is the task id of writes without a task: updates and answers of a Command.
const nullTask = "00000000-0000-0000-0000-000000000000"

// Channels of writes that have a special meaning in LangGraph.
const (
	writeError     = "__error__"
	writeErrorNode = "__error_source_node__"
	writeInterrupt = "__interrupt__"
	writeResume    = "__resume__"
	writeReturn    = "__return__"
)

// controlWrite reports whether writes to the channel record the outcome of a task rather than its results.
func controlWrite(channel string) bool {
	switch channel {
	case writeError, writeErrorNode, writeInterrupt, writeResume:
		return true
	}
	return false
}

// view selects how a checkpoint is shown.
type view struct {
	live bool // with the output of finished tasks, as the head of a namespace
	deep bool // with the live heads of nested namespaces
	// moving accepts an answer even if the run has continued since the rows were loaded.
	moving bool
	// failed counts failed requests over all checkpoints of one call; nil for a single checkpoint.
	failed *atomic.Int32
}

// compose returns the snapshot of a checkpoint. Without the blobs of t, values are empty.
func (s *Snapshots) compose(ctx context.Context, t *Tuple, v view) (*Snapshot, error) {
	c, err := s.content(ctx, t, v)
	if err != nil {
		return nil, err
	}
	out := &Snapshot{
		Key: t.Key, Parent: t.Parent, Metadata: t.Metadata, Values: s.valuesOf(t, c),
		Next: []string{}, Tasks: make([]Task, 0, len(c.tasks)),
		CreatedAt: gjson.GetBytes(t.Data, "ts").String(),
	}
	out.Map, out.ParentMap = Maps(t)
	for _, info := range c.tasks {
		p := progressOf(t.Writes, info.ID)
		task := Task{ID: info.ID, Name: info.Name, Path: info.Path, Error: s.errorText(p)}
		if !v.live || !p.finished {
			out.Next = append(out.Next, info.Name)
			task.Interrupts = s.interrupts(p)
		}
		if p.finished {
			task.Result = s.result(p, c.shape)
		}
		if info.Subgraph {
			task.Subgraph = info.Name + ":" + info.ID
			if t.NS != "" {
				task.Subgraph = t.NS + "|" + task.Subgraph
			}
			if v.deep {
				if task.State, err = s.nested(ctx, t, c, info, task.Subgraph); err != nil {
					return nil, err
				}
			}
		}
		out.Tasks = append(out.Tasks, task)
	}
	return out, nil
}

// nested returns the live head of a task's subgraph.
func (s *Snapshots) nested(ctx context.Context, t *Tuple, c content, info taskInfo, ns string) (*Snapshot, error) {
	k := Key{Thread: t.Thread, NS: ns}
	if c.shape != nil && slices.Contains(c.shape.stateful, info.Name) {
		k.NS = withoutTaskIDs(ns)
	}
	return s.head(ctx, k, true)
}

// Maps returns the checkpoint_map of a nested checkpoint and that of its parent: its ancestors by namespace, and itself. nil at the
// root.
func Maps(t *Tuple) (own, parent json.RawMessage) {
	parents := gjson.GetBytes(t.Metadata, "parents")
	if !parents.IsObject() || parents.Get("@keys.#").Int() == 0 {
		return nil, nil
	}
	with := func(id string) json.RawMessage {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(parents.Raw)) != nil {
			return nil
		}
		b := compact.Bytes()
		b = append(b[:len(b)-1], ',')
		b = append(jsonobj.AppendText(b, t.NS), ':')
		return append(jsonobj.AppendText(b, id), '}')
	}
	own = with(string(t.ID))
	if t.Parent != "" {
		parent = with(string(t.Parent))
	}
	return own, parent
}

// progress is the progress of a task, read from its writes.
type progress struct {
	finished   bool
	failure    *Write
	interrupts []Write
	output     []Write // all of its results in order, including the return value
}

func progressOf(writes []Write, task string) (p progress) {
	for i := range writes {
		w := &writes[i]
		if w.TaskID != task {
			continue
		}
		switch w.Channel {
		case writeError:
			if p.failure == nil {
				p.failure = w
			}
		case writeInterrupt:
			p.interrupts = append(p.interrupts, *w)
		case writeErrorNode, writeResume:
		default:
			p.finished = true
			p.output = append(p.output, *w)
		}
	}
	return p
}

// errorText is the repr that was stored for an exception.
func (s *Snapshots) errorText(p progress) *string {
	if p.failure == nil || jsonplus.IsNull(p.failure.Type, p.failure.Data) {
		return nil
	}
	text := gjson.ParseBytes(s.toJSON(p.failure.Type, p.failure.Data)).String()
	return &text
}

// interrupts returns the interrupts of a task: `id` and `value`, and `response_schema` if the graph sent one.
func (s *Snapshots) interrupts(p progress) []json.RawMessage {
	var out []json.RawMessage
	add := func(one gjson.Result) {
		b := append([]byte(nil), `{"id":`...)
		b = appendRaw(b, one.Get("id"))
		b = append(b, `,"value":`...)
		b = appendRaw(b, one.Get("value"))
		if schema := one.Get("response_schema"); schema.Exists() && schema.Type != gjson.Null {
			b = appendRaw(append(b, `,"response_schema":`...), schema)
		}
		out = append(out, append(b, '}'))
	}
	for _, w := range p.interrupts {
		all := gjson.ParseBytes(s.toJSON(w.Type, w.Data))
		if !all.IsArray() {
			add(all)
			continue
		}
		for _, one := range all.Array() {
			add(one)
		}
	}
	return out
}

func appendRaw(dst []byte, r gjson.Result) []byte {
	if !r.Exists() {
		return append(dst, "null"...)
	}
	return append(dst, r.Raw...)
}

// result returns the result of a finished task: its return value, else its writes by channel. nil: null.
func (s *Snapshots) result(p progress, sh *shape) json.RawMessage {
	type channel struct {
		name   string
		values []*Write
	}
	var shown []channel
	for i := range p.output {
		w := &p.output[i]
		if w.Channel == writeReturn {
			return s.toJSON(w.Type, w.Data)
		}
		if !sh.shows(w.Channel) {
			continue
		}
		at := slices.IndexFunc(shown, func(c channel) bool { return c.name == w.Channel })
		switch {
		case at < 0:
			shown = append(shown, channel{w.Channel, []*Write{w}})
		case len(shown[at].values) == 1 && jsonplus.IsNull(shown[at].values[0].Type, shown[at].values[0].Data):
			shown[at].values[0] = w // as in LangGraph: a single None counts as no write
		default:
			shown[at].values = append(shown[at].values, w)
		}
	}
	bare := sh != nil && sh.bare
	if bare && len(shown) == 0 {
		return nil
	}
	var b []byte
	if !bare {
		b = append(b, '{')
	}
	for i, c := range shown {
		if !bare {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(jsonobj.AppendText(b, c.name), ':')
		}
		if len(c.values) == 1 {
			b = s.appendJSON(b, c.values[0].Type, c.values[0].Data)
			continue
		}
		b = append(b, `{"$writes":[`...)
		for j, w := range c.values {
			if j > 0 {
				b = append(b, ',')
			}
			b = s.appendJSON(b, w.Type, w.Data)
		}
		b = append(b, `]}`...)
	}
	if !bare {
		b = append(b, '}')
	}
	return b
}
