package jsonplus

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

var (
	// ErrNotJSON: the text to write is no JSON.
	ErrNotJSON = errors.New("jsonplus: not JSON")
	// ErrNotMessage: the JSON to write is no message; what is wrong stands before it.
	ErrNotMessage = errors.New("jsonplus: not a message")
)

// AppendValue appends one JSON value to dst as msgpack, byte for byte as JsonPlusSerializer writes the result of json.loads.
// Mappings stay mappings, also those with an `lc` key. Integers beyond 64 bits become the call int("…"), which both readers know.
// Errors are ErrNotJSON and ErrDepth; after an error dst's bytes are unchanged.
func AppendValue(dst, text []byte) ([]byte, error) { return encode(dst, text, (*encoder).value) }

// AppendState is AppendValue for the value of a channel: each mapping in it that IsMessage says yes to, at any depth but not
// within a message, becomes the object that AppendMessage writes.
func AppendState(dst, text []byte) ([]byte, error) {
	return encode(dst, text, func(e *encoder, dst []byte, depth int) ([]byte, error) {
		e.messages = true
		return e.value(dst, depth)
	})
}

// AppendMessage appends a message to dst as the object of its class, as JsonPlusSerializer writes it. text is the message as
// LangGraph Server shows it: `type` is human, ai, system, tool, function, chat, remove or the name of a chunk class. What is missing
// gets the class's default, other fields are kept behind. ErrNotMessage: the type is unknown, or a field that the class demands is
// not there.
func AppendMessage(dst, text []byte) ([]byte, error) { return encode(dst, text, (*encoder).message) }

// AppendSend appends langgraph.types.Send of a node and its argument, which is msgpack already.
func AppendSend(dst []byte, node string, arg []byte) []byte {
	return appendCall(dst, extPosArgs, "langgraph.types", "Send", append(msgp.AppendString([]byte{0x92}, node), arg...))
}

// AppendInterrupt appends langgraph.types.Interrupt of a value and a response schema, which are msgpack already; a nil schema is None.
func AppendInterrupt(dst, value []byte, id string, schema []byte) []byte {
	if schema == nil {
		schema = msgp.AppendNil(nil)
	}
	arg := fields{{"value", value}, {"id", msgp.AppendString(nil, id)}, {"response_schema", schema}}
	return appendCall(dst, extKwArgs, "langgraph.types", "Interrupt", arg.pack())
}

// AppendOverwrite appends langgraph.types.Overwrite of a value, which is msgpack already.
func AppendOverwrite(dst, value []byte) []byte {
	arg := fields{{"value", value}, {"type", msgp.AppendString(nil, "__overwrite__")}}
	return appendCall(dst, extKwArgs, "langgraph.types", "Overwrite", arg.pack())
}

// AppendCommand appends langgraph.types.Command of an update, an answer and destinations, which are msgpack already.
func AppendCommand(dst, update, resume, to []byte) []byte {
	arg := fields{{"graph", msgp.AppendNil(nil)}, {"update", update}, {"resume", resume}, {"goto", to}}
	return appendCall(dst, extKwArgs, "langgraph.types", "Command", arg.pack())
}

// Arguments returns the keyword arguments, a msgpack map, of a stored object of langgraph.types. ok is false for other values.
func Arguments(data []byte, class string) (arguments []byte, ok bool) {
	if len(data) == 0 {
		return nil, false
	}
	code, payload, rest, ok := readExt(data)
	if !ok || len(rest) > 0 || code != extKwArgs {
		return nil, false
	}
	c, err := readCall(payload)
	if err != nil || string(c.module) != "langgraph.types" || string(c.name) != class || len(c.arg) == 0 || msgp.NextType(c.arg) != msgp.MapType {
		return nil, false
	}
	return c.arg, true
}

// IsMessage reports whether a JSON value is a message object as LangGraph Server shows one. A mapping that only has `type` or `role`
// and `content` is not: that is how a graph's own dicts look.
func IsMessage(text []byte) bool {
	var m struct {
		Type       *string          `json:"type"`
		Content    *json.RawMessage `json:"content"`
		Additional json.RawMessage  `json:"additional_kwargs"`
		Response   json.RawMessage  `json:"response_metadata"`
	}
	if !isObject(text) || json.Unmarshal(text, &m) != nil || m.Type == nil || m.Content == nil {
		return false
	}
	_, known := classes[*m.Type]
	return known && isObject(m.Additional) && isObject(m.Response)
}

