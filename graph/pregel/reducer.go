package pregel

import (
	"slices"

	"github.com/google/uuid"

	"understudy/graph/message"
	"understudy/internal/jsonplus"
)

// reducer folds an update into the value of a channel.
type reducer struct {
	name  string
	fold  func(current, update *value) (*value, error)
	empty *value // value before the first write; nil: none
}

type reducerSpec struct{ r *reducer }

// Reducer folds updates into the value with a function, in a fixed order. Before the first write the channel holds T's zero
// value. fold must not modify its arguments, like all values of a state.
func Reducer[T any](fold func(current, update T) T) Channel {
	return ReducerErr(func(current, update T) (T, error) { return fold(current, update), nil })
}

// ReducerErr is Reducer for functions that can fail. The error fails the run.
func ReducerErr[T any](fold func(current, update T) (T, error)) Channel {
	var zero T
	return reducerSpec{&reducer{
		fold: func(current, update *value) (*value, error) {
			var a, b T
			if err := decodeTo(current, &a); err != nil {
				return nil, err
			}
			if err := decodeTo(update, &b); err != nil {
				return nil, err
			}
			sum, err := fold(a, b)
			if err != nil {
				return nil, err
			}
			out := fromGo(sum)
			return out, out.check()
		},
		empty: emptyOf(zero),
	}}
}

// Append concatenates lists, as operator.add does. Before the first write the channel holds an empty list.
func Append() Channel { return reducerSpec{appendReducer} }

// Add adds numbers, starting at zero, as operator.add does: true counts as one. Use a typed Reducer for anything else.
func Add() Channel { return reducerSpec{addReducer} }

// Messages is the list of a conversation, with the rules of add_messages: messages get ids, a message with a known id replaces the
// earlier one, and a RemoveMessage removes one.
func Messages() Channel { return reducerSpec{messagesReducer} }

func (s reducerSpec) make(key string) channel { return &aggregate{key: key, r: s.r, v: s.r.empty} }
func (reducerSpec) kindName() string          { return "BinaryOperatorAggregate" }
func (s reducerSpec) same(o Channel) bool     { return o == Channel(s) }

type aggregate struct {
	key string
	r   *reducer
	v   *value
}

func (c *aggregate) update(vals []*value) (bool, error) {
	if len(vals) == 0 {
		return false, nil
	}
	v := c.v
	if v == nil {
		v, vals = vals[0], vals[1:]
	}
	if c.r == appendReducer && len(vals) > 1 {
		v, vals = concatAll(v, vals)
	}
	overwritten := false
	for _, u := range vals {
		if to, ok := overwriteOf(u); ok {
			if overwritten {
				return false, invalidUpdate("Can receive only one Overwrite value per super-step.\n" +
					"For troubleshooting, visit: https://docs.langchain.com/oss/python/langgraph/errors/INVALID_CONCURRENT_GRAPH_UPDATE")
			}
			v, overwritten = to, true
			continue
		}
		if overwritten {
			continue
		}
		var err error
		if v, err = c.r.fold(v, u); err != nil {
			return false, err
		}
	}
	c.v = v
	return true, nil
}
func (c *aggregate) get() *value         { return c.v }
func (c *aggregate) available() bool     { return c.v != nil }
func (c *aggregate) consume() bool       { return false }
func (c *aggregate) finish() bool        { return false }
func (c *aggregate) checkpoint() *value  { return c.v }
func (c *aggregate) load(v *value) error { c.v = v; return nil }
func (c *aggregate) clone() channel      { d := *c; return &d }

// overwriteOf returns the replacement value if the update is an Overwrite, also one that came as JSON.
func overwriteOf(u *value) (*value, bool) {
	switch u.kind {
	case ofGo:
		if o, ok := u.goVal.(Overwrite); ok {
			return o.Value.(*value), true
		}
		if _, ok := u.goVal.(map[string]any); !ok {
			return nil, false
		}
	case ofList:
		return nil, false
	case ofPack:
		if p := *u.pack.Load(); !isMap(p[0]) {
			arguments, ok := jsonplus.Arguments(p, "Overwrite")
			if !ok {
				return nil, false
			}
			u = fromPack(arguments)
		}
	}
	fields, ok := u.object()
	if !ok || len(fields) > 4 {
		return nil, false
	}
	if len(fields) == 1 && fields[0].name == overwriteKey {
		return fields[0].v, true
	}
	var held *value
	marked := false
	for _, f := range fields {
		switch f.name {
		case "type":
			text, _ := f.v.text()
			marked = text == overwriteKey
		case "value":
			held = f.v
		}
	}
	return held, marked && held != nil
}

