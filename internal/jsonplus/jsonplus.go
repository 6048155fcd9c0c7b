package jsonplus

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/tinylib/msgp/msgp"

	"understudy/internal/jsonscan"
)

// Types of stored values, as JsonPlusSerializer.dumps_typed names them.
const (
	TypeNull      = "null"
	TypeBytes     = "bytes"
	TypeBytearray = "bytearray"
	TypeJSON      = "json"
	TypeMsgpack   = "msgpack"
	TypePickle    = "pickle"
)

var (
	// ErrPickle: the value is a pickle. Reading one means running code out of the database, so none is ever read.
	ErrPickle = errors.New("jsonplus: pickled values are not read")
	// ErrType: the value is of an unknown type.
	ErrType = errors.New("jsonplus: unknown type")
	// ErrDepth: the value is nested deeper than is written here.
	ErrDepth = errors.New("jsonplus: nested too deeply")

	errCorrupt  = errors.New("jsonplus: corrupt value")
	errTrailing = errors.New("jsonplus: bytes after the value")
)

// maxDepth bounds nesting of what is written here. ormsgpack, which reads these values, stops at 1024 levels.
const maxDepth = 1024

// ShownDepth is how many levels of arrays and objects of a value are shown; an array or object below them is null. Clients read answers with parsers that
// stop at 1024 levels (orjson) or near 1,000 (Python's), and answers add some of their own. Workers have the same bound (jsonenc.py).
const ShownDepth = 920

// A position within a value counts its levels of arrays and objects, and in higher bits those of calls, of which there may be as many,
// and those of keys that are no text.
const (
	callLevel  = 1 << 16
	levelsMask = callLevel - 1
	keyLevel   = 1 << 32
	callsMask  = keyLevel - 1
)

// AppendJSON appends a stored value to dst as compact JSON. typ is one of the Type constants. Values nested too deeply become null. After
// an error dst's bytes are unchanged; test for ErrPickle with errors.Is.
func AppendJSON(dst []byte, typ string, data []byte) ([]byte, error) {
	return AppendJSONBelow(dst, 0, typ, data)
}

// AppendJSONBelow is AppendJSON for a value that is shown below so many levels of arrays and objects. The values of a checkpoint are one object: a
// channel stands below one level, and an item of a list in it below two. Streams show them as a whole, and both must end at the same depth.
func AppendJSONBelow(dst []byte, levels int, typ string, data []byte) ([]byte, error) {
	start := len(dst)
	var err error
	switch typ {
	case TypeNull:
		return append(dst, "null"...), nil
	case TypeBytes, TypeBytearray:
		return appendBase64(dst, data), nil
	case TypeMsgpack:
		dst, err = appendWhole(dst, data, levels)
	case TypeJSON:
		var packed []byte
		if packed, err = packShown(data); err == nil {
			dst, err = appendWhole(dst, packed, levels)
		}
	default:
		err = unread(typ)
	}
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

// Pack returns a stored value of any form as msgpack. A msgpack value is returned unchecked, as the caller's data. Test for ErrPickle and ErrType
// with errors.Is.
func Pack(typ string, data []byte) ([]byte, error) {
	switch typ {
	case TypeMsgpack:
		return data, nil
	case TypeJSON:
		return packJSON(data)
	case TypeNull:
		return msgp.AppendNil(nil), nil
	case TypeBytes, TypeBytearray:
		return msgp.AppendBytes(nil, data), nil
	}
	return nil, unread(typ)
}

func unread(typ string) error {
	if typ == TypePickle {
		return ErrPickle
	}
	return fmt.Errorf("%w %q", ErrType, typ)
}

// appendWhole appends a msgpack value that must fill b.
func appendWhole(dst, b []byte, depth int) ([]byte, error) {
	dst, rest, err := appendValue(dst, b, depth)
	if err == nil && len(rest) > 0 {
		err = errTrailing
	}
	return dst, err
}

// appendValue appends the first msgpack value of b and returns the bytes after it.
func appendValue(dst, b []byte, depth int) ([]byte, []byte, error) {
	if len(b) == 0 {
		return dst, b, errCorrupt
	}
	kind := msgp.NextType(b)
	if depth&levelsMask >= ShownDepth && (kind == msgp.MapType || kind == msgp.ArrayType) {
		rest, err := skip(b)
		if err != nil {
			return dst, b, err
		}
		return append(dst, "null"...), rest, nil
	}
	switch kind {
	case msgp.StrType:
		s, rest, err := msgp.ReadStringZC(b)
		if err != nil {
			return dst, b, err
		}
		return appendString(dst, s), rest, nil
	case msgp.BinType:
		s, rest, err := msgp.ReadBytesZC(b)
		if err != nil {
			return dst, b, err
		}
		return appendBase64(dst, s), rest, nil
	case msgp.MapType:
		n, rest, err := msgp.ReadMapHeaderBytes(b)
		if err != nil {
			return dst, b, err
		}
		dst = append(dst, '{')
		for i := range n {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, rest, err = appendKey(dst, rest, depth+1); err != nil {
				return dst, b, err
			}
			dst = append(dst, ':')
			if dst, rest, err = appendValue(dst, rest, depth+1); err != nil {
				return dst, b, err
			}
		}
		return append(dst, '}'), rest, nil
	case msgp.ArrayType:
		n, rest, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return dst, b, err
		}
		dst = append(dst, '[')
		for i := range n {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, rest, err = appendValue(dst, rest, depth+1); err != nil {
				return dst, b, err
			}
		}
		return append(dst, ']'), rest, nil
	case msgp.NilType:
		return append(dst, "null"...), b[1:], nil
	case msgp.BoolType:
		v, rest, err := msgp.ReadBoolBytes(b)
		return strconv.AppendBool(dst, v), rest, err
	case msgp.IntType, msgp.UintType:
		if b[0] == 0xcf { // the only form that int64 may not hold
			v, rest, err := msgp.ReadUint64Bytes(b)
			if err != nil {
				return dst, b, err
			}
			return strconv.AppendUint(dst, v, 10), rest, nil
		}
		v, rest, err := msgp.ReadInt64Bytes(b)
		if err != nil {
			return dst, b, err
		}
		return strconv.AppendInt(dst, v, 10), rest, nil
	case msgp.Float64Type:
		v, rest, err := msgp.ReadFloat64Bytes(b)
		if err != nil {
			return dst, b, err
		}
		return appendFloat(dst, v), rest, nil
	case msgp.Float32Type:
		v, rest, err := msgp.ReadFloat32Bytes(b)
		if err != nil {
			return dst, b, err
		}
		return appendFloat(dst, float64(v)), rest, nil
	}
	code, payload, rest, ok := readExt(b)
	if !ok {
		return dst, b, errCorrupt
	}
	start := len(dst)
	if depth&callsMask/callLevel >= maxDepth {
		return append(dst, "null"...), rest, nil
	}
	dst, err := appendExt(dst, code, payload, depth+callLevel)
	if err != nil {
		// As LangGraph's reader: an extension it cannot make sense of is None, and the rest of the value stays readable.
		dst = append(dst[:start], "null"...)
	}
	return dst, rest, nil
}

