package overlay

import (
	"bytes"
	"encoding/json"

	"github.com/tidwall/gjson"
)

// The functions below find their way in valid JSON without decoding it. Values of a state are megabytes in long threads, and gjson copies
// what it finds.

// member finds the value of a key of an object: object[start:end].
func member(object []byte, key string) (start, end int, ok bool) {
	i := blank(object, 0)
	if i >= len(object) || object[i] != '{' {
		return 0, 0, false
	}
	for i = blank(object, i+1); i < len(object) && object[i] == '"'; i = blank(object, i+1) {
		after := skip(object, i)
		if after > len(object) {
			break
		}
		name := object[i:after]
		start = blank(object, blank(object, after)+1) // over the colon
		end = skip(object, start)
		if end > len(object) {
			return 0, 0, false
		}
		if isKey(name, key) {
			return start, end, true
		}
		if i = blank(object, end); i >= len(object) || object[i] != ',' {
			break
		}
	}
	return 0, 0, false
}

// isKey reports whether a quoted name is key.
func isKey(quoted []byte, key string) bool {
	if len(quoted) >= 2 && bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == key
	}
	return gjson.ParseBytes(quoted).String() == key
}

// elements gives the items of an array; ok is false for anything else.
func elements(array []byte) (items []json.RawMessage, ok bool) {
	i := blank(array, 0)
	if i >= len(array) || array[i] != '[' {
		return nil, false
	}
	for i = blank(array, i+1); i < len(array) && array[i] != ']'; i = blank(array, i+1) {
		end := skip(array, i)
		if end > len(array) {
			return nil, false
		}
		items = append(items, array[i:end:end])
		if i = blank(array, end); i >= len(array) || array[i] != ',' {
			break
		}
	}
	return items, true
}

// join gives an array of items.
func join(items []json.RawMessage) json.RawMessage {
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

// splice gives b with another text between start and end.
func splice(b []byte, start, end int, with []byte) json.RawMessage {
	out := make([]byte, 0, len(b)-(end-start)+len(with))
	return append(append(append(out, b[:start]...), with...), b[end:]...)
}

// blank gives the index of the first byte from i on that is no white space.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip gives the index after the value that begins at i. It is more than len(b) when the value does not end.
func skip(b []byte, i int) int {
	broken := len(b) + 1
	if i >= len(b) {
		return broken
	}
	switch b[i] {
	case '"':
		for i++; i < len(b); {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return broken
			}
			escape := bytes.IndexByte(b[i:i+n], '\\')
			if escape < 0 {
				return i + n + 1
			}
			i += escape + 2
		}
		return broken
	case '{', '[':
		for depth := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				i = skip(b, i) - 1
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

// text gives a member of an object if it is a string, else "".
func text(object []byte, key string) string {
	start, end, ok := member(object, key)
	if !ok || object[start] != '"' {
		return ""
	}
	if quoted := object[start:end]; bytes.IndexByte(quoted, '\\') >= 0 {
		return gjson.ParseBytes(quoted).String()
	}
	return string(object[start+1 : end-1])
}

// raw gives a member of an object as it is; nil when there is none.
func raw(object []byte, key string) json.RawMessage {
	start, end, ok := member(object, key)
	if !ok {
		return nil
	}
	return object[start:end:end]
}
