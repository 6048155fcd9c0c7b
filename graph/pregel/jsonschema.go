package pregel

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// schemas returns the JSON Schemas of a graph in LangGraph's form.
func (g *Graph) schemas() json.RawMessage {
	b := []byte(`{"input_schema":`)
	b = append(b, g.schemaJSON(g.input, g.inKeys, false)...)
	b = append(b, `,"output_schema":`...)
	b = append(b, g.schemaJSON(g.output, g.result, false)...)
	b = append(b, `,"state_schema":`...)
	b = append(b, g.schemaJSON(&schema{typ: valuesType, name: g.name + "State"}, g.out, true)...)
	context := jsonNull
	config := []byte("{}")
	if g.contextType != nil {
		context = encode(typeSchema(g.contextType, "", nil).titled(g.contextType.Name()))
		config = context
	}
	b = append(append(b, `,"config_schema":`...), config...)
	b = append(append(b, `,"context_schema":`...), context...)
	return append(b, '}')
}

func (g *Graph) schemaJSON(s *schema, keys []string, defaults bool) []byte {
	if g.functional {
		name := g.name + "Output"
		if s == g.input {
			name = g.name + "Input"
		}
		if defaults {
			s = g.output
		}
		return encode(typeSchema(s.typ, "", nil).titled(name))
	}
	name := s.name
	if name == "" {
		name = g.name
	}
	props := orderedObject{}
	for _, key := range keys {
		i, ok := g.chanIndex[key]
		if !ok {
			continue
		}
		c := g.chans[i]
		p := typeSchema(c.typ, titleOf(key), nil)
		if c.messages {
			p = messagesSchema(titleOf(key))
		}
		if c.doc != "" {
			p = append(p, member{"description", c.doc})
		}
		if defaults {
			p = append(orderedObject{{"default", nil}}, p...)
		}
		props = append(props, member{key, p})
	}
	out := orderedObject{{"properties", props}}
	var required []any
	for _, k := range s.keys {
		if k.required {
			required = append(required, k.name)
		}
	}
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	return encode(append(out, member{"title", name}, member{"type", "object"}))
}

// orderedObject is a JSON object with an order.
type orderedObject []member

type member struct {
	name string
	v    any
}

func (o orderedObject) titled(title string) orderedObject {
	o = slices.DeleteFunc(slices.Clone(o), func(m member) bool { return m.name == "title" })
	at := slices.IndexFunc(o, func(m member) bool { return m.name > "title" })
	if at < 0 {
		at = len(o)
	}
	return slices.Insert(o, at, member{"title", title})
}

func encode(v any) []byte {
	switch v := v.(type) {
	case orderedObject:
		b := []byte{'{'}
		for i, m := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, m.name), ':')
			b = append(b, encode(m.v)...)
		}
		return append(b, '}')
	case []any:
		b := []byte{'['}
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, encode(x)...)
		}
		return append(b, ']')
	}
	return fromGo(v).JSON()
}

// titleOf returns the title that pydantic assigns to a field.
func titleOf(key string) string {
	words := strings.FieldsFunc(key, func(r rune) bool { return r == '_' })
	for i, w := range words {
		r := []rune(strings.ToLower(w))
		r[0] = unicode.ToUpper(r[0])
		words[i] = string(r)
	}
	return strings.Join(words, " ")
}

func messagesSchema(title string) orderedObject {
	content := orderedObject{{"anyOf", []any{
		orderedObject{{"type", "string"}},
		orderedObject{{"items", orderedObject{{"anyOf", []any{orderedObject{{"type", "string"}}, orderedObject{{"additionalProperties", true}, {"type", "object"}}}}}}, {"type", "array"}},
	}}, {"title", "Content"}}
	message := orderedObject{
		{"additionalProperties", true},
		{"properties", orderedObject{{"content", content}, {"type", orderedObject{{"title", "Type"}, {"type", "string"}}}}},
		{"required", []any{"content", "type"}},
		{"title", "BaseMessage"},
		{"type", "object"},
	}
	return orderedObject{{"items", message}, {"title", title}, {"type", "array"}}
}