var appendReducer = &reducer{name: "append", empty: emptyList, fold: plus}

// concatAll appends updates to a single copy, up to the first that is not a list, and returns the remaining ones. One copy,
// because a step may have thousands of updates.
func concatAll(current *value, updates []*value) (*value, []*value) {
	a, ok := current.list()
	if !ok {
		return current, updates
	}
	items := slices.Clone(a)
	for i, u := range updates {
		more, ok := u.list()
		if !ok {
			return fromItems(items), updates[i:]
		}
		items = append(items, more...)
	}
	return fromItems(items), nil
}

// messagesReducer is add_messages.
var messagesReducer = &reducer{name: "add_messages", empty: emptyList, fold: addMessages}

func addMessages(left, right *value) (*value, error) {
	a, err := messageItems(left)
	if err != nil {
		return nil, err
	}
	b, err := messageItems(right)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(b))
	types := make([]string, len(b))
	for i, m := range b {
		if ids[i], types[i], _ = m.messageID(); types[i] == message.TypeRemove && ids[i] == message.RemoveAll {
			// Only items after the last of them count.
			return addMessagesAfter(b, i)
		}
	}
	find := finder(a, len(b))
	merged := slices.Clone(a)
	removed := map[string]bool{}
	for i, m := range b {
		at := find(ids[i], merged)
		switch {
		case at >= 0 && types[i] == message.TypeRemove:
			removed[ids[i]] = true
		case at >= 0:
			delete(removed, ids[i])
			merged[at] = m
		case types[i] == message.TypeRemove:
			return nil, Errorf("ValueError", "Attempting to delete a message with an ID that doesn't exist ('%s')", ids[i])
		default:
			merged = append(merged, m)
		}
	}
	if len(removed) > 0 {
		merged = slices.DeleteFunc(merged, func(m *value) bool {
			id, _, _ := m.messageID()
			return removed[id]
		})
	}
	return wholeList(merged), nil
}

func wholeList(items []*value) *value { return &value{kind: ofList, items: items, whole: true} }

// finder returns a function that finds the last message with an id in a growing list. For few lookups it scans the list.
func finder(a []*value, count int) func(id string, list []*value) int {
	const few = 4
	if count <= few {
		return func(id string, list []*value) int {
			for i := len(list) - 1; i >= 0; i-- {
				if have, _, _ := list[i].messageID(); have == id {
					return i
				}
			}
			return -1
		}
	}
	index := make(map[string]int, len(a)+count)
	indexed := 0
	return func(id string, list []*value) int {
		for ; indexed < len(list); indexed++ {
			have, _, _ := list[indexed].messageID()
			index[have] = indexed
		}
		if at, ok := index[id]; ok {
			return at
		}
		return -1
	}
}

// addMessagesAfter returns the messages that follow item i of an update, which removes all earlier messages.
func addMessagesAfter(b []*value, i int) (*value, error) {
	for j := i + 1; j < len(b); j++ {
		if id, typ, _ := b[j].messageID(); typ == message.TypeRemove && id == message.RemoveAll {
			i = j
		}
	}
	return wholeList(slices.Clone(b[i+1:])), nil
}

// messageItems returns the messages of a list, or a single message, complete and with ids.
func messageItems(v *value) ([]*value, error) {
	if v.whole {
		return v.items, nil
	}
	items, ok := v.list()
	if !ok {
		items = []*value{v}
	}
	out, copied := items, false
	for i, item := range items {
		m, err := asWholeMessage(item)
		if err != nil {
			return nil, err
		}
		if m != item {
			if !copied {
				out, copied = slices.Clone(items), true
			}
			out[i] = m
		}
	}
	return out, nil
}

// asWholeMessage returns a message with an id; the value itself if it is one already.
func asWholeMessage(item *value) (*value, error) {
	if id, typ, ok := item.messageID(); ok {
		if id != "" && !isChunkType(typ) {
			return item, nil
		}
		m, ok := item.message()
		if !ok {
			return nil, Errorf("ValueError", "not a message: %s", short(item.JSON()))
		}
		m = m.Whole()
		if m.ID == "" {
			m.ID = uuid.NewString()
		}
		return fromMessage(m), nil
	}
	m, err := message.Convert(item.JSON())
	if err != nil {
		return nil, Errorf("ValueError", "%w", err)
	}
	if m.ID == "" {
		m.ID = uuid.NewString()
	}
	return fromMessage(m), nil
}

func isChunkType(t string) bool { return len(t) > 5 && t[len(t)-5:] == "Chunk" }
