package contain

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Term is a scalar at the top level of an object, in canonical spelling: what an inverted index holds. A scalar in a list at the top level is a term too:
// its value begins with inList, as that of no scalar does. A list with too many items is one term without an item (Long).
type Term struct{ Key, Value string }

const (
	// maxTerm bounds the bytes of a key and of a value in an index. Longer ones are not terms, in documents and queries alike.
	maxTerm = 256
	// maxItems bounds the items of a list that are terms, and maxAllItems those of all lists of a document: a document is indexed again whenever it is used.
	maxItems, maxAllItems = 32, 128

	inList = "["
)

func indexable(key, value string) bool { return len(key) <= maxTerm && len(value) <= maxTerm }

// OfList reports whether the term is of a list.
func (t Term) OfList() bool { return strings.HasPrefix(t.Value, inList) }

// Long returns the term of documents whose list is too long for terms of its items: whether one of them has this term, the index does not know.
func (t Term) Long() Term { return Term{t.Key, inList} }

// Terms returns the terms of a document, sorted, each once. Whatever is no object has none.
func Terms(doc []byte) []Term {
	var m map[string]json.RawMessage
	if json.Unmarshal(doc, &m) != nil {
		return nil
	}
	terms := make([]Term, 0, len(m))
	var lists []string
	for k, r := range m {
		r = bytes.TrimSpace(r)
		switch {
		case r[0] == '[':
			lists = append(lists, k)
		case r[0] != '{':
			if v, err := canonical(r); err == nil && indexable(k, v) {
				terms = append(terms, Term{k, v})
			}
		}
	}
	slices.Sort(lists) // the same lists of equal documents are too many
	left := maxAllItems
	for _, k := range lists {
		items := itemTerms(k, m[k], min(left, maxItems))
		left -= len(items)
		terms = append(terms, items...)
	}
	slices.SortFunc(terms, func(a, b Term) int { return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value)) })
	return slices.Compact(terms)
}

// itemTerms returns the terms of a list with at most limit items.
func itemTerms(key string, raw []byte, limit int) (terms []Term) {
	var items []json.RawMessage
	if len(key) > maxTerm || json.Unmarshal(raw, &items) != nil {
		return nil
	}
	if len(items) > limit {
		return []Term{Term{Key: key}.Long()}
	}
	for _, r := range items {
		if r = bytes.TrimSpace(r); r[0] == '{' || r[0] == '[' {
			continue
		}
		if v, err := canonical(r); err == nil && indexable(key, v) {
			terms = append(terms, Term{key, inList + v})
		}
	}
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
