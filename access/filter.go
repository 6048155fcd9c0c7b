package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf16"

	"understudy/internal/cache"
	"understudy/internal/contain"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// Filter selects resources by their metadata (items of the store: by their value). It is immutable. The nil Filter selects all.
type Filter struct {
	fields []field   // all hold
	and    []*Filter // all hold
	or     []*Filter // nil, or one holds
	size   int       // how many conditions there are in it
}

// field is a condition on one key. A key that is absent fulfils none.
type field struct {
	key   string
	equal *contain.Exact   // nil: not compared
	has   []*contain.Exact // the value is a list with all of these; nil: not compared
}

// maxDepth is how deep $or and $and may be nested, and maxBranches how many alternatives are looked up in the index of metadata.
const maxDepth, maxBranches = 2, 8

// badFilter is the answer when a handler returns a filter that cannot be applied: it must not select everything.
func badFilter(why string) error {
	return &Refusal{Status: http.StatusInternalServerError, Detail: jsonobj.Quote("Auth handler returned an invalid filter: " + why)}
}

// ParseFilter reads a filter as handlers return it: {"key": value}, {"key": {"$eq": value}} or {"key": {"$contains": value or list}}, and $or and $and
// with lists of two or more filters, nested two deep. Several keys must all hold. nil, null and {} select all. The error is a *Refusal with status 500.
func ParseFilter(raw json.RawMessage) (*Filter, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if f, ok := kept.Get(string(raw)); ok {
		return f, nil
	}
	if !json.Valid(raw) {
		return nil, badFilter("it must be an object")
	}
	if halved(raw) { // each half is read as the same replacement character
		return nil, badFilter("it has half of a surrogate pair")
	}
	f, err := parseFilter(raw, 0)
	if err != nil {
		return nil, err
	}
	if f.selectsAll() {
		f = nil
	}
	if len(raw) <= maxKept {
		kept.Put(string(raw), f, parsedWeight*len(raw))
	}
	return f, nil
}

// kept has filters, because most requests of a user have the same one: parsing it makes 8 of the 50 allocations of authentication. A filter that was parsed takes up
// to parsedWeight times as much memory as its text; a longer text than maxKept is not kept.
var kept = cache.New[string, *Filter](4 << 20)

const maxKept, parsedWeight = 1 << 10, 10

// halved reports whether JSON has an escaped surrogate without its other half.
func halved(raw []byte) bool {
	for i := bytes.IndexByte(raw, '\\'); i >= 0 && i+1 < len(raw); {
		step := 2
		if first, ok := jsonscan.Escaped(raw[i:]); ok {
			step = 6
			if utf16.IsSurrogate(first) {
				if second, _ := jsonscan.Escaped(raw[i+6:]); utf16.DecodeRune(first, second) == unicode.ReplacementChar {
					return true
				}
				step = 12
			}
		}
		next := bytes.IndexByte(raw[i+step:], '\\')
		if next < 0 {
			return false
		}
		i += step + next
	}
	return false
}

func (f *Filter) selectsAll() bool { return len(f.fields) == 0 && len(f.and) == 0 && f.or == nil }

func parseFilter(raw json.RawMessage, depth int) (*Filter, error) {
	o, err := jsonobj.Parse(raw)
	if err != nil {
		return nil, badFilter("it must be an object")
	}
	f := &Filter{}
	o.Each(func(key string, value json.RawMessage) {
		if err != nil {
			return
		}
		switch {
		case key == "$or":
			f.or, err = parseFilters(key, value, depth+1)
		case key == "$and":
			f.and, err = parseFilters(key, value, depth+1)
		case strings.HasPrefix(key, "$"):
			err = badFilter("there is no operator " + key)
		default:
			var c field
			c, err = parseField(key, value)
			f.fields = append(f.fields, c)
		}
	})
	if err != nil {
		return nil, err
	}
	f.count()
	return f, nil
}

func (f *Filter) count() {
	f.size = len(f.fields)
	for _, g := range f.and {
		f.size += g.size
	}
	for _, g := range f.or {
		f.size += g.size
	}
}

