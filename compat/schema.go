package compat

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Schema is the part of JSON Schema that the API's bodies need. The zero Schema accepts anything.
//
// Formats are for readers of the OpenAPI description and not checked here: errors for identifiers have their own
// texts.
type Schema struct {
	Name     string   // under components/schemas; "" for an inline schema
	Ref      bool     // errors name the schema by its place in components, as the Python server does for some
	Types    []string // in alphabetical order, as error texts list them; none: any
	Format   string
	Enum     []string
	Props    []Prop
	Required []string
	Items    *Schema
	Extra    *Schema // schema of members outside of Props; nil: anything
	AnyOf    []*Schema
	OneOf    []*Schema
	AllOf    []*Schema
	Min, Max *int64
	MinLen   int
	MinItems int
	MaxProps int // 0: any number
	Default  string
	Doc      string
}

// Prop is a named member of an object.
type Prop struct {
	Name   string
	Schema *Schema
}

// shown limits how much of an invalid instance an error text repeats. Bodies may have 300 MB.
const shown = 2000

// violation is a failed check while it is passed up through the nested schemas; both paths grow at their front.
type violation struct {
	reason   string // why the instance is invalid
	keyword  string
	schema   []string // path, last element first
	named    bool     // the path begins at a named schema and is complete
	at       []string // path of the instance, last element first, brackets included
	instance []byte
}

func (v *violation) in(schema ...string) *violation {
	if v != nil && !v.named {
		for i := len(schema) - 1; i >= 0; i-- {
			v.schema = append(v.schema, schema[i])
		}
	}
	return v
}

func (v *violation) under(at string) *violation {
	if v != nil {
		v.at = append(v.at, at)
	}
	return v
}

// fault returns the violation in the words of the Python server.
func (v *violation) fault() error {
	var b strings.Builder
	b.WriteString(v.reason)
	b.WriteString("\n\nFailed validating \"" + v.keyword + "\" in schema")
	for i := len(v.schema) - 1; i >= 0; i-- {
		s := v.schema[i]
		if _, err := strconv.Atoi(s); err == nil {
			b.WriteString("[" + s + "]")
		} else {
			b.WriteString("[\"" + s + "\"]")
		}
	}
	b.WriteString("\n\nOn instance")
	for i := len(v.at) - 1; i >= 0; i-- {
		b.WriteString("[" + v.at[i] + "]")
	}
	b.WriteString(":\n    " + cut(v.instance))
	return fault.New(fault.Unprocessable, b.String())
}

// cut truncates text that is repeated to a client, at a character boundary.
func cut(b []byte) string {
	if len(b) <= shown {
		return string(b)
	}
	b = b[:shown]
	for len(b) > 0 && !utf8.Valid(b[max(0, len(b)-utf8.UTFMax):]) && !utf8.RuneStart(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return strings.ToValidUTF8(string(b), "") + "..."
}

func (s *Schema) fail(keyword string, instance []byte, reason string) *violation {
	return &violation{reason: reason, keyword: keyword, instance: instance}
}

// Check reports whether body, prepared by Prepare, conforms to the schema.
func (s *Schema) Check(body []byte) error {
	if v := s.check(body); v != nil {
		return v.fault()
	}
	return nil
}

func (s *Schema) check(v []byte) *violation {
	bad := s.checkHere(v)
	if bad != nil && s.Ref && !bad.named {
		bad.in("components", "schemas", s.Name)
		bad.named = true
	}
	return bad
}

func (s *Schema) checkHere(v []byte) *violation {
	for i, a := range s.AllOf {
		if bad := a.check(v); bad != nil {
			return bad.in("allOf", strconv.Itoa(i))
		}
	}
	if len(s.Types) > 0 && !s.typed(v) {
		word := "type "
		if len(s.Types) > 1 {
			word = "types "
		}
		return s.fail("type", v, cut(v)+" is not of "+word+`"`+strings.Join(s.Types, `", "`)+`"`)
	}
	if len(s.AnyOf) > 0 && matches(s.AnyOf, v) == 0 {
		return s.fail("anyOf", v, cut(v)+" is not valid under any of the schemas listed in the 'anyOf' keyword")
	}
	if len(s.OneOf) > 0 {
		switch n := matches(s.OneOf, v); {
		case n == 0:
			return s.fail("oneOf", v, cut(v)+" is not valid under any of the schemas listed in the 'oneOf' keyword")
		case n > 1:
			return s.fail("oneOf", v, cut(v)+" is valid under more than one of the schemas listed in the 'oneOf' keyword")
		}
	}
	switch v[0] {
	case '"':
		return s.checkText(v)
	case '{':
		return s.checkObject(v)
	case '[':
		return s.checkArray(v)
	case 't', 'f', 'n':
		return s.checkEnum(v, string(v))
	default:
		return s.checkNumber(v)
	}
}

func matches(list []*Schema, v []byte) int {
	n := 0
	for _, s := range list {
		if s.check(v) == nil {
			n++
		}
	}
	return n
}

func (s *Schema) typed(v []byte) bool {
	for _, t := range s.Types {
		switch t {
		case "object":
			if v[0] == '{' {
				return true
			}
		case "array":
			if v[0] == '[' {
				return true
			}
		case "string":
			if v[0] == '"' {
				return true
			}
		case "boolean":
			if v[0] == 't' || v[0] == 'f' {
				return true
			}
		case "null":
			if v[0] == 'n' {
				return true
			}
		case "number", "integer":
			if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
				continue
			}
			if t == "number" || whole(v) {
				return true
			}
		}
	}
	return false
}

