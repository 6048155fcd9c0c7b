package jsonplus

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// Extension codes of JsonPlusSerializer.
const (
	extSingleArg  = 0
	extPosArgs    = 1
	extKwArgs     = 2
	extMethod     = 3
	extPydanticV1 = 4
	extPydanticV2 = 5
	extNumpy      = 6
	extDelta      = 7
)

// ErrNotArray: SplitArray was given something else.
var ErrNotArray = errors.New("jsonplus: not an array")

// call is the payload of the codes 0 to 5: what to call, and with what.
type call struct {
	module, name []byte
	arg          []byte // undecoded
}

func readCall(b []byte) (c call, err error) {
	if len(b) == 0 || msgp.NextType(b) != msgp.ArrayType {
		return c, ErrNotArray
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return c, err
	}
	if n < 3 {
		return c, errCorrupt
	}
	if c.module, b, err = msgp.ReadStringZC(b); err != nil {
		return c, err
	}
	if c.name, b, err = msgp.ReadStringZC(b); err != nil {
		return c, err
	}
	// The argument is not measured: reading it finds its end, and what follows (a method's name) does not matter.
	c.arg = b
	return c, nil
}

func appendExt(dst []byte, code int8, payload []byte, depth int) ([]byte, error) {
	switch code {
	case extDelta:
		return appendWhole(dst, payload, depth)
	case extNumpy:
		return appendNumpy(dst, payload)
	case extSingleArg, extPosArgs, extKwArgs, extMethod, extPydanticV1, extPydanticV2:
	default:
		return dst, errCorrupt
	}
	c, err := readCall(payload)
	if err != nil {
		return dst, err
	}
	var done bool
	switch code {
	case extSingleArg:
		dst, done = appendSingle(dst, c, depth)
	case extPosArgs:
		if dst, done, err = appendPositional(dst, c, depth); err != nil {
			return dst, err
		}
	case extKwArgs:
		if string(c.module) == "datetime" && string(c.name) == "time" {
			dst, done = appendTime(dst, c.arg)
		}
	}
	if done {
		return dst, nil
	}
	dst, _, err = appendValue(dst, c.arg, depth)
	return dst, err
}

// appendSingle knows the classes made of one argument that do not show as that argument. The rest do: sets and deques as
// lists, enums as their value, addresses and time zones as text.
func appendSingle(dst []byte, c call, depth int) ([]byte, bool) {
	if len(c.arg) == 0 || msgp.NextType(c.arg) != msgp.StrType && msgp.NextType(c.arg) != msgp.BinType {
		return dst, false
	}
	arg := c.arg
	var text []byte
	var err error
	if msgp.NextType(arg) == msgp.StrType {
		text, _, err = msgp.ReadStringZC(arg)
	} else {
		text, _, err = msgp.ReadBytesZC(arg)
	}
	if err != nil {
		return dst, false
	}
	switch string(c.module) {
	case "uuid":
		if string(c.name) == "UUID" && len(text) == 32 {
			dst = append(dst, '"')
			for i, end := range [...]int{8, 12, 16, 20, 32} {
				if i > 0 {
					dst = append(dst, '-')
				}
				dst = appendText(dst, text[[...]int{0, 8, 12, 16, 20}[i]:end])
			}
			return append(dst, '"'), true
		}
	case "builtins":
		// Integers beyond 64 bits, which msgpack has no form for, are stored as the call int("…").
		if string(c.name) == "int" {
			return appendInteger(dst, text)
		}
	case "decimal":
		if string(c.name) == "Decimal" {
			return appendDecimal(dst, text)
		}
	case "pickle":
		// What msgpack has no form for is stored as the call pickle.loads(b"…"), which is never done here. Workers put its JSON behind.
		if string(c.name) == "loads" {
			return appendPickled(dst, c, depth)
		}
	case "pydantic.types", "pydantic.v1.types", "pydantic_v1.types":
		// As the streams of LangGraph Server (its state shows the secret itself). Other classes of one argument there do not exist.
		if bytes.HasPrefix(c.name, []byte("Secret")) {
			return append(dst, "null"...), true
		}
	}
	return dst, false
}

// appendPickled shows a pickled object by the JSON that stands behind its pickle, or as null, as LangGraph Server shows objects it cannot encode.
func appendPickled(dst []byte, c call, depth int) ([]byte, bool) {
	if rest, err := skip(c.arg); err == nil && len(rest) > 0 {
		if view, _, err := msgp.ReadBytesZC(rest); err == nil && json.Valid(view) {
			return AppendShown(dst, view, depth&levelsMask), true
		}
	}
	return append(dst, "null"...), true
}