// typeSchema returns the schema of a Go type; nil: anything. seen breaks cycles.
func typeSchema(t reflect.Type, title string, seen []reflect.Type) orderedObject {
	var o orderedObject
	with := func(members ...member) orderedObject {
		o = append(o, members...)
		if title == "" {
			return o
		}
		return o.titled(title)
	}
	if t == nil || t == anyType || t == rawType || slices.Contains(seen, t) {
		return with()
	}
	if t == messageType {
		return messagesSchema(title)[0].v.(orderedObject)
	}
	if t == reflect.TypeFor[time.Time]() {
		return with(member{"format", "date-time"}, member{"type", "string"})
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := typeSchema(t.Elem(), "", append(seen, t))
		return with(member{"anyOf", []any{inner, orderedObject{{"type", "null"}}}})
	case reflect.Bool:
		return with(member{"type", "boolean"})
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return with(member{"type", "integer"})
	case reflect.Float32, reflect.Float64:
		return with(member{"type", "number"})
	case reflect.String:
		return with(member{"type", "string"})
	case reflect.Slice, reflect.Array:
		if t.Elem() == messageType {
			return messagesSchema(title)
		}
		if t.Elem().Kind() == reflect.Uint8 {
			return with(member{"format", "binary"}, member{"type", "string"})
		}
		return with(member{"items", typeSchema(t.Elem(), "", append(seen, t))}, member{"type", "array"})
	case reflect.Map:
		inner := any(true)
		if e := typeSchema(t.Elem(), "", append(seen, t)); len(e) > 0 {
			inner = e
		}
		return with(member{"additionalProperties", inner}, member{"type", "object"})
	case reflect.Struct:
		if hasMarshaler(t) {
			return with()
		}
		props := orderedObject{}
		for _, f := range fieldsOf(t) {
			field := t.FieldByIndex(f.index)
			p := typeSchema(field.Type, titleOf(f.name), append(seen, t))
			if text, ok := tagOf(field, "description"); ok {
				p = append(p, member{"description", text})
			}
			if d, ok := defaultOf(field); ok {
				p = append(orderedObject{{"default", d.Interface()}}, p...)
			}
			props = append(props, member{f.name, p})
		}
		if title == "" {
			title = t.Name()
		}
		return with(member{"properties", props}, member{"type", "object"})
	}
	return with()
}

// tagOf returns an option of the tag jsonschema of a field: `jsonschema:"description=…,default=…"`. A tag without options is a description.
func tagOf(f reflect.StructField, option string) (string, bool) {
	if tag := f.Tag.Get("jsonschema"); option == "description" && tag != "" && !strings.HasPrefix(tag, "description=") && !strings.HasPrefix(tag, "default=") {
		return tag, true
	}
	for part := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		if v, ok := strings.CutPrefix(part, option+"="); ok {
			return v, true
		}
	}
	return "", false
}

// defaultOf returns the default value of a field, from its tag, which holds JSON or text.
func defaultOf(f reflect.StructField) (reflect.Value, bool) {
	text, ok := tagOf(f, "default")
	if !ok {
		return reflect.Value{}, false
	}
	v := reflect.New(f.Type)
	if f.Type.Kind() == reflect.String {
		v.Elem().SetString(text)
		return v.Elem(), true
	}
	if json.Unmarshal([]byte(text), v.Interface()) != nil {
		return reflect.Value{}, false
	}
	return v.Elem(), true
}

// subgraphs returns the schemas of graphs that are nodes, by namespace.
func (g *Graph) subgraphs(only string, recurse bool) json.RawMessage {
	b := []byte{'{'}
	g.eachSubgraph("", only, recurse, func(ns string, sub *Graph) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, ns), ':')
		b = append(b, sub.schemas()...)
	})
	return append(b, '}')
}

func (g *Graph) eachSubgraph(prefix, only string, recurse bool, fn func(string, *Graph)) {
	for _, name := range g.order {
		n := g.nodes[name]
		if !n.keepsState() {
			continue
		}
		ns := prefix + name
		if only == "" || only == ns {
			fn(ns, n.sub)
		}
		if recurse && (only == "" || strings.HasPrefix(only, ns+"|")) {
			n.sub.eachSubgraph(ns+"|", only, recurse, fn)
		}
	}
}
