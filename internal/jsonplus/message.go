package jsonplus

import (
	"bytes"

	"github.com/tinylib/msgp/msgp"
)

// SplitArray returns the items of a msgpack value that is an array, without decoding them. They are parts of data. The array's
// header followed by the items is data again. Anything that is not an array (ErrNotArray), or is corrupt, is an error.
func SplitArray(data []byte) (items [][]byte, err error) {
	if len(data) == 0 || msgp.NextType(data) != msgp.ArrayType {
		return nil, ErrNotArray
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(data)
	if err != nil {
		return nil, err
	}
	// An item has at least one byte: a header that claims more than there is must not reserve memory.
	items = make([][]byte, 0, min(int(n), len(rest)))
	for range n {
		after, err := skip(rest)
		if err != nil {
			return nil, err
		}
		items = append(items, rest[:len(rest)-len(after):len(rest)-len(after)])
		rest = after
	}
	if len(rest) > 0 {
		return nil, errTrailing
	}
	return items, nil
}

// AppendItems appends the msgpack values that b is a sequence of, without decoding them, to items. They are parts of b.
func AppendItems(items [][]byte, b []byte) ([][]byte, error) {
	for len(b) > 0 {
		rest, err := skip(b)
		if err != nil {
			return items, err
		}
		n := len(b) - len(rest)
		items = append(items, b[:n:n])
		b = rest
	}
	return items, nil
}

// skip returns what follows the first value, however deep it is. Extensions, which most items of lists are, are stepped over without looking in.
func skip(b []byte) ([]byte, error) {
	for left := uint64(1); left > 0; left-- {
		var n uint32
		var err error
		if len(b) == 0 {
			return nil, errCorrupt
		}
		switch kind := msgp.NextType(b); {
		case kind == msgp.MapType:
			n, b, err = msgp.ReadMapHeaderBytes(b)
			left += 2 * uint64(n)
		case kind == msgp.ArrayType:
			n, b, err = msgp.ReadArrayHeaderBytes(b)
			left += uint64(n)
		case b[0] >= 0xc7 && b[0] <= 0xc9 || b[0] >= 0xd4 && b[0] <= 0xd8:
			ok := false
			if _, _, b, ok = readExt(b); !ok {
				return nil, errCorrupt
			}
		default:
			b, err = msgp.Skip(b)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Message is the part of a message that can be read without converting it.
type Message struct {
	ID         string
	HasID      bool
	Type       string // as in the field `type`: human, ai, tool, system, remove, AIMessageChunk…
	LCSource   string // additional_kwargs.lc_source
	Content    string // "" when it is not text
	ToolCallID string
}

// ParseMessage reads an item of a list of messages: an object of a message class, or a plain mapping that has `type` and
// `content`. ok is false when it is neither.
func ParseMessage(item []byte) (m Message, ok bool) {
	if len(item) == 0 {
		return m, false
	}
	if msgp.NextType(item) != msgp.MapType {
		code, payload, rest, isExt := readExt(item)
		if !isExt || len(rest) > 0 || code != extPydanticV2 && code != extPydanticV1 {
			return m, false
		}
		c, err := readCall(payload)
		if err != nil {
			return m, false
		}
		item = c.arg
		if len(item) == 0 || msgp.NextType(item) != msgp.MapType {
			return m, false
		}
	}
	hasType, hasContent := false, false
	err := eachEntry(item, func(key, value []byte) error {
		switch string(key) {
		case "id":
			m.ID, m.HasID = readText(value)
		case "type":
			m.Type, hasType = readText(value)
		case "content":
			hasContent = true
			m.Content, _ = readText(value)
		case "tool_call_id":
			m.ToolCallID, _ = readText(value)
		case "additional_kwargs":
			if len(value) > 0 && msgp.NextType(value) == msgp.MapType {
				return eachEntry(value, func(key, value []byte) error {
					if string(key) == "lc_source" {
						m.LCSource, _ = readText(value)
					}
					return nil
				})
			}
		}
		return nil
	})
	if err != nil || !hasType || !hasContent {
		return Message{}, false
	}
	return m, true
}

// eachEntry calls fn with the text keys of a msgpack map and their values, undecoded.
func eachEntry(b []byte, fn func(key, value []byte) error) error {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return err
	}
	for range n {
		var key []byte
		if len(rest) > 0 && msgp.NextType(rest) == msgp.StrType {
			if key, rest, err = msgp.ReadStringZC(rest); err != nil {
				return err
			}
		} else if rest, err = skip(rest); err != nil {
			return err
		}
		after, err := skip(rest)
		if err != nil {
			return err
		}
		if key != nil {
			if err := fn(key, rest[:len(rest)-len(after)]); err != nil {
				return err
			}
		}
		rest = after
	}
	return nil
}

func readText(b []byte) (string, bool) {
	if len(b) == 0 || msgp.NextType(b) != msgp.StrType {
		return "", false
	}
	s, _, err := msgp.ReadStringZC(b)
	return string(s), err == nil
}

// DeltaSnapshot returns the full value of a delta channel, as msgpack, if that is what data holds.
func DeltaSnapshot(data []byte) (value []byte, ok bool) {
	if len(data) == 0 {
		return nil, false
	}
	code, value, rest, ok := readExt(data)
	return value, ok && code == extDelta && len(rest) == 0
}

// IsNull reports whether a stored value is None.
func IsNull(typ string, data []byte) bool {
	return typ == TypeNull || typ == TypeMsgpack && bytes.Equal(data, []byte{0xc0}) || typ == TypeJSON && string(bytes.TrimSpace(data)) == "null"
}