// appendDecimal appends the text of a decimal.Decimal: an integer if its exponent is not negative, else the nearest float.
func appendDecimal(dst, text []byte) ([]byte, bool) {
	digits, exponent, ok := scanDecimal(text)
	if !ok {
		return append(dst, "null"...), true // NaN, Infinity
	}
	// Beyond this an integer would only be a way to fill memory: Decimal("1E+999999999").
	const longest = 400
	if exponent >= 0 && exponent <= longest {
		start := len(dst)
		if text[0] == '-' {
			dst = append(dst, '-')
		}
		first := len(dst)
		for _, c := range digits {
			if c >= '0' && c <= '9' && (c != '0' || len(dst) > first) {
				dst = append(dst, c)
			}
		}
		if len(dst) == first {
			return append(dst[:start], '0'), true
		}
		for range exponent {
			dst = append(dst, '0')
		}
		return dst, true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !math.IsInf(f, 0) {
		return append(dst, "null"...), true
	}
	return appendFloat(dst, f), true
}

// appendInteger appends the text of a Python int; ok is false when it is none that JSON can hold.
func appendInteger(dst, text []byte) ([]byte, bool) {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return dst, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return dst, false
		}
	}
	return append(dst, text...), true
}

// scanDecimal splits [sign] digits [. digits] [E exponent] into its digits and the exponent of the last of them.
func scanDecimal(text []byte) (digits []byte, exponent int, ok bool) {
	mantissa := text
	if i := bytes.IndexByte(text, 'E'); i >= 0 {
		e, err := strconv.Atoi(string(text[i+1:]))
		if err != nil {
			return nil, 0, false
		}
		mantissa, exponent = text[:i], e
	}
	if len(mantissa) > 0 && (mantissa[0] == '-' || mantissa[0] == '+') {
		mantissa = mantissa[1:]
	}
	dots := 0
	for i, c := range mantissa {
		switch {
		case c == '.':
			dots++
			exponent -= len(mantissa) - i - 1
		case c < '0' || c > '9':
			return nil, 0, false
		}
	}
	return mantissa, exponent, len(mantissa) > dots && dots <= 1
}

// appendPositional knows the classes stored with their positional arguments. Others show as the list of these.
func appendPositional(dst []byte, c call, depth int) ([]byte, bool, error) {
	if len(c.arg) == 0 || msgp.NextType(c.arg) != msgp.ArrayType {
		return dst, false, nil
	}
	n, args, err := msgp.ReadArrayHeaderBytes(c.arg)
	if err != nil {
		return dst, false, err
	}
	switch module := string(c.module); {
	case module == "langgraph.types" && string(c.name) == "Send" && n >= 2:
		dst = append(dst, `{"node":`...)
		if dst, args, err = appendValue(dst, args, depth+1); err != nil {
			return dst, false, err
		}
		dst = append(dst, `,"args":`...)
		if dst, _, err = appendValue(dst, args, depth+1); err != nil {
			return dst, false, err
		}
		return append(dst, '}'), true, nil
	case module == "re" && n >= 1: // compile(pattern, flags)
		dst, _, err = appendValue(dst, args, depth+1)
		return dst, true, err
	case module == "datetime":
		switch string(c.name) {
		case "date":
			if y, m, d, ok := readThree(n, args); ok {
				dst = append(dst, '"')
				dst = appendPadded(dst, y, 4)
				dst = append(dst, '-')
				dst = appendPadded(dst, m, 2)
				dst = append(dst, '-')
				dst = appendPadded(dst, d, 2)
				return append(dst, '"'), true, nil
			}
		case "timedelta":
			if us, ok := readDelta(n, args); ok {
				return appendFloat(dst, us/1e6), true, nil
			}
		case "timezone":
			return appendZone(dst, n, args)
		}
	case module == "pathlib" || bytes.HasPrefix(c.module, []byte("pathlib.")):
		return appendPath(dst, n, args, bytes.Contains(c.name, []byte("Windows")))
	}
	return dst, false, nil
}

// appendPath joins the parts of a pathlib path. The first part may be an anchor, which brings its own separator.
func appendPath(dst []byte, n uint32, parts []byte, windows bool) ([]byte, bool, error) {
	separator := "/"
	if windows {
		separator = `\\` // escaped
	}
	dst = append(dst, '"')
	joined := true
	for range n {
		part, rest, err := msgp.ReadStringZC(parts)
		if err != nil {
			return dst, false, err
		}
		if !joined {
			dst = append(dst, separator...)
		}
		dst = appendText(dst, part)
		joined = len(part) > 0 && (part[len(part)-1] == '/' || windows && part[len(part)-1] == '\\')
		parts = rest
	}
	if n == 0 {
		dst = append(dst, '.')
	}
	return append(dst, '"'), true, nil
}

// appendZone shows a datetime.timezone as Python prints it: its name, else UTC with its offset.
func appendZone(dst []byte, n uint32, args []byte) ([]byte, bool, error) {
	us, rest, ok := readDeltaExt(args)
	if !ok {
		return dst, false, nil
	}
	if n >= 2 {
		name, _, err := msgp.ReadStringZC(rest)
		if err != nil {
			return dst, false, err
		}
		return appendString(dst, name), true, nil
	}
	dst = append(dst, `"UTC`...)
	if us != 0 {
		dst = appendOffset(dst, us)
	}
	return append(dst, '"'), true, nil
}