func isObject(text []byte) bool {
	for _, c := range text {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == '{'
		}
	}
	return false
}

// class is a message class: where it lives, and its fields in order, each with what it is when nothing is given. nil: demanded.
type class struct {
	module, name string
	fields       fields
}

var classes = messageClasses()

func messageClasses() map[string]class {
	null, list, object := msgp.AppendNil(nil), packList(), msgp.AppendMapHeader(nil, 0)
	text := func(s string) []byte { return msgp.AppendString(nil, s) }
	all := map[string]class{}
	for _, c := range []struct {
		kind, module, name string
		chunk              bool
		more               fields
	}{
		{"human", "human", "HumanMessage", true, nil},
		{"system", "system", "SystemMessage", true, nil},
		{"ai", "ai", "AIMessage", true, fields{{"tool_calls", list}, {"invalid_tool_calls", list}, {"usage_metadata", null}}},
		{"tool", "tool", "ToolMessage", true, fields{{"tool_call_id", nil}, {"artifact", null}, {"status", text("success")}}},
		{"function", "function", "FunctionMessage", true, nil},
		{"chat", "chat", "ChatMessage", true, fields{{"role", nil}}},
		{"remove", "modifier", "RemoveMessage", false, nil},
	} {
		add := func(kind, name string, more fields) {
			f := fields{
				{"content", text("")}, {"additional_kwargs", object}, {"response_metadata", object}, {"type", text(kind)}, {"name", null}, {"id", null},
			}
			if c.kind == "function" {
				f[4].value = nil
			}
			all[kind] = class{"langchain_core.messages." + c.module, name, append(f, more...)}
		}
		add(c.kind, c.name, c.more)
		if !c.chunk {
			continue
		}
		more := c.more
		if c.kind == "ai" {
			more = append(slices.Clone(more), fields{{"tool_call_chunks", list}, {"chunk_position", null}}...)
		}
		add(c.name+"Chunk", c.name+"Chunk", more)
	}
	return all
}

// encoder reads JSON that is known to be valid.
type encoder struct {
	packer
	messages bool
}

func encode(dst, text []byte, write func(e *encoder, dst []byte, depth int) ([]byte, error)) ([]byte, error) {
	if !json.Valid(text) || !utf8.Valid(text) {
		return dst, ErrNotJSON
	}
	start := len(dst)
	out, err := write(&encoder{packer: packer{text: text}}, dst, 0)
	if err != nil {
		return dst[:start], err
	}
	return out, nil
}

func (e *encoder) value(dst []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return dst, ErrDepth
	}
	e.space()
	switch e.text[e.at] {
	case '"':
		s, err := e.str()
		return msgp.AppendString(dst, s), err
	case '[':
		e.at++
		return e.items(dst, ']', msgp.AppendArrayHeader, func(dst []byte) ([]byte, error) { return e.value(dst, depth+1) })
	case '{':
		if e.messages && IsMessage(e.peek()) {
			return e.message(dst, depth)
		}
		e.at++
		return e.items(dst, '}', msgp.AppendMapHeader, func(dst []byte) ([]byte, error) {
			key, err := e.key()
			if err != nil {
				return dst, err
			}
			return e.value(msgp.AppendString(dst, key), depth+1)
		})
	case 'n':
		e.at += len("null")
		return msgp.AppendNil(dst), nil
	case 't':
		e.at += len("true")
		return msgp.AppendBool(dst, true), nil
	case 'f':
		e.at += len("false")
		return msgp.AppendBool(dst, false), nil
	}
	start := e.at
	for e.at < len(e.text) && (e.text[e.at] >= '0' && e.text[e.at] <= '9' || slices.Contains([]byte("+-.eE"), e.text[e.at])) {
		e.at++
	}
	return appendNumber(dst, string(e.text[start:e.at])), nil
}

// items appends what stands up to end, behind a header that counts it. The count is known last, so the header moves in.
func (e *encoder) items(dst []byte, end byte, header func([]byte, uint32) []byte, item func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(dst)
	dst = append(dst, 0)
	n := uint32(0)
	for !e.take(end) {
		if n > 0 {
			e.take(',')
		}
		var err error
		if dst, err = item(dst); err != nil {
			return dst, err
		}
		n++
	}
	head := header(nil, n)
	dst[start] = head[0]
	return slices.Insert(dst, start+1, head[1:]...), nil
}

