// Package contain decides whether one JSON value contains another, as searches by metadata and values mean it: an object contains
// another when it has all its keys with values that contain the other's; lists and scalars must be equal. Numbers are compared by
// value (1 and 1.0 are equal, and integers of any size keep all their digits), text after its escapes.
package contain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Matcher is a query made ready to be held against many documents. It is immutable. The nil Matcher matches everything.
type Matcher struct {
	want   value
	hidden Hidden // keys that no index has
}

// Hidden reports whether no index has a key; nil hides none.
type Hidden func(key string) bool

// Hide makes the matcher aware of keys that no index has.
func (m *Matcher) Hide(keys Hidden) {
	if m != nil {
		m.hidden = keys
	}
}

type kind uint8

const (
	scalar kind = iota
	list
	object
)

// value is a JSON value as far as it must be known to compare with it.
type value struct {
	kind   kind
	text   string // of scalars: canonical
	items  []value
	fields []field // sorted by key, each key once
}

type field struct {
	key   string
	value value
}

// Parse makes a query ready. No query (no bytes) matches everything; so does `{}` match every object.
func Parse(query []byte) (*Matcher, error) {
	if len(bytes.TrimSpace(query)) == 0 {
		return nil, nil
	}
	if !json.Valid(query) {
		return nil, fmt.Errorf("not valid JSON: %.100q", query)
	}
	want, err := parse(query)
	if err != nil {
		return nil, err
	}
	return &Matcher{want: want}, nil
}

// Match reports whether doc contains query. What is no JSON contains nothing and is contained in nothing.
func Match(doc, query []byte) bool {
	m, err := Parse(query)
	return err == nil && m.Match(doc)
}

// Everything reports whether the matcher restricts nothing, if documents are objects.
func (m *Matcher) Everything() bool {
	return m == nil || m.want.kind == object && len(m.want.fields) == 0
}

// Match reports whether doc contains the query. An empty doc is an empty object.
func (m *Matcher) Match(doc []byte) bool {
	if m == nil {
		return true
	}
	if len(doc) == 0 {
		doc = []byte("{}")
	}
	return m.want.matches(doc, false)
}

func parse(raw []byte) (value, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return value{}, fmt.Errorf("no JSON value")
	}
	switch raw[0] {
	case '{':
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return value{}, err
		}
		v := value{kind: object}
		for k, r := range m {
			e, err := parse(r)
			if err != nil {
				return value{}, err
			}
			v.fields = append(v.fields, field{k, e})
		}
		slices.SortFunc(v.fields, func(a, b field) int { return strings.Compare(a.key, b.key) })
		return v, nil
	case '[':
		var rs []json.RawMessage
		if err := json.Unmarshal(raw, &rs); err != nil {
			return value{}, err
		}
		v := value{kind: list}
		for _, r := range rs {
			e, err := parse(r)
			if err != nil {
				return value{}, err
			}
			v.items = append(v.items, e)
		}
		return v, nil
	}
	text, err := canonical(raw)
	return value{text: text}, err
}

// matches reports whether the document contains v, or with exactly, equals it.
func (v value) matches(raw []byte, exactly bool) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '{':
		if v.kind != object {
			return false
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil || exactly && len(m) != len(v.fields) {
			return false
		}
		for _, f := range v.fields {
			r, ok := m[f.key]
			if !ok || !f.value.matches(r, exactly) {
				return false
			}
		}
		return true
	case '[':
		if v.kind != list {
			return false
		}
		var rs []json.RawMessage
		if json.Unmarshal(raw, &rs) != nil || len(rs) != len(v.items) {
			return false
		}
		for i, e := range v.items {
			if !e.matches(rs[i], true) {
				return false
			}
		}
		return true
	}
	if v.kind != scalar {
		return false
	}
	if isPlain(raw) {
		return string(raw[:len(raw)-1]) == v.text
	}
	text, err := canonical(raw)
	return err == nil && text == v.text
}

// canonical spells a scalar so that equal ones are spelled alike: text as `"` and its characters, numbers as digits and an
// exponent, the rest as itself. The first character distinguishes the types.
func canonical(raw []byte) (string, error) {
	switch c := raw[0]; {
	case c == '"':
		if isPlain(raw) {
			return string(raw[:len(raw)-1]), nil
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", err
		}
		return `"` + s, nil
	case c == '-' || c >= '0' && c <= '9':
		return number(string(raw)), nil
	}
	switch s := string(raw); s {
	case "true", "false", "null":
		return s, nil
	}
	return "", fmt.Errorf("not a JSON value: %.100q", raw)
}

// isPlain reports whether JSON is a text that stands for itself.
func isPlain(raw []byte) bool {
	return len(raw) >= 2 && raw[0] == '"' && raw[len(raw)-1] == '"' && plain(raw[1:len(raw)-1])
}

// plain reports whether text between quotes stands for itself.
func plain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c >= 0x80 || c == '\\' || c == '"' {
			return false
		}
	}
	return true
}

// number spells a JSON number as digits without zeros at either end, and a power of ten: 1, 1.0 and 10e-1 are all `1e0`. No
// arithmetic is done on the digits, so no number is too large or too precise.
func number(s string) string {
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	digits, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e > 1<<40 || e < -(1<<40) {
			return sign + s // no one writes this; equal only to itself
		}
		digits, exponent = s[:i], e
	}
	if i := strings.IndexByte(digits, '.'); i >= 0 {
		exponent -= len(digits) - i - 1
		digits = digits[:i] + digits[i+1:]
	}
	digits = strings.TrimLeft(digits, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return "0e0" // also -0: equal to 0 everywhere
	}
	return sign + trimmed + "e" + strconv.Itoa(exponent+len(digits)-len(trimmed))
}
