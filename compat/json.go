package compat

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// MaxDepth is the maximum nesting of arrays and objects in a body, as in LangGraph Server. Every accepted body can be stored, read by
// graphs, and shown again with the levels that answers add.
const MaxDepth = 255

// parseDepth is the maximum depth of LangGraph Server's parser. To it, anything deeper is not JSON.
const parseDepth = 1024

var (
	// ErrJSON is the answer to a body that is not JSON, or has a number outside the range of float64.
	ErrJSON = fault.New(fault.Unprocessable, "Invalid JSON in request body")
	// ErrDepth is the answer to a body nested deeper than MaxDepth.
	ErrDepth = fault.New(fault.Invalid, "Recursion limit reached")
)

// Prepare checks that body is JSON of limited depth with finite numbers, and compacts it. It works in place: body is overwritten.
//
// An escaped NUL becomes an escaped U+FFFD, as LangGraph Server shows it; databases do not store NUL in text. Lone surrogates are refused,
// as by the Python server. Of equal keys of an object the last counts. Numbers of more digits than a float64 has are rounded to one.
func Prepare(body []byte) ([]byte, error) {
	// Measuring first, without recursion, so that no parser meets a million brackets.
	shape := jsonscan.Measure(body)
	if shape.Depth > parseDepth || shape.Overflows || !utf8.Valid(body) || !json.Valid(body) {
		return nil, ErrJSON
	}
	if shape.Depth > MaxDepth {
		return nil, ErrDepth
	}
	if !shape.Excessive && !bytes.ContainsAny(body, "\\ \t\r\n") {
		return unrepeated(body), nil
	}
	w, in := 0, false
	for r := 0; r < len(body); r++ {
		c := body[r]
		switch {
		case !in:
			if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
				continue
			}
			if shape.Excessive && c >= '0' && c <= '9' {
				end, short := jsonscan.ShortNumber(body, r)
				if short == nil {
					short = body[r:end]
				}
				w += copy(body[w:], short)
				r = end - 1
				continue
			}
			in = c == '"'
		case c == '"':
			in = false
		case c == '\\' && body[r+1] != 'u':
			body[w], body[w+1] = c, body[r+1]
			w, r = w+2, r+1
			continue
		case c == '\\':
			u, _ := jsonscan.Escaped(body[r:])
			switch {
			case u == 0:
				w += copy(body[w:], `\ufffd`)
				r += 5
				continue
			case u >= 0xDC00 && u <= 0xDFFF:
				return nil, ErrJSON
			case utf16.IsSurrogate(u):
				if low, _ := jsonscan.Escaped(body[r+6:]); low < 0xDC00 || low > 0xDFFF {
					return nil, ErrJSON
				}
				w += copy(body[w:], body[r:r+12])
				r += 11
				continue
			}
		}
		body[w] = c
		w++
	}
	return unrepeated(body[:w]), nil
}

// object holds the members of a JSON object. Of repeated keys the last counts.
type object map[string]json.RawMessage

// members returns the members of o, which must be an object prepared by Prepare.
func members(o []byte) object {
	m := object{}
	each(o, func(key string, val []byte) { m[key] = val })
	return m
}

// each calls f for the members of an object or the elements of an array (with an empty key), in order. For other values f is not called.
func each(v []byte, f func(key string, val []byte)) {
	jsonscan.Each(v, func(key []byte, start, end int) bool {
		f(text(key), v[start:end:end])
		return true
	})
	elements, _ := jsonscan.Elements(v)
	for _, e := range elements {
		f("", e)
	}
}

// text decodes a JSON string; other values are "".
func text(v []byte) string { return jsonscan.Unquote(v) }

func isNull(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// raw returns a member, nil when it is absent or null.
func (o object) raw(key string) json.RawMessage {
	if v := o[key]; !isNull(v) {
		return v
	}
	return nil
}

func (o object) text(key string) string { return text(o[key]) }

// textOr is text with a default for an absent or null member.
func (o object) textOr(key, def string) string {
	if v := o.raw(key); v != nil {
		return text(v)
	}
	return def
}

// textPtr returns nil when the member is absent or null.
func (o object) textPtr(key string) *string {
	v := o.raw(key)
	if v == nil {
		return nil
	}
	s := text(v)
	return &s
}

func (o object) bool(key string) bool { return string(o[key]) == "true" }

func (o object) boolPtr(key string) *bool {
	v := o.raw(key)
	if v == nil {
		return nil
	}
	b := string(v) == "true"
	return &b
}

// integer returns an integer, limited to int32: no count or offset needs more.
func (o object) integer(key string, def int) int {
	v := o.raw(key)
	if v == nil {
		return def
	}
	f, _ := strconv.ParseFloat(string(v), 64)
	return int(min(max(f, -1<<31), 1<<31-1))
}

func (o object) number(key string) float64 {
	f, _ := strconv.ParseFloat(string(o[key]), 64)
	return f
}

// texts returns a list of strings; nil when it is absent or null.
func (o object) texts(key string) []string {
	v := o.raw(key)
	if v == nil {
		return nil
	}
	list := []string{}
	each(v, func(_ string, e []byte) { list = append(list, text(e)) })
	return list
}

// without returns an object without the members for whose key drop returns true; the same bytes when there are none.
func without(o json.RawMessage, drop func(key string) bool) json.RawMessage {
	if len(o) == 0 || o[0] != '{' {
		return o
	}
	found := false
	each(o, func(key string, _ []byte) { found = found || drop(key) })
	if !found {
		return o
	}
	out := []byte{'{'}
	each(o, func(key string, val []byte) {
		if !drop(key) {
			out = appendMember(out, key, val)
		}
	})
	return append(out, '}')
}

// distinct returns an object without repeated keys: the last value remains, in the place of the first, as in Python. Readers of stored JSON
// disagree on which of two counts.
func distinct(o json.RawMessage) json.RawMessage {
	if len(o) == 0 || o[0] != '{' {
		return o
	}
	n := 0
	each(o, func(string, []byte) { n++ })
	last := members(o)
	if len(last) == n {
		return o
	}
	out := []byte{'{'}
	each(o, func(key string, _ []byte) {
		if v, left := last[key]; left {
			out = appendMember(out, key, v)
			delete(last, key)
		}
	})
	return append(out, '}')
}

// with returns an object with one member replaced in place.
func with(o json.RawMessage, name string, val json.RawMessage) json.RawMessage {
	out := []byte{'{'}
	each(o, func(key string, old []byte) {
		if key == name {
			old = val
		}
		out = appendMember(out, key, old)
	})
	return append(out, '}')
}

// appendMember appends `"key":val` to an object under construction, with a comma if needed.
func appendMember(dst []byte, key string, val []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = jsonobj.AppendText(dst, key)
	dst = append(dst, ':')
	return append(dst, val...)
}

// Text decodes a JSON string; other values are "".
func Text(v []byte) string { return text(v) }