// whole reports whether a number is an integer: 1.0 and 1e2 are.
func whole(v []byte) bool {
	if !strings.ContainsAny(string(v), ".eE") {
		return true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return err == nil && f == math.Trunc(f)
}

func (s *Schema) checkText(v []byte) *violation {
	if s.Enum == nil && s.MinLen == 0 {
		return nil
	}
	t := text(v)
	if s.MinLen > 0 && utf8.RuneCountInString(t) < s.MinLen {
		return s.fail("minLength", v, cut(v)+" is shorter than "+plural(s.MinLen, "character"))
	}
	return s.checkEnum(v, t)
}

func (s *Schema) checkEnum(v []byte, t string) *violation {
	if s.Enum == nil {
		return nil
	}
	for _, e := range s.Enum {
		if e == t {
			return nil
		}
	}
	quoted := make([]string, len(s.Enum))
	for i, e := range s.Enum {
		quoted[i] = `"` + e + `"`
	}
	var among string
	switch n := len(quoted); {
	case n == 1:
		among = quoted[0]
	case n <= 3:
		among = strings.Join(quoted[:n-1], ", ") + " or " + quoted[n-1]
	default:
		among = quoted[0] + ", " + quoted[1] + " or " + plural(n-2, "other candidate")
	}
	return s.fail("enum", v, cut(v)+" is not one of "+among)
}

func plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "y"):
		word = strings.TrimSuffix(word, "y") + "ies"
	default:
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}

func (s *Schema) checkNumber(v []byte) *violation {
	if s.Min == nil && s.Max == nil {
		return nil
	}
	f, _ := strconv.ParseFloat(string(v), 64) // out of range becomes an infinity, which compares correctly
	if s.Min != nil && f < float64(*s.Min) {
		return s.fail("minimum", v, cut(v)+" is less than the minimum of "+strconv.FormatInt(*s.Min, 10))
	}
	if s.Max != nil && f > float64(*s.Max) {
		return s.fail("maximum", v, cut(v)+" is greater than the maximum of "+strconv.FormatInt(*s.Max, 10))
	}
	return nil
}

func (s *Schema) checkArray(v []byte) *violation {
	n := 0
	var bad *violation
	if s.Items != nil || s.MinItems > 0 {
		each(v, func(_ string, e []byte) {
			if bad == nil && s.Items != nil {
				bad = s.Items.check(e).in("items").under(strconv.Itoa(n))
			}
			n++
		})
	}
	if n < s.MinItems {
		return s.fail("minItems", v, cut(v)+" has less than "+plural(s.MinItems, "item"))
	}
	return bad
}

