package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"understudy/internal/jsonobj"
)

// value is a JSON value that knows where it stands, so that a mistake in its meaning can be pointed at.
type value struct {
	at int // offset of its first byte
	// data is string, bool, json.Number, nil, []value or []member.
	data any
}

// append appends the value as JSON.
func (v value) append(b []byte) json.RawMessage {
	switch data := v.data.(type) {
	case []member:
		b = append(b, '{')
		for i, m := range data {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(jsonobj.AppendText(b, m.key), ':')
			b = m.value.append(b)
		}
		return append(b, '}')
	case []value:
		b = append(b, '[')
		for i, item := range data {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.append(b)
		}
		return append(b, ']')
	case string:
		return jsonobj.AppendText(b, data)
	case json.Number:
		return append(b, data...)
	case bool:
		return strconv.AppendBool(b, data)
	}
	return append(b, "null"...)
}

type member struct {
	key string
	value
}

// kind names the value's type for a person.
func (v value) kind() string {
	switch v.data.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case []value:
		return "a list"
	case []member:
		return "an object"
	}
	return "null"
}

// empty reports what counts as absent in LangGraph Server: null, {}, [], "", false.
func (v value) empty() bool {
	switch d := v.data.(type) {
	case []member:
		return len(d) == 0
	case []value:
		return len(d) == 0
	case string:
		return d == ""
	case bool:
		return !d
	}
	return v.data == nil
}

// index notes where each key of v stands: "graphs.chat.agent.tools[0]".
func (v value) index(key string, places map[string]int) {
	places[key] = v.at
	switch d := v.data.(type) {
	case []member:
		for _, m := range d {
			m.index(join(key, m.key), places)
		}
	case []value:
		for i, item := range d {
			item.index(key+"["+strconv.Itoa(i)+"]", places)
		}
	}
}

// maxDepth of a configuration file; deeper nesting is no configuration.
const maxDepth = 100

// parseJSON reads one JSON value. Its error is a Mistake without File.
func parseJSON(src []byte) (value, *Mistake) {
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(src) {
		return value{}, at(src, firstInvalid(src), "is not UTF-8 here; save the file as UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.UseNumber()
	p := parser{src: src, dec: dec}
	v, err := p.value(0)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return v, nil
		} else if err == nil {
			err = errors.New("unexpected text after the end; a file contains one object")
		}
	}
	return value{}, p.mistake(err)
}

type parser struct {
	src []byte
	dec *json.Decoder
}

func (p *parser) value(depth int) (value, error) {
	start := p.next()
	if depth > maxDepth {
		return value{}, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	tok, err := p.dec.Token()
	if err != nil {
		return value{}, err
	}
	delim, isDelim := tok.(json.Delim)
	if !isDelim {
		return value{at: start, data: tok}, nil
	}
	if delim == '[' {
		list := []value{}
		for p.dec.More() {
			item, err := p.value(depth + 1)
			if err != nil {
				return value{}, err
			}
			list = append(list, item)
		}
		_, err = p.dec.Token()
		return value{at: start, data: list}, err
	}
	members := []member{}
	seen := map[string]bool{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return value{}, err
		}
		key := tok.(string)
		if seen[key] {
			return value{}, fmt.Errorf("has %q twice in one object; keep one", key)
		}
		seen[key] = true
		v, err := p.value(depth + 1)
		if err != nil {
			return value{}, err
		}
		members = append(members, member{key, v})
	}
	_, err = p.dec.Token()
	return value{at: start, data: members}, err
}

// next is the offset of the next byte that means something.
func (p *parser) next() int {
	i := int(p.dec.InputOffset())
	for i < len(p.src) && strings.IndexByte(" \t\r\n,:", p.src[i]) >= 0 {
		i++
	}
	return i
}

