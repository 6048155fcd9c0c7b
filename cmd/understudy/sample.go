package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// sampleQuestion is what examples ask.
const sampleQuestion = "What is 6 times 7?"

// messagesInput is the input of a graph of messages.
func messagesInput(text string) json.RawMessage {
	content, err := encodeJSON(text)
	if err != nil {
		content = json.RawMessage(`""`)
	}
	return json.RawMessage(`{"messages": [{"role": "user", "content": ` + string(content) + `}]}`)
}

// encodeJSON encodes without escapes for HTML and with spaces, for people.
func encodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// takesMessages reports whether a JSON schema of an input has messages.
func takesMessages(schema json.RawMessage) bool {
	s := resolved(gjson.ParseBytes(schema), gjson.ParseBytes(schema), 0)
	return s.Get("properties.messages").Exists()
}

// sampleInput returns an input that a JSON schema accepts: of messages where it has them, else its required properties, or the first few. Without
// a schema it is {}.
func sampleInput(schema json.RawMessage) json.RawMessage {
	root := gjson.ParseBytes(schema)
	s := resolved(root, root, 0)
	if !s.Exists() || s.Type == gjson.Null {
		return json.RawMessage("{}")
	}
	if s.Raw == "{}" || takesMessages(schema) && !requiresMore(s) {
		return messagesInput(sampleQuestion)
	}
	b, err := encodeJSON(sample("", s, root, 0))
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// requiresMore reports whether an object has required properties besides messages.
func requiresMore(s gjson.Result) bool {
	return slices.ContainsFunc(s.Get("required").Array(), func(r gjson.Result) bool { return r.String() != "messages" })
}

// Bounds of a sample.
const maxSampleDepth, maxSampleProperties = 5, 4

// sample returns a value for a schema. name is that of its property.
func sample(name string, s, root gjson.Result, depth int) any {
	s = resolved(s, root, 0)
	for _, key := range []string{"const", "default", "examples.0", "enum.0"} {
		if v := s.Get(key); v.Exists() && v.Type != gjson.Null {
			return json.RawMessage(v.Raw)
		}
	}
	if depth > maxSampleDepth {
		return nil
	}
	switch kind := kindOf(s); {
	case name == "messages" && (kind == "array" || kind == ""):
		return json.RawMessage(`[{"role":"user","content":"` + sampleQuestion + `"}]`)
	case kind == "object":
		return sampleObject(s, root, depth)
	case kind == "array":
		item := sample("", s.Get("items"), root, depth+1)
		if item == nil {
			return []any{}
		}
		return []any{item}
	case kind == "integer":
		return max(1, s.Get("minimum").Int())
	case kind == "number":
		return max(1.5, s.Get("minimum").Float())
	case kind == "boolean":
		return true
	case kind == "null":
		return nil
	}
	switch s.Get("format").String() {
	case "date-time":
		return "2026-01-01T00:00:00Z"
	case "date":
		return "2026-01-01"
	case "uri":
		return "https://example.com"
	case "uuid":
		return "00000000-0000-4000-8000-000000000000"
	}
	if strings.Contains(strings.ToLower(name), "question") || strings.Contains(strings.ToLower(name), "query") {
		return sampleQuestion
	}
	return "some text"
}

func sampleObject(s, root gjson.Result, depth int) map[string]any {
	out, properties := map[string]any{}, s.Get("properties").Map()
	for _, r := range s.Get("required").Array() {
		if p, ok := properties[r.String()]; ok {
			out[r.String()] = sample(r.String(), p, root, depth+1)
		}
	}
	if len(out) > 0 || depth > 0 {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if len(out) == maxSampleProperties {
			break
		}
		if v := sample(name, properties[name], root, depth+1); v != nil {
			out[name] = v
		}
	}
	return out
}

func kindOf(s gjson.Result) string {
	kind := s.Get("type")
	if kind.IsArray() {
		for _, k := range kind.Array() {
			if k.String() != "null" {
				return k.String()
			}
		}
	}
	if kind.String() == "" && s.Get("properties").Exists() {
		return "object"
	}
	return kind.String()
}

// resolved follows references, and takes the first alternative that is not null.
func resolved(s, root gjson.Result, depth int) gjson.Result {
	if depth > maxSampleDepth {
		return gjson.Result{}
	}
	if ref := s.Get("$ref").String(); strings.HasPrefix(ref, "#/") {
		to := root
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			to = to.Map()[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		}
		return resolved(to, root, depth+1)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		for _, one := range s.Get(key).Array() {
			if one = resolved(one, root, depth+1); one.Exists() && kindOf(one) != "null" {
				return one
			}
		}
	}
	return s
}
