package store

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// maxTexts is how many texts of an item are embedded.
const maxTexts = 1000

// texts returns what of a value paths select, as LangGraph's stores do: text, numbers and booleans as text, objects and lists as JSON, null
// and what is missing not at all. The same text is returned once. Paths are a.b, a[0], a[-1], a[*].b, {a,b}, *, and $ for the whole value.
func texts(value json.RawMessage, paths []string) ([]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, fault.Newf(fault.Invalid, "value: %w", err)
	}
	e := extraction{seen: map[string]bool{}}
	for _, path := range paths {
		if path == "" || path == "$" {
			e.add(string(appendJSON(nil, v)))
			continue
		}
		e.at(v, pathTokens(path))
	}
	if e.over {
		return nil, fault.Newf(fault.Unprocessable, "the indexed fields of an item have more than %d texts; index fewer fields", maxTexts)
	}
	return e.list, nil
}

// pathTokens splits a path: names, indexes with brackets, selections with braces.
func pathTokens(path string) (tokens []string) {
	name := 0
	end := func(i int) {
		if i > name {
			tokens = append(tokens, path[name:i])
		}
	}
	for i := 0; i < len(path); {
		closing := byte(0)
		switch path[i] {
		case '[':
			closing = ']'
		case '{':
			closing = '}'
		case '.':
			end(i)
			i++
			name = i
			continue
		default:
			i++
			continue
		}
		end(i)
		open, from := path[i], i
		for depth := 0; i < len(path); i++ {
			if path[i] == open {
				depth++
			} else if path[i] == closing {
				depth--
			}
			if depth == 0 {
				i++
				break
			}
		}
		tokens = append(tokens, path[from:i])
		name = i
	}
	end(len(path))
	return tokens
}

type extraction struct {
	list []string
	seen map[string]bool
	over bool
}

func (e *extraction) add(text string) {
	if e.seen[text] {
		return
	}
	if e.over = e.over || len(e.list) == maxTexts; !e.over {
		e.seen[text] = true
		e.list = append(e.list, text)
	}
}

// leaf adds a value at the end of a path.
func (e *extraction) leaf(v any) {
	switch v := v.(type) {
	case string:
		e.add(v)
	case json.Number:
		e.add(number(v))
	case bool:
		if v {
			e.add("True")
		} else {
			e.add("False")
		}
	case map[string]any, []any:
		e.add(string(appendJSON(nil, v)))
	}
}

func (e *extraction) at(v any, tokens []string) {
	if e.over {
		return
	}
	if len(tokens) == 0 {
		e.leaf(v)
		return
	}
	token, rest := tokens[0], tokens[1:]
	object, _ := v.(map[string]any)
	list, isList := v.([]any)
	switch {
	case strings.HasPrefix(token, "[") && strings.HasSuffix(token, "]"):
		if token == "[*]" {
			for _, item := range list {
				e.at(item, rest)
			}
			return
		}
		i, err := strconv.Atoi(strings.TrimSpace(token[1 : len(token)-1]))
		if i < 0 {
			i += len(list)
		}
		if err == nil && 0 <= i && i < len(list) {
			e.at(list[i], rest)
		}
	case strings.HasPrefix(token, "{") && strings.HasSuffix(token, "}"):
		for name := range strings.SplitSeq(token[1:len(token)-1], ",") {
			if path := pathTokens(strings.TrimSpace(name)); len(path) > 0 && object != nil {
				e.leaf(nested(object, path))
			}
		}
	case token == "*" && isList:
		for _, item := range list {
			e.at(item, rest)
		}
	case token == "*":
		for _, key := range sortedKeys(object) {
			e.at(object[key], rest)
		}
	default:
		if member, ok := object[token]; ok {
			e.at(member, rest)
		}
	}
}

// nested returns the member of nested objects; nil if there is none.
func nested(v any, path []string) any {
	for _, name := range path {
		object, _ := v.(map[string]any)
		v = object[name]
	}
	return v
}

func sortedKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// appendJSON appends a value as Python's json.dumps does, with sorted keys and nothing escaped that need not be.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, key := range sortedKeys(v) {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(jsonobj.AppendText(b, key), ": "...)
			b = appendJSON(b, v[key])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendJSON(b, item)
		}
		return append(b, ']')
	case string:
		return jsonobj.AppendText(b, v)
	case json.Number:
		return append(b, number(v)...)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

// number formats a JSON number as Python does after reading it: integers of any size, and the shortest text of a float.
func number(n json.Number) string {
	if !strings.ContainsAny(string(n), ".eE") {
		if i, ok := new(big.Int).SetString(string(n), 10); ok && len(n) < 1000 {
			return i.String()
		}
		return string(n)
	}
	f, err := n.Float64()
	if err != nil { // too large
		if strings.HasPrefix(string(n), "-") {
			return "-inf"
		}
		return "inf"
	}
	text := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(text[strings.IndexByte(text, 'e')+1:]) // FormatFloat always writes one
	if exponent < -4 || exponent >= 16 {
		return text
	}
	if text = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
