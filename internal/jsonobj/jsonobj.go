// Package jsonobj edits JSON objects one level deep, keeping the order of keys and the bytes of values.
package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// ErrNotObject: the bytes are JSON, but not an object.
var ErrNotObject = errors.New("not a JSON object")

// Object is a JSON object whose values are untouched bytes. The zero value is empty and usable. Every method that names a key takes
// constant time, whatever the number of keys: clients choose it.
type Object struct {
	fields []field
	index  map[string]int // places of keys in fields; nil while there are few
	gone   int            // deleted fields that are still in fields, with an index only
}

type field struct {
	key   string
	value json.RawMessage
	gone  bool
}

// few is how many keys are searched faster one by one.
const few = 16

// find returns the place of a key in fields, or -1.
func (o *Object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range o.fields {
		if o.fields[i].key == key {
			return i
		}
	}
	return -1
}

// Parse reads an object; nil, `null` and blanks are an empty one. Of equal keys the last wins, in the place of the first.
// raw must be valid JSON: it comes from a decoder that checked it.
func Parse(raw json.RawMessage) (*Object, error) {
	o := &Object{}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "{}" || string(raw) == "null" {
		return o, nil
	}
	if raw[0] != '{' {
		return nil, ErrNotObject
	}
	o.fields = make([]field, 0, 4) // most have no more, and get one
	gjson.ParseBytes(raw).ForEach(func(k, v gjson.Result) bool {
		o.Set(k.String(), json.RawMessage(v.Raw))
		return true
	})
	return o, nil
}

// Of is Parse for bytes that are known to be an object; anything else is an empty one.
func Of(raw json.RawMessage) *Object {
	o, err := Parse(raw)
	if err != nil {
		return &Object{}
	}
	return o
}

// Len is the number of keys.
func (o *Object) Len() int { return len(o.fields) - o.gone }

// Keys returns the keys in order; nil when there are none.
func (o *Object) Keys() []string {
	var keys []string
	o.Each(func(key string, _ json.RawMessage) { keys = append(keys, key) })
	return keys
}

// Get returns the value of a key, nil when it is absent.
func (o *Object) Get(key string) json.RawMessage {
	if i := o.find(key); i >= 0 {
		return o.fields[i].value
	}
	return nil
}

// Text returns the value of a key if it is a string, else "".
func (o *Object) Text(key string) string {
	v := o.Get(key)
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return gjson.ParseBytes(v).String()
}

// Set sets the value of a key: in place when it exists, else at the end.
func (o *Object) Set(key string, value json.RawMessage) {
	if i := o.find(key); i >= 0 {
		o.fields[i].value = value
		return
	}
	o.fields = append(o.fields, field{key: key, value: value})
	switch {
	case o.index != nil:
		o.index[key] = len(o.fields) - 1
	case len(o.fields) > few:
		o.rebuild()
	}
}

// rebuild drops deleted fields and makes the index.
func (o *Object) rebuild() {
	o.fields = slices.DeleteFunc(o.fields, func(f field) bool { return f.gone })
	o.gone, o.index = 0, make(map[string]int, 2*len(o.fields))
	for i := range o.fields {
		o.index[o.fields[i].key] = i
	}
}

// SetText is Set with a string.
func (o *Object) SetText(key, value string) { o.Set(key, Quote(value)) }

// Delete removes a key.
func (o *Object) Delete(key string) {
	i := o.find(key)
	switch {
	case i < 0:
	case o.index == nil:
		o.fields = slices.Delete(o.fields, i, i+1)
	default:
		o.fields[i] = field{gone: true}
		delete(o.index, key)
		if o.gone++; o.gone > len(o.fields)/2 {
			o.rebuild()
		}
	}
}

// Merge sets every key of other.
func (o *Object) Merge(other *Object) { other.Each(o.Set) }

// Each calls fn for every key in order. fn must not change the object.
func (o *Object) Each(fn func(key string, value json.RawMessage)) {
	for i := range o.fields {
		if f := &o.fields[i]; !f.gone {
			fn(f.key, f.value)
		}
	}
}

// JSON is the object as compact bytes (values as they are).
func (o *Object) JSON() json.RawMessage {
	size := 2
	for _, f := range o.fields {
		size += len(f.key) + len(f.value) + 4
	}
	out := append(make([]byte, 0, size), '{')
	o.Each(func(key string, value json.RawMessage) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendText(out, key), ':'), value...)
	})
	return append(out, '}')
}

// Quote is a string as JSON, with characters beyond ASCII as they are.
func Quote(s string) json.RawMessage { return AppendText(make([]byte, 0, len(s)+2), s) }

const hexDigits = "0123456789abcdef"

// Single is an object with one member, a text.
func Single(key, text string) json.RawMessage {
	b := append(make(json.RawMessage, 0, len(key)+len(text)+len(`{"":""}`)), '{')
	b = append(AppendText(b, key), ':')
	return append(AppendText(b, text), '}')
}

// AppendText appends a string as JSON that escapes no more than it must. Each byte that is no UTF-8 becomes U+FFFD.
func AppendText(b []byte, text string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, text[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, text[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, text[start:]...), '"')
}

// Merge returns base with every key of over, as one object. Either may be nil.
func Merge(base, over json.RawMessage) json.RawMessage {
	o := Of(base)
	o.Merge(Of(over))
	return o.JSON()
}
