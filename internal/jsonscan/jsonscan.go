// Package jsonscan finds its way in valid JSON without decoding it. Values of a state are megabytes in long threads, and gjson copies what it finds.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"github.com/tidwall/gjson"
)

// Member finds the value of a key of an object: object[start:end].
func Member(object []byte, key string) (start, end int, ok bool) {
	Each(object, func(name []byte, from, to int) bool {
		if IsKey(name, key) {
			start, end, ok = from, to, true
		}
		return !ok
	})
	return start, end, ok
}

// IsKey reports whether a quoted name is key.
func IsKey(quoted []byte, key string) bool {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == key
	}
	return gjson.ParseBytes(quoted).String() == key
}

// Elements returns the items of an array; ok is false for anything else.
func Elements(array []byte) (items []json.RawMessage, ok bool) {
	i := Blank(array, 0)
	if i >= len(array) || array[i] != '[' {
		return nil, false
	}
	for i = Blank(array, i+1); i < len(array) && array[i] != ']'; i = Blank(array, i+1) {
		end := Skip(array, i)
		if end > len(array) {
			return nil, false
		}
		items = append(items, array[i:end:end])
		if i = Blank(array, end); i >= len(array) || array[i] != ',' {
			break
		}
	}
	return items, true
}

// Join returns an array of items.
func Join(items []json.RawMessage) json.RawMessage {
	size := 2
	for _, item := range items {
		size += len(item) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// Splice returns b with another Text between start and end.
func Splice(b []byte, start, end int, with []byte) json.RawMessage {
	out := make([]byte, 0, len(b)-(end-start)+len(with))
	return append(append(append(out, b[:start]...), with...), b[end:]...)
}

// Blank returns the index of the first byte from i on that is no white space.
func Blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// Skip returns the index after the value that begins at i. It is more than len(b) when the value does not end.
func Skip(b []byte, i int) int {
	broken := len(b) + 1
	if i >= len(b) {
		return broken
	}
	switch b[i] {
	case '"':
		// A quote is looked for once, not once per escape before it: clients choose how many there are.
		for i, quote := i+1, -1; i < len(b); {
			if quote < i {
				n := bytes.IndexByte(b[i:], '"')
				if n < 0 {
					return broken
				}
				quote = i + n
			}
			escape := bytes.IndexByte(b[i:quote], '\\')
			if escape < 0 {
				return quote + 1
			}
			i += escape + 2
		}
		return broken
	case '{', '[':
		for depth := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				i = Skip(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return broken
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ':' && b[i] > ' ' {
		i++
	}
	return i
}

// Text returns a Member of an object if it is a string, else "".
func Text(object []byte, key string) string {
	return Unquote(Raw(object, key))
}

// Unquote returns a string of JSON; "" for any other value.
func Unquote(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') >= 0 {
		return gjson.ParseBytes(v).String()
	}
	return string(v[1 : len(v)-1])
}

// Raw returns a Member of an object as it is; nil when there is none.
func Raw(object []byte, key string) json.RawMessage {
	start, end, ok := Member(object, key)
	if !ok {
		return nil
	}
	return object[start:end:end]
}

// maxDepth bounds how deep JSON of others may be nested: checking it goes down as deep as it is.
const maxDepth = 10_000

// Valid reports whether b is one JSON value that the functions of this package, and gjson, may be given.
func Valid(b []byte) bool {
	return (bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) <= maxDepth || !DeeperThan(b, maxDepth)) && gjson.ValidBytes(b)
}

// DeeperThan reports whether arrays and objects in b are nested more than limit levels deep. It reads b once and does not recurse, so it
// may come before any other check; b need not be valid JSON.
func DeeperThan(b []byte, limit int) bool {
	for i, depth := 0, 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = Skip(b, i) - 1
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// Shape is what Measure finds in JSON.
type Shape struct {
	Depth int // of arrays and objects, one in the other
	// Overflows: a number is beyond what a float64 holds. Readers that keep numbers as floats see infinity there, or refuse all of the JSON.
	Overflows bool
	// Excessive: a number is finite, but has so many digits, or an exponent so small, that storages and readers with bounds of their own may
	// refuse it. ShortNumber spells its value shortly.
	Excessive bool
}

// Measure reads b once and does not recurse, so it may come before any other check; b need not be valid JSON.
func Measure(b []byte) Shape {
	var s Shape
	for i, depth := 0, 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			i = Skip(b, i) - 1
		case c == '{', c == '[':
			depth++
			s.Depth = max(s.Depth, depth)
		case c == '}', c == ']':
			depth--
		case c >= '0' && c <= '9':
			end, exponent := number(b, i)
			if exponent || end-i > floatDigits {
				f, err := strconv.ParseFloat(string(b[i:end]), 64)
				s.Overflows = s.Overflows || err != nil && math.IsInf(f, 0)
				s.Excessive = s.Excessive || end-i > floatDigits || f == 0
			}
			i = end - 1
		}
	}
	return s
}

// floatDigits is how many digits the largest float64 has at least: a shorter number without an exponent is none that overflows.
const floatDigits = 308

// number returns the index after the number that begins at i, its sign left out, and whether it has an exponent.
func number(b []byte, i int) (end int, exponent bool) {
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9', c == '.':
		case c == 'e', c == 'E':
			exponent = true
		case (c == '+' || c == '-') && (b[i-1] == 'e' || b[i-1] == 'E'):
		default:
			return i, exponent
		}
	}
	return i, exponent
}

// ShortNumber returns the index after the number that begins at i, its sign left out, and a short spelling of its value when Measure calls it
// excessive; nil when it may stay as it is. The spelling is never longer.
func ShortNumber(b []byte, i int) (end int, short []byte) {
	end, exponent := number(b, i)
	if !exponent && end-i <= floatDigits {
		return end, nil
	}
	f, err := strconv.ParseFloat(string(b[i:end]), 64)
	switch {
	case err != nil:
		return end, nil
	case f == 0:
		return end, []byte("0.0")
	case end-i > floatDigits:
		return end, strconv.AppendFloat(nil, f, 'e', -1, 64)
	}
	return end, nil
}

// Each calls fn with the members of an object in order, keys as they are quoted, until it returns false. Anything else has no members.
func Each(object []byte, fn func(key []byte, start, end int) bool) {
	i := Blank(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for i = Blank(object, i+1); i < len(object) && object[i] == '"'; i = Blank(object, i+1) {
		after := Skip(object, i)
		if after > len(object) {
			return
		}
		start := Blank(object, Blank(object, after)+1) // over the colon
		end := Skip(object, start)
		if end > len(object) || !fn(object[i:after], start, end) {
			return
		}
		if i = Blank(object, end); i >= len(object) || object[i] != ',' {
			return
		}
	}
}

// Escaped reads \uXXXX at the beginning of a text: a unit of UTF-16. ok is false when there is none.
func Escaped(text []byte) (unit rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