func parseFilters(key string, raw json.RawMessage, depth int) ([]*Filter, error) {
	if depth > maxDepth {
		return nil, badFilter("$or and $and may be nested two deep")
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) < 2 {
		return nil, badFilter(key + " needs a list of two or more filters")
	}
	out := make([]*Filter, len(list))
	for i, one := range list {
		var err error
		if out[i], err = parseFilter(one, depth); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parseField(key string, raw json.RawMessage) (field, error) {
	c := field{key: key}
	raw = bytes.TrimSpace(raw)
	if raw[0] != '{' {
		var err error
		if c.equal, err = contain.ParseExact(raw); err != nil {
			return c, badFilter("the value of " + key + " is not valid")
		}
		return c, nil
	}
	o, err := jsonobj.Parse(raw)
	if err != nil || o.Len() == 0 {
		return c, badFilter("the value of " + key + " must be a value, {\"$eq\": value} or {\"$contains\": value}")
	}
	o.Each(func(name string, value json.RawMessage) {
		if err != nil {
			return
		}
		switch name {
		case "$eq":
			c.equal, err = contain.ParseExact(value)
		case "$contains":
			c.has, err = members(value)
		default:
			err = badFilter("there is no operator " + name + " for " + key)
		}
	})
	if refused := (*Refusal)(nil); err != nil && !errors.As(err, &refused) {
		err = badFilter("the value of " + key + " is not valid")
	}
	return c, err
}

// members returns what a list must have: with a list all of its items.
func members(raw json.RawMessage) ([]*contain.Exact, error) {
	items := []json.RawMessage{raw}
	if raw = bytes.TrimSpace(raw); raw[0] == '[' {
		items = nil
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
	}
	out := make([]*contain.Exact, len(items))
	for i, item := range items {
		var err error
		if out[i], err = contain.ParseExact(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Match reports whether the filter selects a resource with this metadata: a JSON object; nothing stands for an empty one, and anything else is not
// selected.
func (f *Filter) Match(metadata []byte) bool {
	if f == nil {
		return true
	}
	if len(metadata) == 0 {
		metadata = []byte("{}")
	}
	if f.size <= maxScans && len(metadata) <= maxScanned {
		if o, ok := scan(metadata); ok {
			return matches(f, o)
		}
	}
	var fields decoded
	return json.Unmarshal(metadata, &fields) == nil && fields != nil && matches(f, fields)
}

// document is an object that a filter looks into.
type document interface {
	get(key string) json.RawMessage // nil: it is absent
}

type decoded map[string]json.RawMessage

func (d decoded) get(key string) json.RawMessage { return d[key] }

// scanned is a valid object whose keys stand for themselves. Looking for one reads all of it: for few conditions on little metadata, as those of an owner are,
// that is a fraction of decoding.
type scanned []byte

const maxScans, maxScanned = 4, 2 << 10

// scan returns an object as scanned; false when it cannot be one.
func scan(metadata []byte) (scanned, bool) {
	o := bytes.TrimSpace(metadata)
	if len(o) == 0 || o[0] != '{' || bytes.IndexByte(o, '\\') >= 0 || !jsonscan.Valid(o) {
		return nil, false
	}
	return o, true
}

func (s scanned) get(key string) (value json.RawMessage) {
	jsonscan.Each(s, func(name []byte, start, end int) bool {
		if string(name[1:len(name)-1]) == key {
			value = json.RawMessage(s[start:end]) // of equal keys the last one counts
		}
		return true
	})
	return value
}

// matches has a type parameter because an interface around each document would be allocated.
func matches[D document](f *Filter, fields D) bool {
	for i := range f.fields {
		if c := &f.fields[i]; !c.match(fields.get(c.key)) {
			return false
		}
	}
	for _, g := range f.and {
		if !matches(g, fields) {
			return false
		}
	}
	for _, g := range f.or {
		if matches(g, fields) {
			return true
		}
	}
	return f.or == nil
}

// match reports whether a value fulfils the condition; nil: it is absent.
func (c *field) match(value json.RawMessage) bool {
	if value == nil || c.equal != nil && !c.equal.Equals(value) {
		return false
	}
	if c.has == nil {
		return true
	}
	var list []json.RawMessage
	if value = bytes.TrimSpace(value); value[0] != '[' || json.Unmarshal(value, &list) != nil {
		return false
	}
next:
	for _, want := range c.has {
		for _, item := range list {
			if want.Equals(item) {
				continue next
			}
		}
		return false
	}
	return true
}

// Terms returns alternatives for the index of metadata: what the filter selects has all terms of one of them, but of a term of a list it may have the Long one
// instead. nil: the index does not help. exact reports that, conversely, what has all terms of one of them is selected.
func (f *Filter) Terms() (alternatives [][]contain.Term, exact bool) {
	if f == nil {
		return nil, true
	}
	alternatives, exact = f.terms()
	for _, a := range alternatives {
		if len(a) == 0 {
			return nil, false
		}
	}
	return alternatives, exact
}

// terms is Terms in which an alternative may be without terms.
func (f *Filter) terms() (alternatives [][]contain.Term, exact bool) {
	alternatives, exact = [][]contain.Term{nil}, true
	for i := range f.fields {
		c := &f.fields[i]
		term, ok := c.equal.Term(c.key)
		if exact = exact && (ok || c.equal == nil && len(c.has) > 0); ok {
			alternatives[0] = append(alternatives[0], term)
		}
		for _, item := range c.has {
			term, ok := item.ItemTerm(c.key)
			if exact = exact && ok; ok {
				alternatives[0] = append(alternatives[0], term)
			}
		}
	}
	both := func(more [][]contain.Term, moreExact bool) {
		if len(alternatives)*len(more) > maxBranches {
			exact = false
			return
		}
		var out [][]contain.Term
		for _, a := range alternatives {
			for _, b := range more {
				out = append(out, append(append([]contain.Term(nil), a...), b...))
			}
		}
		alternatives, exact = out, exact && moreExact
	}
	for _, g := range f.and {
		both(g.terms())
	}
	if f.or != nil {
		var any [][]contain.Term
		anyExact := true
		for _, g := range f.or {
			of, ofExact := g.terms()
			any, anyExact = append(any, of...), anyExact && ofExact
		}
		both(any, anyExact)
	}
	return alternatives, exact
}
