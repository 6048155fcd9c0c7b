package pregel

import (
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// Channel says how a key of the state takes updates. Make one with LastValue, Reducer, Messages, Ephemeral, Topic or Untracked.
type Channel interface {
	// make returns an empty channel of this kind for a key of the state.
	make(key string) channel
	// kind is LangGraph's name of the class.
	kindName() string
	// same reports whether another declaration of the key is equal.
	same(Channel) bool
}

// channel is a channel of a run. Its methods are those of LangGraph's BaseChannel.
type channel interface {
	// update applies the updates of a step; vals is empty when the step has none for this channel. It reports whether the
	// channel changed.
	update(vals []*value) (bool, error)
	// get returns the value; nil when it is empty.
	get() *value
	available() bool
	// consume is called when a task that the channel triggered has run, finish when a run is about to end.
	consume() bool
	finish() bool
	// checkpoint returns what is stored; nil when nothing is.
	checkpoint() *value
	load(*value) error
	clone() channel
}

func invalidUpdate(format string, args ...any) error {
	return Errorf(nameInvalidUpdate, format, args...)
}

// --- LastValue -----------------------------------------------------------------------------

type lastValueSpec struct{}

// LastValue holds the last value. Two updates in one step are an error.
func LastValue() Channel { return lastValueSpec{} }

func (lastValueSpec) make(key string) channel { return &lastValue{key: key} }
func (lastValueSpec) kindName() string        { return "LastValue" }
func (lastValueSpec) same(o Channel) bool     { _, ok := o.(lastValueSpec); return ok }

type lastValue struct {
	key string
	v   *value
}

func (c *lastValue) update(vals []*value) (bool, error) {
	switch len(vals) {
	case 0:
		return false, nil
	case 1:
		c.v = vals[0]
		return true, nil
	}
	return false, invalidUpdate("At key '%s': Can receive only one value per step. Use an Annotated key to handle multiple values.\n"+
		"For troubleshooting, visit: https://docs.langchain.com/oss/python/langgraph/errors/INVALID_CONCURRENT_GRAPH_UPDATE", c.key)
}
func (c *lastValue) get() *value         { return c.v }
func (c *lastValue) available() bool     { return c.v != nil }
func (c *lastValue) consume() bool       { return false }
func (c *lastValue) finish() bool        { return false }
func (c *lastValue) checkpoint() *value  { return c.v }
func (c *lastValue) load(v *value) error { c.v = v; return nil }
func (c *lastValue) clone() channel      { d := *c; return &d }

// --- LastValueAfterFinish ------------------------------------------------------------------

type afterFinishSpec struct{}

func (afterFinishSpec) make(string) channel { return &afterFinish{} }
func (afterFinishSpec) kindName() string    { return "LastValueAfterFinish" }
func (afterFinishSpec) same(o Channel) bool { _, ok := o.(afterFinishSpec); return ok }

// afterFinish triggers a deferred node: its value becomes available when the run is about to end.
type afterFinish struct {
	v        *value
	finished bool
}

func (c *afterFinish) update(vals []*value) (bool, error) {
	if len(vals) == 0 {
		return false, nil
	}
	c.finished, c.v = false, vals[len(vals)-1]
	return true, nil
}

func (c *afterFinish) get() *value {
	if !c.finished {
		return nil
	}
	return c.v
}
func (c *afterFinish) available() bool { return c.v != nil && c.finished }

func (c *afterFinish) consume() bool {
	if !c.finished {
		return false
	}
	c.finished, c.v = false, nil
	return true
}

func (c *afterFinish) finish() bool {
	if c.finished || c.v == nil {
		return false
	}
	c.finished = true
	return true
}

func (c *afterFinish) checkpoint() *value {
	if c.v == nil {
		return nil
	}
	return fromItems([]*value{c.v, fromGo(c.finished)})
}

func (c *afterFinish) load(v *value) error {
	pair, ok := v.list()
	if !ok || len(pair) != 2 {
		return fmt.Errorf("not a pair of value and mark")
	}
	c.v, c.finished = pair[0], string(pair[1].JSON()) == "true"
	return nil
}
func (c *afterFinish) clone() channel { d := *c; return &d }

// --- Ephemeral -----------------------------------------------------------------------------

type ephemeralSpec struct{ unguarded bool }

// Ephemeral holds a value for one step after the write. Two updates in one step are an error.
func Ephemeral() Channel { return ephemeralSpec{} }

// EphemeralAny is Ephemeral, but takes the last of several updates.
func EphemeralAny() Channel { return ephemeralSpec{unguarded: true} }

func (s ephemeralSpec) make(key string) channel { return &ephemeral{key: key, unguarded: s.unguarded} }
func (ephemeralSpec) kindName() string          { return "EphemeralValue" }
func (s ephemeralSpec) same(o Channel) bool     { return o == Channel(s) }

type ephemeral struct {
	key       string
	unguarded bool
	v         *value
}

func (c *ephemeral) update(vals []*value) (bool, error) {
	if len(vals) == 0 {
		had := c.v != nil
		c.v = nil
		return had, nil
	}
	if len(vals) != 1 && !c.unguarded {
		return false, invalidUpdate("At key '%s': EphemeralValue(guard=True) can receive only one value per step. "+
			"Use guard=False if you want to store any one of multiple values.", c.key)
	}
	c.v = vals[len(vals)-1]
	return true, nil
}
func (c *ephemeral) get() *value         { return c.v }
func (c *ephemeral) available() bool     { return c.v != nil }
func (c *ephemeral) consume() bool       { return false }
func (c *ephemeral) finish() bool        { return false }
func (c *ephemeral) checkpoint() *value  { return c.v }
func (c *ephemeral) load(v *value) error { c.v = v; return nil }
func (c *ephemeral) clone() channel      { d := *c; return &d }

// --- Untracked -----------------------------------------------------------------------------

type untrackedSpec struct{ unguarded bool }

// Untracked holds the last value for the run, and is never saved.
func Untracked() Channel { return untrackedSpec{} }

// UntrackedAny is Untracked, but takes the last of several updates in one step.
func UntrackedAny() Channel { return untrackedSpec{unguarded: true} }

func (s untrackedSpec) make(key string) channel { return &untracked{key: key, unguarded: s.unguarded} }
func (untrackedSpec) kindName() string          { return "UntrackedValue" }
func (s untrackedSpec) same(o Channel) bool     { return o == Channel(s) }

type untracked struct {
	key       string
	unguarded bool
	v         *value
}

func (c *untracked) update(vals []*value) (bool, error) {
	if len(vals) == 0 {
		return false, nil
	}
	if len(vals) != 1 && !c.unguarded {
		return false, invalidUpdate("At key '%s': UntrackedValue(guard=True) can receive only one value per step. "+
			"Use guard=False if you want to store any one of multiple values.", c.key)
	}
	c.v = vals[len(vals)-1]
	return true, nil
}
func (c *untracked) get() *value        { return c.v }
func (c *untracked) available() bool    { return c.v != nil }
func (c *untracked) consume() bool      { return false }
func (c *untracked) finish() bool       { return false }
func (c *untracked) checkpoint() *value { return nil }
func (c *untracked) load(*value) error  { return nil }
func (c *untracked) clone() channel     { d := *c; return &d }

// --- Topic ---------------------------------------------------------------------------------

type topicSpec struct{ accumulate bool }

// Topic collects the values written in a step as a list. With accumulate the list grows over all steps; otherwise it is
// emptied after each.
func Topic(accumulate bool) Channel { return topicSpec{accumulate} }

func (s topicSpec) make(string) channel { return &topic{accumulate: s.accumulate} }
func (topicSpec) kindName() string      { return "Topic" }
func (s topicSpec) same(o Channel) bool { return o == Channel(s) }

type topic struct {
	accumulate bool
	items      []*value
	list       *value // of items; made once
}

func (c *topic) update(vals []*value) (bool, error) {
	changed := false
	items := c.items[:len(c.items):len(c.items)] // append must copy: the list may be shared
	if !c.accumulate {
		changed = len(items) > 0
		items = nil
	}
	for _, v := range vals {
		if more, ok := v.list(); ok {
			items = append(items, more...)
			changed = changed || len(more) > 0
			continue
		}
		items = append(items, v)
		changed = true
	}
	if changed {
		c.items, c.list = items, nil
	}
	return changed, nil
}

func (c *topic) get() *value {
	if len(c.items) == 0 {
		return nil
	}
	return c.checkpoint()
}
func (c *topic) available() bool { return len(c.items) > 0 }
func (c *topic) consume() bool   { return false }
func (c *topic) finish() bool    { return false }

func (c *topic) checkpoint() *value {
	if c.list == nil {
		c.list = fromItems(c.items)
	}
	return c.list
}

func (c *topic) load(v *value) error {
	items, ok := v.list()
	if !ok {
		return fmt.Errorf("not a list")
	}
	c.items, c.list = items, nil
	return nil
}
func (c *topic) clone() channel { d := *c; return &d }

// --- NamedBarrier --------------------------------------------------------------------------

type barrierSpec struct {
	names       []string // sorted
	afterFinish bool
}

func (s barrierSpec) make(key string) channel {
	return &barrier{key: key, names: s.names, after: s.afterFinish}
}

func (s barrierSpec) kindName() string {
	if s.afterFinish {
		return "NamedBarrierValueAfterFinish"
	}
	return "NamedBarrierValue"
}

func (s barrierSpec) same(o Channel) bool {
	b, ok := o.(barrierSpec)
	return ok && slices.Equal(s.names, b.names) && s.afterFinish == b.afterFinish
}

// barrier opens when each of its names has been written.
type barrier struct {
	key      string
	names    []string
	seen     []string // in order of arrival
	after    bool
	finished bool
}

func (c *barrier) update(vals []*value) (bool, error) {
	changed := false
	for _, v := range vals {
		name, _ := v.text()
		if !slices.Contains(c.names, name) {
			return false, invalidUpdate("At key '%s': Value %s not in %v", c.key, name, c.names)
		}
		if !slices.Contains(c.seen, name) {
			c.seen = append(c.seen[:len(c.seen):len(c.seen)], name)
			changed = true
		}
	}
	return changed, nil
}

func (c *barrier) get() *value {
	if !c.available() {
		return nil
	}
	return null
}

func (c *barrier) available() bool { return len(c.seen) == len(c.names) && (!c.after || c.finished) }

func (c *barrier) consume() bool {
	if !c.available() {
		return false
	}
	c.seen, c.finished = nil, false
	return true
}

func (c *barrier) finish() bool {
	if !c.after || c.finished || len(c.seen) != len(c.names) {
		return false
	}
	c.finished = true
	return true
}

func (c *barrier) checkpoint() *value {
	names := slices.Sorted(slices.Values(c.seen))
	arg := msgp.AppendArrayHeader(nil, uint32(len(names)))
	for _, name := range names {
		arg = msgp.AppendString(arg, name)
	}
	set := fromPack(appendCall(nil, "builtins", "set", arg))
	if !c.after {
		return set
	}
	return fromItems([]*value{set, fromGo(c.finished)})
}

// appendCall appends the JsonPlusSerializer form of an object whose constructor takes one argument.
func appendCall(b []byte, module, name string, arg []byte) []byte {
	payload := msgp.AppendArrayHeader(nil, 3)
	payload = append(msgp.AppendString(msgp.AppendString(payload, module), name), arg...)
	n := len(payload)
	switch n {
	case 1, 2, 4, 8, 16:
		b = append(b, map[int]byte{1: 0xd4, 2: 0xd5, 4: 0xd6, 8: 0xd7, 16: 0xd8}[n], 0)
	default:
		switch {
		case n < 1<<8:
			b = append(b, 0xc7, byte(n), 0)
		case n < 1<<16:
			b = append(b, 0xc8, byte(n>>8), byte(n), 0)
		default:
			b = append(b, 0xc9, byte(n>>24), byte(n>>16), byte(n>>8), byte(n), 0)
		}
	}
	return append(b, payload...)
}

func (c *barrier) load(v *value) error {
	if c.after {
		pair, ok := v.list()
		if !ok || len(pair) != 2 {
			return fmt.Errorf("not a pair of names and mark")
		}
		v, c.finished = pair[0], string(pair[1].JSON()) == "true"
	}
	names, ok := fromJSON(v.JSON()).list()
	if !ok {
		return fmt.Errorf("not a set of names")
	}
	c.seen = nil
	for _, n := range names {
		name, _ := n.text()
		c.seen = append(c.seen, name)
	}
	return nil
}
func (c *barrier) clone() channel { d := *c; return &d }