// appendTime shows the keywords of a datetime.time in ISO form.
func appendTime(dst, kwargs []byte) ([]byte, bool) {
	if len(kwargs) == 0 || msgp.NextType(kwargs) != msgp.MapType {
		return dst, false
	}
	var part [4]int64
	var offset float64
	hasOffset := false
	err := eachEntry(kwargs, func(key, value []byte) (err error) {
		switch string(key) {
		case "hour":
			part[0], _, err = msgp.ReadInt64Bytes(value)
		case "minute":
			part[1], _, err = msgp.ReadInt64Bytes(value)
		case "second":
			part[2], _, err = msgp.ReadInt64Bytes(value)
		case "microsecond":
			part[3], _, err = msgp.ReadInt64Bytes(value)
		case "tzinfo":
			offset, hasOffset = readZone(value)
		}
		return err
	})
	if err != nil {
		return dst, false
	}
	dst = append(dst, '"')
	dst = appendClock(dst, part[0], part[1], part[2], part[3])
	if hasOffset {
		dst = appendOffset(dst, offset)
	}
	return append(dst, '"'), true
}

func appendClock(dst []byte, h, m, s, us int64) []byte {
	dst = appendPadded(dst, h, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, m, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, s, 2)
	if us != 0 {
		dst = append(dst, '.')
		dst = appendPadded(dst, us, 6)
	}
	return dst
}

// appendOffset appends microseconds as +hh:mm[:ss[.ffffff]].
func appendOffset(dst []byte, offset float64) []byte {
	us := int64(offset)
	sign := byte('+')
	if us < 0 {
		sign, us = '-', -us
	}
	dst = append(dst, sign)
	h, m, s, us := us/3_600_000_000, us/60_000_000%60, us/1_000_000%60, us%1_000_000
	if s == 0 && us == 0 {
		dst = appendPadded(dst, h, 2)
		dst = append(dst, ':')
		return appendPadded(dst, m, 2)
	}
	return appendClock(dst, h, m, s, us)
}

// readZone returns the fixed offset of a tzinfo in microseconds. Zones by name have none at a time without a date.
func readZone(b []byte) (us float64, ok bool) {
	args, _, ok := readDatetimeArgs(b, "timezone")
	if !ok {
		return 0, false
	}
	n, args, err := msgp.ReadArrayHeaderBytes(args)
	if err != nil || n == 0 {
		return 0, false
	}
	us, _, ok = readDeltaExt(args)
	return us, ok
}

// readDeltaExt reads a datetime.timedelta, in microseconds, and returns what follows.
func readDeltaExt(b []byte) (us float64, rest []byte, ok bool) {
	args, rest, ok := readDatetimeArgs(b, "timedelta")
	if !ok {
		return 0, nil, false
	}
	n, args, err := msgp.ReadArrayHeaderBytes(args)
	if err != nil {
		return 0, nil, false
	}
	us, ok = readDelta(n, args)
	return us, rest, ok
}

// readDatetimeArgs returns the argument list of an object of the datetime module.
func readDatetimeArgs(b []byte, name string) (args, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	code, payload, rest, ok := readExt(b)
	if !ok || code != extPosArgs {
		return nil, nil, false
	}
	c, err := readCall(payload)
	if err != nil || string(c.module) != "datetime" || string(c.name) != name || len(c.arg) == 0 || msgp.NextType(c.arg) != msgp.ArrayType {
		return nil, nil, false
	}
	return c.arg, rest, true
}

// readDelta returns days, seconds and microseconds as microseconds. Sums stay exact: a timedelta has fewer than 2^53 up to 285
// years, and Python divides the same way beyond.
func readDelta(n uint32, args []byte) (us float64, ok bool) {
	days, seconds, micros, ok := readThree(n, args)
	if !ok || days > 1e9 || days < -1e9 || seconds > 1e9 || seconds < -1e9 {
		return 0, false
	}
	return float64(days*86_400+seconds)*1e6 + float64(micros), true
}

func readThree(n uint32, args []byte) (a, b, c int64, ok bool) {
	if n != 3 {
		return 0, 0, 0, false
	}
	a, args, err1 := msgp.ReadInt64Bytes(args)
	if err1 != nil {
		return 0, 0, 0, false
	}
	b, args, err2 := msgp.ReadInt64Bytes(args)
	if err2 != nil {
		return 0, 0, 0, false
	}
	c, _, err3 := msgp.ReadInt64Bytes(args)
	return a, b, c, err3 == nil
}

// appendPadded appends n with zeros in front up to the width.
func appendPadded(dst []byte, n int64, width int) []byte {
	for ; width > 1; width-- {
		limit := int64(1)
		for range width - 1 {
			limit *= 10
		}
		if n >= limit || n < 0 {
			break
		}
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, n, 10)
}