// maxKeys bounds keys within keys. Quotes in quotes double in length, so that keys within keys within keys would outgrow all memory.
const maxKeys = 4

// appendKey appends the key of an object. JSON has text keys only: others become the text of their JSON, which has levels of its own,
// as in workers (jsonenc.py).
func appendKey(dst, b []byte, depth int) ([]byte, []byte, error) {
	if len(b) > 0 && msgp.NextType(b) == msgp.StrType {
		return appendValue(dst, b, depth)
	}
	if depth/keyLevel >= maxKeys {
		rest, err := skip(b)
		return append(dst, `"null"`...), rest, err
	}
	start := len(dst)
	dst, rest, err := appendValue(dst, b, depth-depth&levelsMask+keyLevel)
	if err != nil || dst[start] == '"' {
		return dst, rest, err
	}
	// Composite keys are rare enough to copy: their JSON has quotes to escape.
	text := string(dst[start:])
	return appendString(dst[:start], []byte(text)), rest, nil
}

// readExt splits a msgpack extension at its header.
func readExt(b []byte) (code int8, payload, rest []byte, ok bool) {
	var head, n int
	switch lead := b[0]; lead {
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext 1, 2, 4, 8, 16
		head, n = 2, 1<<(lead-0xd4)
	case 0xc7:
		if len(b) < 3 {
			return 0, nil, nil, false
		}
		head, n = 3, int(b[1])
	case 0xc8:
		if len(b) < 4 {
			return 0, nil, nil, false
		}
		head, n = 4, int(b[1])<<8|int(b[2])
	case 0xc9:
		if len(b) < 6 {
			return 0, nil, nil, false
		}
		head, n = 6, int(uint32(b[1])<<24|uint32(b[2])<<16|uint32(b[3])<<8|uint32(b[4]))
	default:
		return 0, nil, nil, false
	}
	if n > len(b)-head {
		return 0, nil, nil, false
	}
	return int8(b[head-1]), b[head : head+n], b[head+n:], true
}

// appendFloat appends a float as orjson writes it: whole ones keep `.0`, what JSON has no number for is null.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-5 || a >= 1e16) {
		start := len(dst)
		dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
		// Go pads exponents to two digits (1e-07).
		if n := len(dst); n-start >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
			dst[n-2] = dst[n-1]
			dst = dst[:n-1]
		}
		return dst
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// AppendShown appends JSON, which is valid and compact or not, with null for every array and object that is nested deeper than is shown, when it stands itself
// below so many levels.
func AppendShown(dst, text []byte, levels int) []byte {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= ShownDepth-levels {
		return append(dst, text...)
	}
	from, depth := 0, levels // what is to be shown, and is not copied yet
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = endOfText(text, i)
		case '[', '{':
			if depth++; depth == ShownDepth+1 {
				dst = append(append(dst, text[from:i]...), "null"...)
			}
		case ']', '}':
			if depth--; depth == ShownDepth {
				from = i + 1
			}
		}
	}
	return append(dst, text[from:]...)
}

// Shown returns JSON as AppendShown does, which mostly are the same bytes.
func Shown(text []byte) []byte {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= ShownDepth || !jsonscan.DeeperThan(text, ShownDepth) {
		return text
	}
	return AppendShown(nil, text, 0)
}

// endOfText returns where the string ends that begins at i.
func endOfText(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
