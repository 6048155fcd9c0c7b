package access

import (
	"bytes"
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"understudy/internal/jsonobj"
)

// Filter says which resources an actor may reach, by their metadata (items of the store: by their value). It is immutable. The nil Filter matches
// everything.
type Filter struct {
	all []condition // all hold
	any []Filter    // nil, or one of them holds
	and []Filter    // all of them hold
}

// condition compares one key.
type condition struct {
	key   string
	value json.RawMessage   // equal to it; nil: not compared
	has   []json.RawMessage // the value is a list that has all of these; nil: not compared
}

// maxDepth is how deep $or and $and may be nested.
const maxDepth = 2

// errFilter is the answer when a handler returns a filter that cannot be applied: nothing is shown.
func errFilter(why string) error {
	return &Refusal{Status: http.StatusInternalServerError, Detail: jsonobj.Quote("Auth handler returned an invalid filter: " + why)}
}

// ParseFilter reads a filter as a handler returns it: an object of keys with values to be equal to, {"$eq": value} or {"$contains": value or
// list}, and of $or and $and with lists of at least two filters. Anything else is a *Refusal: an operator that is not known must not match all.
func ParseFilter(raw json.RawMessage) (*Filter, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	f, err := parseFilter(raw, 0)
	if err != nil {
		return nil, err
	}
	if f.empty() {
		return nil, nil
	}
	return f, nil
}

func (f *Filter) empty() bool { return len(f.all) == 0 && f.any == nil && f.and == nil }

func parseFilter(raw json.RawMessage, depth int) (*Filter, error) {
	o, err := jsonobj.Parse(raw)
	if err != nil {
		return nil, errFilter("a filter must be an object")
	}
	f := &Filter{}
	for _, key := range o.Keys() {
		value := o.Get(key)
		switch {
		case key == "$or" || key == "$and":
			if depth == maxDepth {
				return nil, errFilter("$or and $and may be nested two deep")
			}
			list, err := branches(key, value, depth+1)
			if err != nil {
				return nil, err
			}
			if key == "$or" {
				f.any = list
			} else {
				f.and = list
			}
		case strings.HasPrefix(key, "$"):
			return nil, errFilter("unknown operator " + key)
		default:
			c, err := parseCondition(key, value)
			if err != nil {
				return nil, err
			}
			f.all = append(f.all, c)
		}
	}
	return f, nil
}

func branches(key string, raw json.RawMessage, depth int) ([]Filter, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) < 2 {
		return nil, errFilter(key + " needs a list of at least two filters")
	}
	out := make([]Filter, len(list))
	for i, one := range list {
		f, err := parseFilter(one, depth)
		if err != nil {
			return nil, err
		}
		out[i] = *f
	}
	return out, nil
}

func parseCondition(key string, value json.RawMessage) (condition, error) {
	c := condition{key: key}
	if value[0] != '{' {
		c.value = value
		return c, nil
	}
	o, err := jsonobj.Parse(value)
	if err != nil {
		return c, errFilter("the value of " + key + " is not valid")
	}
	operators := 0
	for _, name := range o.Keys() {
		if strings.HasPrefix(name, "$") {
			operators++
		}
	}
	if operators == 0 { // an object to be equal to
		c.value = value
		return c, nil
	}
	for _, name := range o.Keys() {
		v := o.Get(name)
		switch name {
		case "$eq":
			c.value = v
		case "$contains":
			c.has = []json.RawMessage{v}
			if v[0] == '[' {
				c.has = nil
				if err := json.Unmarshal(v, &c.has); err != nil || c.has == nil {
					c.has = []json.RawMessage{}
				}
			}
		default:
			return c, errFilter("unknown operator " + name)
		}
	}
	return c, nil
}

// Match reports whether a resource with this metadata (a JSON object; nothing is an empty one) may be reached.
func (f *Filter) Match(metadata json.RawMessage) bool {
	if f == nil {
		return true
	}
	return f.match(jsonobj.Of(metadata))
}

func (f *Filter) match(o *jsonobj.Object) bool {
	for _, c := range f.all {
		if !c.match(o.Get(c.key)) {
			return false
		}
	}
	for i := range f.and {
		if !f.and[i].match(o) {
			return false
		}
	}
	return f.any == nil || slices.ContainsFunc(f.any, func(b Filter) bool { return b.match(o) })
}

func (c *condition) match(v json.RawMessage) bool {
	if v == nil {
		return false
	}
	if c.value != nil && !equal(v, c.value) {
		return false
	}
	if c.has == nil {
		return true
	}
	var list []json.RawMessage
	if v[0] != '[' || json.Unmarshal(v, &list) != nil {
		return false
	}
	for _, want := range c.has {
		if !slices.ContainsFunc(list, func(have json.RawMessage) bool { return equal(have, want) }) {
			return false
		}
	}
	return true
}

// equal compares JSON values: of one type, numbers by value, objects without regard to order.
func equal(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return decode(a, &x) == nil && decode(b, &y) == nil && same(x, y)
}

func decode(raw json.RawMessage, v *any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(v)
}

func same(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && sameNumber(x, y)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, has := y[k]
			if !has || !same(v, w) {
				return false
			}
		}
		return true
	}
	return a == b
}

// maxNumber is the length of numbers that are compared exactly; longer ones, and those with exponents, are compared as floats.
const maxNumber = 64

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	if len(a) > maxNumber || len(b) > maxNumber || strings.ContainsAny(string(a)+string(b), "eE") {
		x, errX := a.Float64()
		y, errY := b.Float64()
		return errX == nil && errY == nil && x == y
	}
	x, okX := new(big.Rat).SetString(string(a))
	y, okY := new(big.Rat).SetString(string(b))
	return okX && okY && x.Cmp(y) == 0
}

// Equalities returns the scalar values that metadata must have at its top, as an object for the index of metadata; nil when there are none. complete
// reports that the filter requires nothing else.
func (f *Filter) Equalities() (object json.RawMessage, complete bool) {
	if f == nil {
		return nil, true
	}
	o := &jsonobj.Object{}
	complete = f.any == nil && f.and == nil
	for _, c := range f.all {
		if c.has != nil || c.value[0] == '{' || c.value[0] == '[' || o.Get(c.key) != nil {
			complete = false
			continue
		}
		o.Set(c.key, c.value)
	}
	if o.Len() == 0 {
		return nil, complete
	}
	return o.JSON(), complete
}

// Resources that filters are for.
const (
	Threads    = "threads"
	Assistants = "assistants"
	Crons      = "crons"
	Store      = "store"
)

// reachKey is the key of a context for the filter of one resource.
type reachKey string

// Narrow returns a context in which only what f matches of a resource exists, of what existed in ctx.
func Narrow(ctx context.Context, resource string, f *Filter) context.Context {
	if f == nil {
		return ctx
	}
	if was := Reach(ctx, resource); was != nil {
		f = &Filter{and: []Filter{*was, *f}}
	}
	return context.WithValue(ctx, reachKey(resource), f)
}

// Reach returns the filter of a resource in a context; nil when everything exists.
func Reach(ctx context.Context, resource string) *Filter {
	f, _ := ctx.Value(reachKey(resource)).(*Filter)
	return f
}

// Everything returns a context in which everything exists, for the server's own work.
func Everything(ctx context.Context) context.Context {
	for _, resource := range []string{Threads, Assistants, Crons, Store} {
		if Reach(ctx, resource) != nil {
			ctx = context.WithValue(ctx, reachKey(resource), (*Filter)(nil))
		}
	}
	return ctx
}