func (s *Schema) checkObject(v []byte) *violation {
	if s.Props == nil && s.Required == nil && s.Extra == nil && s.MaxProps == 0 {
		return nil
	}
	var bad *violation
	n := 0
	missing := s.Required
	each(v, func(key string, val []byte) {
		n++
		for i, r := range missing {
			if r == key {
				rest := append([]string{}, missing[:i]...)
				missing = append(rest, missing[i+1:]...)
				break
			}
		}
		if bad != nil {
			return
		}
		for i := range s.Props {
			if s.Props[i].Name == key {
				bad = s.Props[i].Schema.check(val).in("properties", key).under(`"` + key + `"`)
				return
			}
		}
		if s.Extra != nil {
			bad = s.Extra.check(val).in("additionalProperties").under(string(jsonobj.AppendText(nil, key)))
		}
	})
	switch {
	case len(missing) > 0:
		return s.fail("required", v, `"`+missing[0]+`" is a required property`)
	case s.MaxProps > 0 && n > s.MaxProps:
		return s.fail("maxProperties", v, cut(v)+" has more than "+plural(s.MaxProps, "property"))
	}
	return bad
}

// AppendJSON appends the schema in the form of OpenAPI 3.1. Named schemas are references unless whole is set.
func (s *Schema) AppendJSON(dst []byte, whole bool) []byte {
	if s.Name != "" && !whole {
		return append(append(append(dst, `{"$ref":"#/components/schemas/`...), s.Name...), `"}`...)
	}
	list := func(dst []byte, key string, values []string) []byte {
		return appendMember(dst, key, appendTexts(nil, values))
	}
	schemas := func(dst []byte, key string, values []*Schema) []byte {
		b := []byte{'['}
		for i, v := range values {
			if i > 0 {
				b = append(b, ',')
			}
			b = v.AppendJSON(b, false)
		}
		return appendMember(dst, key, append(b, ']'))
	}
	o := []byte{'{'}
	switch len(s.Types) {
	case 0:
	case 1:
		o = appendMember(o, "type", jsonobj.AppendText(nil, s.Types[0]))
	default:
		o = list(o, "type", s.Types)
	}
	if s.Doc != "" {
		o = appendMember(o, "description", jsonobj.AppendText(nil, s.Doc))
	}
	if s.Format != "" {
		o = appendMember(o, "format", jsonobj.AppendText(nil, s.Format))
	}
	if s.Enum != nil {
		if len(s.Types) == 1 && s.Types[0] == "boolean" {
			o = appendMember(o, "enum", []byte("["+strings.Join(s.Enum, ",")+"]"))
		} else {
			o = list(o, "enum", s.Enum)
		}
	}
	if s.Props != nil {
		b := []byte{'{'}
		for _, p := range s.Props {
			b = appendMember(b, p.Name, p.Schema.AppendJSON(nil, false))
		}
		o = appendMember(o, "properties", append(b, '}'))
	}
	if s.Required != nil {
		o = list(o, "required", s.Required)
	}
	if s.Items != nil {
		o = appendMember(o, "items", s.Items.AppendJSON(nil, false))
	}
	if s.Extra != nil {
		o = appendMember(o, "additionalProperties", s.Extra.AppendJSON(nil, false))
	}
	for _, k := range []struct {
		key  string
		list []*Schema
	}{{"anyOf", s.AnyOf}, {"oneOf", s.OneOf}, {"allOf", s.AllOf}} {
		if k.list != nil {
			o = schemas(o, k.key, k.list)
		}
	}
	for _, k := range []struct {
		key string
		n   *int64
	}{{"minimum", s.Min}, {"maximum", s.Max}} {
		if k.n != nil {
			o = appendMember(o, k.key, strconv.AppendInt(nil, *k.n, 10))
		}
	}
	for _, k := range []struct {
		key string
		n   int
	}{{"minLength", s.MinLen}, {"minItems", s.MinItems}, {"maxProperties", s.MaxProps}} {
		if k.n > 0 {
			o = appendMember(o, k.key, strconv.AppendInt(nil, int64(k.n), 10))
		}
	}
	if s.Default != "" {
		o = appendMember(o, "default", []byte(s.Default))
	}
	return append(append(dst, o...), '}')
}
