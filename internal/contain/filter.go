package contain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Filter is a filter of store items: `{"field": value}` or `{"field": {"$op": value}}`, all of which must hold. Without an operator
// objects are contained, as LangGraph's stores do; a field that is absent is null. It is immutable; nil matches everything.
type Filter struct{ want condition }

// condition is one level of a filter: either operators, or fields, or items, or a value to be equal to.
type condition struct {
	ops    []operator
	fields map[string]condition
	items  []condition
	kind   kind
	equal  value
}

type operator struct {
	name string
	raw  json.RawMessage
	want value
}

var operators = []string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"}

// ParseFilter makes a filter ready. No bytes, null and {} match everything.
func ParseFilter(raw []byte) (*Filter, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, fmt.Errorf("not valid JSON: %.100q", raw)
	}
	if raw[0] != '{' {
		return nil, fmt.Errorf("a filter is an object")
	}
	c, err := parseCondition(raw)
	if err != nil {
		return nil, err
	}
	if c.ops != nil {
		return nil, fmt.Errorf("operators belong to a field")
	}
	if len(c.fields) == 0 {
		return nil, nil
	}
	return &Filter{c}, nil
}

// Match reports whether the value of an item passes the filter.
func (f *Filter) Match(doc []byte) bool { return f == nil || f.want.holds(doc) }

func parseCondition(raw json.RawMessage) (condition, error) {
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case '{':
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return condition{}, err
		}
		c := condition{kind: object, fields: map[string]condition{}}
		for k := range m {
			if strings.HasPrefix(k, "$") {
				return parseOperators(m)
			}
		}
		for k, r := range m {
			e, err := parseCondition(r)
			if err != nil {
				return condition{}, err
			}
			c.fields[k] = e
		}
		return c, nil
	case '[':
		var rs []json.RawMessage
		if err := json.Unmarshal(raw, &rs); err != nil {
			return condition{}, err
		}
		c := condition{kind: list}
		for _, r := range rs {
			e, err := parseCondition(r)
			if err != nil {
				return condition{}, err
			}
			c.items = append(c.items, e)
		}
		return c, nil
	}
	v, err := parse(raw)
	return condition{equal: v}, err
}

func parseOperators(m map[string]json.RawMessage) (condition, error) {
	c := condition{}
	for name, raw := range m {
		if !slices.Contains(operators, name) {
			return condition{}, fmt.Errorf("unknown operator %q", name)
		}
		v, err := parse(raw)
		if err != nil {
			return condition{}, err
		}
		c.ops = append(c.ops, operator{name, raw, v})
	}
	return c, nil
}

func (c condition) holds(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	for _, op := range c.ops {
		if !op.holds(raw) {
			return false
		}
	}
	switch {
	case c.ops != nil:
		return true
	case c.kind == object:
		var m map[string]json.RawMessage
		if raw[0] != '{' || json.Unmarshal(raw, &m) != nil {
			return false
		}
		for k, e := range c.fields {
			if !e.holds(m[k]) {
				return false
			}
		}
		return true
	case c.kind == list:
		var rs []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &rs) != nil || len(rs) != len(c.items) {
			return false
		}
		for i, e := range c.items {
			if !e.holds(rs[i]) {
				return false
			}
		}
		return true
	}
	return c.equal.matches(raw, true)
}

func (op operator) holds(raw json.RawMessage) bool {
	switch op.name {
	case "$eq":
		return op.want.matches(raw, true)
	case "$ne":
		return !op.want.matches(raw, true)
	}
	order, ok := Compare(raw, op.raw)
	if !ok {
		return false
	}
	switch op.name {
	case "$gt":
		return order > 0
	case "$gte":
		return order >= 0
	case "$lt":
		return order < 0
	default: // $lte
		return order <= 0
	}
}
