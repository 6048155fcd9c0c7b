package compat

import (
	"encoding/json"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

// checkpointOf reads a CheckpointConfig: the id and namespace of a checkpoint of thread t. The thread in it is ignored, as by LangGraph Server.
func checkpointOf(v json.RawMessage, t id.Thread) checkpointer.Key {
	m := members(v)
	return checkpointer.Key{Thread: t, NS: m.text("checkpoint_ns"), ID: id.Checkpoint(m.text("checkpoint_id"))}
}

// UpdateState decodes the body of POST /threads/{id}/state.
func UpdateState(t id.Thread, body []byte) (thread.Place, []graph.StateUpdate, error) {
	o, err := decode(body, ThreadStateUpdate)
	if err != nil {
		return thread.Place{}, nil, err
	}
	named := members(o.raw("checkpoint"))
	at := thread.Place{Key: checkpointOf(o.raw("checkpoint"), t), Map: named.raw("checkpoint_map")}
	if named["checkpoint_id"] == nil { // an empty one is the head, regardless of checkpoint_id
		at.ID = id.Checkpoint(o.text("checkpoint_id"))
	}
	if err := o.namedNode(); err != nil {
		return thread.Place{}, nil, err
	}
	return at, []graph.StateUpdate{{Values: o.raw("values"), AsNode: o.text("as_node")}}, nil
}

// namedNode refuses an empty as_node: only an absent one leaves the choice to the graph.
func (o object) namedNode() error {
	if o.raw("as_node") != nil && o.text("as_node") == "" {
		return fault.New(fault.Invalid, "Node  does not exist")
	}
	return nil
}

// StateAt decodes the body of POST /threads/{id}/state/checkpoint. noNS reports that the body names a checkpoint without its namespace;
// the answer then omits it too.
func StateAt(t id.Thread, body []byte) (at checkpointer.Key, subgraphs, noNS bool, err error) {
	o, err := decode(body, ThreadStateAt)
	if err != nil {
		return at, false, false, err
	}
	at = checkpointOf(o.raw("checkpoint"), t)
	return at, o.bool("subgraphs"), at.ID != "" && members(o.raw("checkpoint"))["checkpoint_ns"] == nil, nil
}

// History decodes the body of POST /threads/{id}/history. `before` may be a checkpoint object, a configuration with one in
// `configurable`, or a bare id: clients document all three, though LangGraph Server accepts only the second.
func History(t id.Thread, body []byte) (thread.HistoryQuery, error) {
	q := thread.HistoryQuery{Thread: t}
	o, err := decode(body, ThreadStateSearch)
	if err != nil {
		return q, err
	}
	at := checkpointOf(o.raw("checkpoint"), t)
	q.NS, q.ID = at.NS, at.ID
	q.Metadata = o.raw("metadata")
	q.Limit = o.integer("limit", 1)
	switch before := o.raw("before"); {
	case before == nil:
	case before[0] == '"':
		q.Before = id.Checkpoint(text(before))
	default:
		m := members(before)
		if c := m.raw("configurable"); c != nil {
			if c[0] != '{' {
				return q, fault.New(fault.Unprocessable, "Invalid before: configurable must be an object")
			}
			m = members(c)
		}
		q.Before = id.Checkpoint(m.text("checkpoint_id"))
	}
	return q, nil
}

// HistoryFrom reads the query of GET /threads/{id}/history. limit is nil when the query has none. A negative one selects nothing, like zero.
func HistoryFrom(t id.Thread, limit *string, before string) (thread.HistoryQuery, error) {
	q := thread.HistoryQuery{Thread: t, Limit: 1, Before: id.Checkpoint(before)}
	if limit == nil {
		return q, nil
	}
	n, ok := number(*limit)
	if !ok {
		return q, fault.New(fault.Unprocessable, "Invalid limit "+shortened(*limit))
	}
	q.Limit = max(0, min(n, 1000))
	return q, nil
}

// StateParts sets how a state is shown.
type StateParts struct {
	// Asked is the checkpoint that the client named, shown as the id of a checkpoint that does not exist.
	Asked checkpointer.Key
	// NoNS leaves checkpoint_ns out of `checkpoint`, for requests that name a checkpoint without it.
	NoNS bool
}

// AppendState appends a snapshot.
func AppendState(dst []byte, s *checkpointer.Snapshot, parts StateParts) []byte {
	key := s.Key
	missing := key.ID == ""
	if missing {
		key = parts.Asked
	}
	r := newRow(dst, nil)
	r.object("values", s.Values)
	r.key("next")
	r.dst = appendTexts(r.dst, s.Next)
	r.key("tasks")
	r.dst = AppendList(r.dst, s.Tasks, func(dst []byte, t checkpointer.Task) []byte { return appendTask(dst, s.Thread, &t) })
	r.raw("metadata", s.Metadata)
	r.textOrNull("created_at", s.CreatedAt)
	r.key("checkpoint")
	r.dst = appendCheckpoint(r.dst, key, s.Map, missing || parts.NoNS)
	r.key("parent_checkpoint")
	r.dst = appendCheckpoint(r.dst, checkpointer.Key{Thread: key.Thread, NS: key.NS, ID: s.Parent}, s.ParentMap, false)
	r.key("interrupts")
	r.dst = append(r.dst, '[')
	first := true
	for i := range s.Tasks {
		for _, in := range s.Tasks[i].Interrupts {
			if !first {
				r.dst = append(r.dst, ',')
			}
			first = false
			r.dst = append(r.dst, in...)
		}
	}
	r.dst = append(r.dst, ']')
	r.textOrNull("checkpoint_id", string(key.ID))
	r.textOrNull("parent_checkpoint_id", string(s.Parent))
	return r.end()
}

// appendCheckpoint appends a checkpoint reference, null when it has no id.
func appendCheckpoint(dst []byte, k checkpointer.Key, mapping json.RawMessage, noNS bool) []byte {
	if k.ID == "" {
		return append(dst, "null"...)
	}
	r := newRow(dst, nil)
	r.text("checkpoint_id", string(k.ID))
	r.text("thread_id", string(k.Thread))
	if !noNS {
		r.text("checkpoint_ns", k.NS)
	}
	if len(mapping) > 0 {
		r.raw("checkpoint_map", mapping)
	}
	return r.end()
}

func appendTask(dst []byte, t id.Thread, task *checkpointer.Task) []byte {
	r := newRow(dst, nil)
	r.text("id", task.ID)
	r.text("name", task.Name)
	r.raw("path", task.Path)
	r.key("error")
	if task.Error == nil {
		r.dst = append(r.dst, "null"...)
	} else {
		r.dst = jsonobj.AppendText(r.dst, *task.Error)
	}
	r.key("interrupts")
	r.dst = AppendList(r.dst, task.Interrupts, func(dst []byte, in json.RawMessage) []byte { return append(dst, in...) })
	r.key("checkpoint")
	if task.Subgraph != "" && task.State == nil {
		c := newRow(r.dst, nil)
		c.text("thread_id", string(t))
		c.text("checkpoint_ns", task.Subgraph)
		r.dst = c.end()
	} else {
		r.dst = append(r.dst, "null"...)
	}
	r.key("state")
	if task.State == nil {
		r.dst = append(r.dst, "null"...)
	} else {
		r.dst = AppendState(r.dst, task.State, StateParts{})
	}
	r.raw("result", task.Result)
	return r.end()
}

// AppendUpdated appends the answer to an update of state.
func AppendUpdated(dst []byte, k thread.Place) []byte {
	at := newRow(nil, nil)
	at.text("thread_id", string(k.Thread))
	at.text("checkpoint_ns", k.NS)
	at.text("checkpoint_id", string(k.ID))
	if len(k.Map) > 0 {
		at.raw("checkpoint_map", k.Map)
	}
	ref := at.end()
	r := newRow(dst, nil)
	r.raw("checkpoint", ref)
	r.raw("configurable", ref)
	r.text("checkpoint_id", string(k.ID))
	return r.end()
}
