package jsonplus

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// PackJSON returns a value of the older `json` form as msgpack, for readers that inspect values without converting them.
func PackJSON(data []byte) ([]byte, error) { return packJSON(data) }

// packJSON turns the older `json` form into msgpack, with its `lc` envelopes as extensions, so that there is one place that
// knows how objects show. Old rows are read seldom: this builds values where the msgpack path does not.
func packJSON(data []byte) ([]byte, error) { return pack(&packer{text: data}) }

// packShown is packJSON for what is shown: it is as deep as is shown.
func packShown(data []byte) ([]byte, error) { return pack(&packer{text: data, shown: true}) }

func pack(p *packer) ([]byte, error) {
	out, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.text) {
		return nil, errTrailing
	}
	return out, nil
}

// packer reads JSON as Python writes it, with NaN and Infinity.
type packer struct {
	text []byte
	at   int
	// shown: what is nested too deeply to be shown is null, and no error.
	shown bool
}

func (p *packer) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// take steps over a byte, after white space, if it is next.
func (p *packer) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *packer) value(depth int) ([]byte, error) {
	p.space()
	if p.at == len(p.text) {
		return nil, errCorrupt
	}
	switch {
	case p.shown && depth >= ShownDepth && (p.text[p.at] == '[' || p.text[p.at] == '{'):
		return msgp.AppendNil(nil), p.pass()
	case depth > maxDepth:
		return nil, ErrDepth
	}
	switch p.text[p.at] {
	case '"':
		s, err := p.str()
		return msgp.AppendString(nil, s), err
	case '[':
		items, err := p.list(depth)
		return packList(items...), err
	case '{':
		return p.object(depth)
	}
	start := p.at
	for p.at < len(p.text) && strings.IndexByte(",]} \t\n\r", p.text[p.at]) < 0 {
		p.at++
	}
	switch word := string(p.text[start:p.at]); word {
	case "null", "NaN", "Infinity", "-Infinity":
		return msgp.AppendNil(nil), nil
	case "true", "false":
		return msgp.AppendBool(nil, word == "true"), nil
	default:
		return packNumber(word)
	}
}

// pass steps over an array or object, without looking closer at it.
func (p *packer) pass() error {
	for depth, in := 0, false; p.at < len(p.text); {
		c := p.text[p.at]
		p.at++
		switch {
		case in:
			if c == '\\' {
				p.at++
			}
			in = c != '"'
		case c == '"':
			in = true
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return nil
			}
		}
	}
	return errCorrupt
}

func packNumber(word string) ([]byte, error) {
	if i, err := strconv.ParseInt(word, 10, 64); err == nil {
		return msgp.AppendInt64(nil, i), nil
	}
	if digits, exponent, ok := scanDecimal([]byte(word)); ok && exponent == 0 && len(digits) > 0 && !strings.ContainsAny(word, ".eE") {
		// Integers have no limit in Python's JSON; the text of a decimal can hold one.
		return packExt(extSingleArg, "decimal", "Decimal", msgp.AppendString(nil, word)), nil
	}
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return nil, errCorrupt
	}
	return msgp.AppendFloat64(nil, f), nil
}

func (p *packer) list(depth int) (items [][]byte, err error) {
	p.at++
	if p.take(']') {
		return nil, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if p.take(']') {
			return items, nil
		}
		if !p.take(',') {
			return nil, errCorrupt
		}
	}
}

// object packs a mapping, or what an `lc` envelope stands for.
func (p *packer) object(depth int) ([]byte, error) {
	p.at++
	fields := fields{}
	if !p.take('}') {
		for {
			if p.space(); p.at == len(p.text) || p.text[p.at] != '"' {
				return nil, errCorrupt
			}
			key, err := p.str()
			if err != nil {
				return nil, err
			}
			if !p.take(':') {
				return nil, errCorrupt
			}
			value, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			fields = append(fields, field{key, value})
			if p.take('}') {
				break
			}
			if !p.take(',') {
				return nil, errCorrupt
			}
		}
	}
	if kind, _ := readText(fields.get("type")); kind == "constructor" {
		switch lc, _, _ := msgp.ReadInt64Bytes(fields.get("lc")); lc {
		case 1:
			return fields.serializable(), nil
		case 2:
			return fields.constructor(), nil
		}
	}
	return fields.pack(), nil
}

func (p *packer) str() (string, error) {
	p.at++
	var out []byte
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		if c == '"' {
			return string(out), nil
		}
		if c != '\\' {
			out = append(out, c)
			continue
		}
		if p.at == len(p.text) {
			break
		}
		c = p.text[p.at]
		p.at++
		switch c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case '"', '\\', '/':
			out = append(out, c)
		case 'u':
			r, ok := p.unit()
			if !ok {
				return "", errCorrupt
			}
			if utf16.IsSurrogate(r) {
				mark := p.at
				if low, ok := p.lowUnit(); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
					out = utf8.AppendRune(out, utf16.DecodeRune(r, low))
					continue
				}
				p.at = mark
				out = append(out, '?')
				continue
			}
			out = utf8.AppendRune(out, r)
		default:
			return "", errCorrupt
		}
	}
	return "", errCorrupt
}

