package contain

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Term is a scalar at the top level of an object, in canonical spelling: what an inverted index holds.
type Term struct{ Key, Value string }

// maxTerm bounds the bytes of a key and of a value in an index. Longer ones are not terms, in documents and queries alike.
const maxTerm = 256

func indexable(key, value string) bool { return len(key) <= maxTerm && len(value) <= maxTerm }

// Terms returns the terms of a document, sorted. Whatever is no object has none.
func Terms(doc []byte) []Term {
	var m map[string]json.RawMessage
	if json.Unmarshal(doc, &m) != nil {
		return nil
	}
	terms := make([]Term, 0, len(m))
	for k, r := range m {
		r = bytes.TrimSpace(r)
		if r[0] == '{' || r[0] == '[' {
			continue
		}
		if v, err := canonical(r); err == nil && indexable(k, v) {
			terms = append(terms, Term{k, v})
		}
	}
	slices.SortFunc(terms, func(a, b Term) int { return strings.Compare(a.Key, b.Key) })
	return terms
}

// Except returns the terms whose keys are not among some.
func Except(terms []Term, keys Hidden) []Term {
	if keys == nil {
		return terms
	}
	return slices.DeleteFunc(slices.Clone(terms), func(t Term) bool { return keys(t.Key) })
}

// Terms returns those terms that every matching document has. all says that a document which has them matches: nothing else is asked.
func (m *Matcher) Terms() (terms []Term, all bool) {
	if m == nil {
		return nil, true
	}
	if m.want.kind != object {
		return nil, false
	}
	for _, f := range m.want.fields {
		if f.value.kind == scalar && indexable(f.key, f.value.text) && !(m.hidden != nil && m.hidden(f.key)) {
			terms = append(terms, Term{f.key, f.value.text})
		}
	}
	return terms, len(terms) == len(m.want.fields)
}
