package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

// NewThread decodes the body of POST /threads.
func NewThread(body []byte) (thread.New, error) {
	o, err := decode(body, ThreadCreate)
	if err != nil {
		return thread.New{}, err
	}
	n := thread.New{Metadata: o.metadata(), IfExists: o.textOr("if_exists", "raise"), TTL: threadTTL(o.raw("ttl"))}
	if n.ID, err = optional[id.Thread](o, "thread_id", "thread"); err != nil {
		return n, err
	}
	each(o.raw("supersteps"), func(_ string, step []byte) {
		var updates []graph.StateUpdate
		each(members(step).raw("updates"), func(_ string, u []byte) {
			m := members(u)
			if err == nil {
				err = m.namedNode()
			}
			updates = append(updates, graph.StateUpdate{Values: m.raw("values"), AsNode: m.text("as_node"), Command: m.raw("command")})
		})
		n.Supersteps = append(n.Supersteps, updates)
	})
	return n, err
}

// PatchThread decodes the body of PATCH /threads/{id}.
func PatchThread(body []byte) (thread.Patch, error) {
	o, err := decode(body, ThreadPatch)
	if err != nil {
		return thread.Patch{}, err
	}
	return thread.Patch{Metadata: o.metadata(), TTL: threadTTL(o.raw("ttl")), Where: threadWhere(o)}, nil
}

// threadWhere reads what must hold of a thread that is changed; nil when absent. LangGraph Server does not know it.
func threadWhere(o object) *thread.Condition {
	raw := o.raw("where")
	if raw == nil {
		return nil
	}
	w := members(raw)
	return &thread.Condition{Status: thread.Status(w.text("status")), Metadata: w.raw("metadata")}
}

// threadTTL reads how long to keep a thread; nil when absent. Zero or less: until the next sweep.
func threadTTL(raw []byte) *thread.TTLRequest {
	o := members(raw)
	if o.raw("strategy") == nil && o.raw("ttl") == nil {
		return nil
	}
	r := &thread.TTLRequest{Strategy: thread.Strategy(o.textOr("strategy", string(thread.Delete)))}
	if o.raw("ttl") != nil {
		after := Minutes(o.number("ttl"))
		r.After = &after
	}
	return r
}

// extractRoots are the members of a thread from which a search may extract values.
var extractRoots = []string{"config", "interrupts", "metadata", "values"}

// SearchThreads decodes the body of POST /threads/search.
func SearchThreads(body []byte) (thread.Search, Columns, error) {
	o, err := decode(body, ThreadSearch)
	if err != nil {
		return thread.Search{}, nil, err
	}
	q := thread.Search{
		Query: thread.Query{
			Status:    thread.Status(o.text("status")),
			Metadata:  o.raw("metadata"),
			SortBy:    o.textOr("sort_by", "updated_at"),
			Ascending: o.text("sort_order") == "asc",
			Limit:     o.integer("limit", 10),
			Offset:    o.integer("offset", 0),
		},
		Values: o.condition("values"),
	}
	for _, s := range o.texts("ids") {
		if _, err := ThreadID(s); err != nil {
			return q, nil, fault.New(fault.Invalid, "Invalid thread ID "+cut([]byte(s)))
		}
	}
	if q.IDs, err = threadIDs(o, "ids"); err != nil {
		return q, nil, err
	}
	if paths := o.raw("extract"); paths != nil {
		if q.Extract, err = extracts(paths); err != nil {
			return q, nil, err
		}
	}
	cols := Columns(o.texts("select"))
	q.NoValues = !cols.has("values")
	return q, cols, err
}

// identifier is the syntax of an alias in a search.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// extracts reads the paths of a search by alias.
func extracts(paths []byte) (map[string]string, error) {
	all := map[string]string{}
	var bad error
	var reserved []string
	each(paths, func(alias string, v []byte) {
		path := text(v)
		root := path[:len(path)-len(strings.TrimLeft(path, "abcdefghijklmnopqrstuvwxyz"))]
		switch {
		case slices.Contains(threadColumns, alias):
			reserved = append(reserved, "'"+alias+"'")
		case bad != nil:
		case !identifier.MatchString(alias):
			bad = fault.Newf(fault.Unprocessable, "Extract key '%s' must be a valid identifier (letters, digits, underscores)", cut([]byte(alias)))
		case path == "":
			bad = fault.Newf(fault.Unprocessable, "Extract path for '%s' must be a non-empty string", cut([]byte(alias)))
		case !slices.Contains(extractRoots, root):
			bad = fault.Newf(fault.Unprocessable, "Extract path '%s' must start with one of: %s", cut([]byte(path)), strings.Join(extractRoots, ", "))
		}
		all[alias] = path
	})
	if reserved != nil {
		slices.Sort(reserved)
		return nil, fault.New(fault.Unprocessable, "Extract keys cannot use reserved field names: ["+strings.Join(reserved, ", ")+"]")
	}
	return all, bad
}