func (p *packer) lowUnit() (rune, bool) {
	if p.at+2 > len(p.text) || string(p.text[p.at:p.at+2]) != `\u` {
		return 0, false
	}
	p.at += 2
	return p.unit()
}

func (p *packer) unit() (rune, bool) {
	if p.at+4 > len(p.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 16)
	p.at += 4
	return rune(n), err == nil
}

// fields is a mapping whose values are packed already.
type (
	field struct {
		key   string
		value []byte
	}
	fields []field
)

func (f fields) get(key string) []byte {
	for _, e := range f {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

func (f fields) pack() []byte {
	out := msgp.AppendMapHeader(nil, uint32(len(f)))
	for _, e := range f {
		out = append(msgp.AppendString(out, e.key), e.value...)
	}
	return out
}

// path splits the `id` of an envelope into module and name.
func (f fields) path() (module, name string) {
	items, err := SplitArray(f.get("id"))
	if err != nil || len(items) == 0 {
		return "", ""
	}
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i], _ = readText(item)
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], "."), parts[last]
}

// constructor packs what an envelope of version 2 stands for: class, positional and keyword arguments, perhaps a method.
func (f fields) constructor() []byte {
	module, name := f.path()
	args, _ := SplitArray(f.get("args"))
	method := f.get("method")
	if kwargs := f.get("kwargs"); len(args) == 0 && len(kwargs) > 0 && kwargs[0] != 0xc0 {
		if module == "langgraph.types" && name == "Send" {
			parts := map[string][]byte{}
			if eachEntry(kwargs, func(k, v []byte) error { parts[string(k)] = v; return nil }) == nil && parts["node"] != nil && parts["arg"] != nil {
				return packExt(extPosArgs, module, name, packList(parts["node"], parts["arg"]))
			}
		}
		return packExt(extKwArgs, module, name, kwargs)
	}
	if m, _ := readText(method); m == "fromhex" && len(args) == 1 {
		text, _ := readText(args[0])
		if raw, err := hex.DecodeString(text); err == nil {
			return msgp.AppendBytes(nil, raw)
		}
	}
	positional := module == "re" || strings.HasPrefix(module, "pathlib") || module == "datetime" && name != "datetime"
	if len(args) == 1 && !positional {
		return packExt(extSingleArg, module, name, args[0])
	}
	return packExt(extPosArgs, module, name, packList(args...))
}

// serializable packs an envelope of version 1: an object of langchain, with those fields that were set. Messages get the rest
// of theirs, in the order in which messages have them.
func (f fields) serializable() []byte {
	_, name := f.path()
	kwargs := f.get("kwargs")
	given := fields{}
	if len(kwargs) == 0 || eachEntry(kwargs, func(k, v []byte) error { given = append(given, field{string(k), v}); return nil }) != nil {
		return msgp.AppendNil(nil)
	}
	base, ok := strings.CutSuffix(strings.TrimSuffix(name, "Chunk"), "Message")
	if !ok {
		return kwargs
	}
	kind := strings.ToLower(base)
	if strings.HasSuffix(name, "Chunk") {
		kind = name
	}
	null, list, object := msgp.AppendNil(nil), packList(), msgp.AppendMapHeader(nil, 0)
	all := fields{
		{"content", msgp.AppendString(nil, "")},
		{"additional_kwargs", object},
		{"response_metadata", object},
		{"type", msgp.AppendString(nil, kind)},
		{"name", null},
		{"id", null},
	}
	switch base {
	case "AI":
		all = append(all, fields{{"tool_calls", list}, {"invalid_tool_calls", list}, {"usage_metadata", null}}...)
	case "Tool":
		all = append(all, fields{{"tool_call_id", null}, {"artifact", null}, {"status", msgp.AppendString(nil, "success")}}...)
	}
	for _, e := range given {
		found := false
		for i := range all {
			if all[i].key == e.key {
				all[i].value, found = e.value, true
			}
		}
		if !found {
			all = append(all, e)
		}
	}
	return packExt(extPydanticV2, "langchain_core.messages", name, all.pack())
}

func packList(items ...[]byte) []byte {
	out := msgp.AppendArrayHeader(nil, uint32(len(items)))
	for _, item := range items {
		out = append(out, item...)
	}
	return out
}

// packExt packs an extension of code 0 to 5.
func packExt(code byte, module, name string, arg []byte) []byte {
	payload := msgp.AppendArrayHeader(nil, 3)
	payload = msgp.AppendString(msgp.AppendString(payload, module), name)
	payload = append(payload, arg...)
	n := len(payload)
	out := []byte{0xc9, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), code}
	return append(out, payload...)
}