// mistake puts a reader's error in words, at the place where it is.
func (p *parser) mistake(err error) *Mistake {
	i := min(p.next(), len(p.src))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return at(p.src, i, err.Error())
	}
	end := len(bytes.TrimRight(p.src, " \t\r\n"))
	if syntax == nil || int(syntax.Offset) > end || i >= end { // of an end inside of a value
		if end == 0 {
			return at(p.src, 0, `is empty; write {"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}`)
		}
		return at(p.src, len(p.src), "ends too early; a bracket, brace or quote is not closed")
	}
	rest := p.src[i:]
	if comma := stray(p.src, syntax); comma >= 0 {
		if before := lastByte(p.src[:comma]); before == ':' {
			return at(p.src, comma, "is a comma where a value is missing; write the value before it")
		}
		return at(p.src, comma, "is a comma too many; remove it")
	}
	switch before := lastByte(p.src[:i]); {
	case before == ':' && (rest[0] == '}' || rest[0] == ']'):
		return at(p.src, i, "closes an object whose last key has no value; write the value after the colon")
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), rest[0] == '#':
		return at(p.src, i, "is a comment, and JSON has none; remove it")
	case before == ',' && (rest[0] == '}' || rest[0] == ']'):
		return at(p.src, i, "has a comma before the closing bracket; remove the comma")
	case rest[0] == '\'':
		return at(p.src, i, "has single quotes; JSON text stands in double quotes")
	}
	if int(syntax.Offset) > i {
		i = int(syntax.Offset) - 1
	}
	return at(p.src, i, "is not JSON: "+syntax.Error()+"; "+repair(syntax.Error(), p.src[i]))
}

// stray returns where a comma is that no value comes before; -1 when syntax is another error.
func stray(src []byte, syntax *json.SyntaxError) int {
	// Of the first key it says no more than the character.
	if text := syntax.Error(); text != "invalid character ','" && !strings.HasPrefix(text, "invalid character ',' looking for beginning of") {
		return -1
	}
	for _, i := range []int{int(syntax.Offset), int(syntax.Offset) - 1} { // decoders count from before or behind it
		if i >= 0 && i < len(src) && src[i] == ',' {
			return i
		}
	}
	return -1
}

// lastByte returns the last byte that means something; 0 when there is none.
func lastByte(text []byte) byte {
	text = bytes.TrimRight(text, " \t\r\n")
	if len(text) == 0 {
		return 0
	}
	return text[len(text)-1]
}

// repair returns what to do about a message of encoding/json about a character.
func repair(message string, char byte) string {
	switch {
	case strings.Contains(message, "after object key:value pair"), strings.Contains(message, "after array element"):
		return "a comma is missing before it, or a bracket is closed by another kind"
	case strings.Contains(message, "after object key"):
		return "write a colon between key and value"
	case strings.Contains(message, "beginning of object key"), strings.HasSuffix(message, "'"): // of the first key it says no more
		return "put keys in double quotes"
	case strings.Contains(message, "in string literal"):
		return `a text ends on its line: close its quote, or write \n for a line break`
	case strings.Contains(message, "in string escape code"), strings.Contains(message, "hexadecimal character escape"):
		return `write \\ for a backslash`
	case strings.Contains(message, "in literal"), strings.IndexByte("TFN", char) >= 0:
		return "write true, false or null, in small letters, and other words in double quotes"
	case strings.Contains(message, "numeric literal"), strings.Contains(message, "decimal point"), strings.Contains(message, "exponent"):
		return "correct the number, or put it in double quotes if it is text"
	}
	return "text stands in double quotes"
}

// at is a mistake at an offset of src.
func at(src []byte, offset int, text string) *Mistake {
	line, column := position(src, offset)
	return &Mistake{Line: line, Column: column, At: offset, Text: text}
}

// position turns an offset into line and column, both from 1; columns count characters.
func position(src []byte, offset int) (line, column int) {
	before := src[:min(offset, len(src))]
	line = bytes.Count(before, []byte("\n")) + 1
	column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return line, column
}

func firstInvalid(src []byte) int {
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(src)
}