func (e *encoder) key() (string, error) {
	e.space()
	key, err := e.str()
	e.take(':')
	return key, err
}

// peek returns the value that comes next.
func (e *encoder) peek() []byte {
	depth := 0
	for i := e.at; i < len(e.text); i++ {
		switch e.text[i] {
		case '"':
			for i++; e.text[i] != '"'; i++ {
				if e.text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return e.text[e.at : i+1]
			}
		}
	}
	return nil
}

func (e *encoder) message(dst []byte, depth int) ([]byte, error) {
	if depth+3 > maxDepth {
		return dst, ErrDepth
	}
	if !e.take('{') {
		return dst, fmt.Errorf("no mapping: %w", ErrNotMessage)
	}
	outer := e.messages
	e.messages = false
	defer func() { e.messages = outer }()
	var given fields
	for first := true; !e.take('}'); first = false {
		if !first {
			e.take(',')
		}
		key, err := e.key()
		if err != nil {
			return dst, err
		}
		value, err := e.value(nil, depth+3)
		if err != nil {
			return dst, err
		}
		given = append(given, field{key, value})
	}
	kind, _ := readText(given.last("type"))
	c, ok := classes[kind]
	if !ok {
		return dst, fmt.Errorf("unknown type %q: %w", kind, ErrNotMessage)
	}
	all := slices.Clone(c.fields)
	for _, g := range given {
		i := slices.IndexFunc(all, func(f field) bool { return f.key == g.key })
		switch {
		case i < 0:
			all = append(all, g)
		case g.key == "content" && IsNull(TypeMsgpack, g.value): // what models send with tool calls; the class requires text
		default:
			all[i].value = g.value
		}
	}
	for _, f := range all {
		if f.value == nil {
			return dst, fmt.Errorf("a message of type %s without %s: %w", kind, f.key, ErrNotMessage)
		}
	}
	payload := msgp.AppendString(msgp.AppendString([]byte{0x94}, c.module), c.name)
	payload = msgp.AppendString(append(payload, all.pack()...), "model_validate_json")
	return appendExtension(dst, extPydanticV2, payload), nil
}

// last returns the value that counts where a key stands twice.
func (f fields) last(key string) []byte {
	for _, e := range slices.Backward(f) {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

func appendNumber(dst []byte, word string) []byte {
	if i, err := strconv.ParseInt(word, 10, 64); err == nil {
		if i >= 0 {
			return msgp.AppendUint64(dst, uint64(i))
		}
		return msgp.AppendInt64(dst, i)
	}
	if u, err := strconv.ParseUint(word, 10, 64); err == nil {
		return msgp.AppendUint64(dst, u)
	}
	digits := word
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			f, err := strconv.ParseFloat(word, 64)
			if err != nil && !math.IsInf(f, 0) {
				f = math.NaN() // not reached: the text is a number of JSON
			}
			return msgp.AppendFloat64(dst, f)
		}
	}
	return appendCall(dst, extSingleArg, "builtins", "int", msgp.AppendString(nil, word))
}

// appendCall appends an extension of code 0 to 5 without a method.
func appendCall(dst []byte, code int8, module, name string, arg []byte) []byte {
	payload := msgp.AppendString(msgp.AppendString([]byte{0x93}, module), name)
	return appendExtension(dst, code, append(payload, arg...))
}

func appendExtension(dst []byte, code int8, payload []byte) []byte {
	switch n := len(payload); {
	case n == 1 || n == 2 || n == 4 || n == 8 || n == 16:
		lead := byte(0xd4)
		for ; n > 1; n /= 2 {
			lead++
		}
		dst = append(dst, lead, byte(code))
	case n <= math.MaxUint8:
		dst = append(dst, 0xc7, byte(n), byte(code))
	case n <= math.MaxUint16:
		dst = append(dst, 0xc8, byte(n>>8), byte(n), byte(code))
	default:
		dst = append(dst, 0xc9, byte(n>>24), byte(n>>16), byte(n>>8), byte(n), byte(code))
	}
	return append(dst, payload...)
}