// condition reads the value that a member must contain; nil when there is no condition.
func (o object) condition(key string) json.RawMessage {
	if v := o.raw(key); len(v) > len(`{}`) {
		return v
	}
	return nil
}

func threadIDs(o object, key string) ([]id.Thread, error) {
	if o.raw(key) == nil {
		return nil, nil
	}
	ids := []id.Thread{}
	for _, s := range o.texts(key) {
		t, err := ThreadID(s)
		if err != nil {
			return nil, err
		}
		ids = append(ids, t)
	}
	return ids, nil
}

// CountThreads decodes the body of POST /threads/count.
func CountThreads(body []byte) (thread.Search, error) {
	o, err := decode(body, ThreadCount)
	if err != nil {
		return thread.Search{}, err
	}
	return thread.Search{
		Query:    thread.Query{Status: thread.Status(o.text("status")), Metadata: o.raw("metadata")},
		Values:   o.condition("values"),
		NoValues: true,
	}, nil
}

// PruneThreads decodes the body of POST /threads/prune.
func PruneThreads(body []byte) (ids []id.Thread, strategy thread.Strategy, where *thread.Condition, err error) {
	o, err := decode(body, ThreadPrune)
	if err != nil {
		return nil, "", nil, err
	}
	ids, err = threadIDs(o, "thread_ids")
	return ids, thread.Strategy(o.textOr("strategy", string(thread.Delete))), threadWhere(o), err
}

// AppendPruned appends the answer of POST /threads/prune. Who gave no condition gets what LangGraph Server answers.
func AppendPruned(dst []byte, p thread.Pruned, where *thread.Condition) []byte {
	dst = strconv.AppendInt(append(dst, `{"pruned_count":`...), int64(p.Count), 10)
	if where != nil {
		dst = strconv.AppendInt(append(dst, `,"unmatched_count":`...), int64(p.Unmatched), 10)
	}
	return append(dst, '}')
}

// ThreadParts selects the parts of a thread to show in addition to its columns.
type ThreadParts struct {
	NoValues bool // set for copies, which lack the key
	TTL      bool // ?include=ttl: the key, when the thread has one
}

// AppendUsage appends the size of a thread's checkpoints.
func AppendUsage(dst []byte, t id.Thread, u thread.Usage) []byte {
	amount := func(r *row, name string, a thread.Amount) {
		r.raw(name, fmt.Appendf(nil, `{"count":%d,"bytes":%d}`, a.Rows, a.Bytes))
	}
	var values thread.Amount
	channels := newRow(nil, nil)
	for _, name := range slices.Sorted(maps.Keys(u.Channels)) {
		a := u.Channels[name]
		values.Add(a)
		if channels.begun {
			channels.dst = append(channels.dst, ',')
		}
		channels.begun = true
		channels.dst = fmt.Appendf(jsonobj.AppendText(channels.dst, name), `:{"versions":%d,"bytes":%d}`, a.Rows, a.Bytes)
	}
	r := newRow(dst, nil)
	r.text("thread_id", string(t))
	r.raw("total_bytes", strconv.AppendInt(nil, u.Checkpoints.Bytes+values.Bytes+u.Writes.Bytes, 10))
	amount(&r, "checkpoints", u.Checkpoints)
	r.raw("channel_values", fmt.Appendf(nil, `{"count":%d,"bytes":%d,"by_channel":%s}`, values.Rows, values.Bytes, channels.end()))
	amount(&r, "pending_writes", u.Writes)
	return r.end()
}

// AppendThread appends a thread.
func AppendThread(dst []byte, v *thread.View, cols Columns, parts ThreadParts) []byte {
	r := newRow(dst, cols)
	r.text("thread_id", string(v.ID))
	r.time("created_at", v.CreatedAt)
	r.time("updated_at", v.UpdatedAt)
	r.time("state_updated_at", v.StateUpdatedAt)
	r.object("metadata", v.Metadata)
	r.text("status", string(v.Status))
	r.object("config", v.Config)
	if !parts.NoValues {
		r.raw("values", v.Values)
	}
	if v.Touched {
		// `error` cannot be selected, so it is shown only with all columns.
		r.raw("error", v.Error)
		r.object("interrupts", v.Interrupts)
	} else if len(cols) > 0 {
		r.object("interrupts", nil)
	}
	if expires, ok := v.ExpiresAt(); ok && parts.TTL {
		ttl := newRow(nil, nil)
		ttl.text("strategy", string(v.TTL.Strategy))
		ttl.raw("ttl_minutes", strconv.AppendFloat(nil, v.TTL.After.Minutes(), 'f', -1, 64))
		ttl.time("expires_at", expires)
		r.raw("ttl", ttl.end())
	}
	if v.Extracted != nil {
		r.cols = nil
		r.raw("extracted", v.Extracted)
	}
	return r.end()
}
