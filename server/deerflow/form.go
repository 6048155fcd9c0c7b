// Package deerflow is the wire of DeerFlow's Gateway: request bodies, answers and errors, as its web UI, its channels and scripts speak it.
package deerflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
	"understudy/internal/jsonobj"
)

// Problem is one thing that is wrong with a request, in the form of FastAPI.
type Problem struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

// Problems is the error for a request that violates its schema.
type Problems []Problem

func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, one := range p {
		where := make([]string, len(one.Loc))
		for j, l := range one.Loc {
			where[j] = fmt.Sprint(l)
		}
		texts[i] = strings.Join(where, ".") + ": " + one.Msg
	}
	return strings.Join(texts, "; ")
}

// JSON returns the value of "detail".
func (p Problems) JSON() json.RawMessage {
	b, err := json.Marshal([]Problem(p))
	if err != nil {
		return json.RawMessage("[]")
	}
	return b
}

// Form reads the fields of a request, and collects what is wrong with them.
type Form struct {
	in       gjson.Result
	where    string // body or query
	problems Problems
}

// Body reads a JSON object. An error for anything else is a Problems.
func Body(body []byte) (*Form, error) {
	if len(body) == 0 {
		return nil, bodyless
	}
	if !gjson.ValidBytes(body) || !utf8.Valid(body) {
		return nil, Problems{notJSON(body)}
	}
	f := &Form{in: gjson.ParseBytes(body), where: "body"}
	switch {
	case f.in.Type == gjson.Null:
		return nil, bodyless
	case !f.in.IsObject():
		return nil, NoObject(body)
	}
	return f, nil
}

// bodyless is the problem of a request without a body, or with null.
var bodyless = Problems{{Type: "missing", Loc: []any{"body"}, Msg: "Field required", Input: json.RawMessage("null")}}

// NoObject is the problem of a body that is something else: input is its JSON.
func NoObject(input json.RawMessage) Problems {
	return Problems{{Type: "model_attributes_type", Loc: []any{"body"}, Msg: "Input should be a valid dictionary or object to extract fields from", Input: input}}
}

// notJSON says where a body stops being JSON.
func notJSON(body []byte) Problem {
	at, why := 0, "invalid UTF-8"
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		at, why = int(syntax.Offset), syntax.Error()
		if !strings.Contains(why, "end of JSON input") {
			at--
		}
	}
	return Problem{Type: "json_invalid", Loc: []any{"body", at}, Msg: "JSON decode error", Input: json.RawMessage("{}"), Ctx: map[string]any{"error": why}}
}

// Query reads the parameters of a URL; get returns one, and whether it is there.
func Query(get func(name string) (string, bool), names ...string) *Form {
	o := &jsonobj.Object{}
	for _, n := range names {
		if v, ok := get(n); ok {
			o.SetText(n, v)
		}
	}
	return &Form{in: gjson.ParseBytes(o.JSON()), where: "query"}
}

// FormFields is Query for the fields of a form. One without a value is not there.
func FormFields(get func(name string) (string, bool), names ...string) *Form {
	f := Query(func(name string) (string, bool) {
		v, ok := get(name)
		return v, ok && v != ""
	}, names...)
	f.where = "body"
	return f
}

// IsText reports whether a field is a text.
func (f *Form) IsText(key string) bool { return f.get(key).Type == gjson.String }

// Err returns all problems; nil when there are none.
func (f *Form) Err() error {
	if len(f.problems) == 0 {
		return nil
	}
	return f.problems
}

func (f *Form) fail(key, kind, msg string, v gjson.Result, ctx map[string]any) {
	input := json.RawMessage(v.Raw)
	if !v.Exists() {
		input = json.RawMessage(f.in.Raw)
	}
	f.problems = append(f.problems, Problem{Type: kind, Loc: []any{f.where, key}, Msg: msg, Input: input, Ctx: ctx})
}

// Fail adds a problem with a field.
func (f *Form) Fail(key, kind, msg string) { f.fail(key, kind, msg, f.get(key), nil) }

// FailWith is Fail with facts for programs.
func (f *Form) FailWith(key, kind, msg string, ctx map[string]any) {
	f.fail(key, kind, msg, f.get(key), ctx)
}

// get returns a field. Keys are taken literally.
func (f *Form) get(key string) gjson.Result {
	return f.in.Get(gjson.Escape(key))
}

// Has reports whether a field was sent.
func (f *Form) Has(key string) bool { return f.get(key).Exists() }

// Raw returns a field as it was sent; nil when it was not, or is null.
func (f *Form) Raw(key string) json.RawMessage {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return nil
	}
	return json.RawMessage(v.Raw)
}

// ThreadPattern is the form of the ids of threads.
var ThreadPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// maxThread is how long the id of a thread may be.
const maxThread = 64

// BadThread is the problem of a text that is no id of a thread.
func BadThread(where, key, text string) Problem {
	p := Problem{Loc: []any{where, key}, Input: jsonobj.Quote(text)}
	if utf8.RuneCountInString(text) > maxThread {
		p.Type, p.Msg, p.Ctx = "string_too_long", fmt.Sprintf("String should have at most %d characters", maxThread), map[string]any{"max_length": maxThread}
	} else {
		p.Type, p.Msg, p.Ctx = "string_pattern_mismatch", "String should match pattern '"+ThreadPattern.String()+"'", map[string]any{"pattern": ThreadPattern.String()}
	}
	return p
}

// Thread requires that a text is the id of a thread.
func (f *Form) Thread(key string) {
	if text := f.get(key).String(); !ThreadPattern.MatchString(text) {
		f.problems = append(f.problems, BadThread(f.where, key, text))
	}
}

// Match requires a form of a text.
func (f *Form) Match(key string, form *regexp.Regexp) {
	if v := f.get(key); v.Type == gjson.String && !form.MatchString(v.Str) {
		f.fail(key, "string_pattern_mismatch", "String should match pattern '"+form.String()+"'", v, map[string]any{"pattern": form.String()})
	}
}

// Among requires that a text, if there is one, is one of some.
func (f *Form) Among(key string, words ...string) {
	if v := f.get(key); v.Type == gjson.String && !slices.Contains(words, v.Str) {
		list := "'" + strings.Join(words[:len(words)-1], "', '") + "' or '" + words[len(words)-1] + "'"
		f.fail(key, "literal_error", "Input should be "+list, v, map[string]any{"expected": list})
	}
}

// Required returns a text that must be there, of least to most characters.
func (f *Form) Required(key string, least, most int) string {
	v := f.get(key)
	if !v.Exists() {
		f.fail(key, "missing", "Field required", v, nil)
		return ""
	}
	return f.text(key, v, least, most)
}

// Text returns a text; nil when it is not there or null.
func (f *Form) Text(key string, least, most int) *string {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return nil
	}
	s := f.text(key, v, least, most)
	return &s
}

// TextOr returns a text; def when it is not there. It must not be null.
func (f *Form) TextOr(key, def string, least, most int) string {
	v := f.get(key)
	if !v.Exists() {
		return def
	}
	return f.text(key, v, least, most)
}

func (f *Form) text(key string, v gjson.Result, least, most int) string {
	if v.Type != gjson.String {
		f.fail(key, "string_type", "Input should be a valid string", v, nil)
		return ""
	}
	switch n := utf8.RuneCountInString(v.Str); {
	case n < least:
		f.fail(key, "string_too_short", fmt.Sprintf("String should have at least %d character%s", least, plural(least)), v, map[string]any{"min_length": least})
	case n > most:
		f.fail(key, "string_too_long", fmt.Sprintf("String should have at most %d character%s", most, plural(most)), v, map[string]any{"max_length": most})
	}
	return v.Str
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// Int returns a whole number from least to most; def when it is not there. As in the Gateway, a text of digits and a boolean are numbers, too.
func (f *Form) Int(key string, def, least, most int) int {
	v := f.get(key)
	if !v.Exists() {
		return def
	}
	n, kind, why := wholeNumber(v)
	switch {
	case kind != "":
		f.fail(key, kind, "Input should be a valid integer"+why, v, nil)
	case n < int64(least):
		f.fail(key, "greater_than_equal", fmt.Sprintf("Input should be greater than or equal to %d", least), v, map[string]any{"ge": least})
	case n > int64(most):
		f.fail(key, "less_than_equal", fmt.Sprintf("Input should be less than or equal to %d", most), v, map[string]any{"le": most})
	default:
		return int(n)
	}
	return def
}

var (
	digits  = regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)*(\.0*)?$`)
	integer = regexp.MustCompile(`^-?[0-9]+$`)
)

// wholeNumber reads a whole number; one that is too large becomes the largest. kind says why v is none, and why explains it.
func wholeNumber(v gjson.Result) (n int64, kind, why string) {
	text := v.Raw
	switch v.Type {
	case gjson.True:
		return 1, "", ""
	case gjson.False:
		return 0, "", ""
	case gjson.String:
		text = strings.TrimSpace(v.Str)
		if !digits.MatchString(text) {
			return 0, "int_parsing", ", unable to parse string as an integer"
		}
		text, _, _ = strings.Cut(strings.ReplaceAll(text, "_", ""), ".")
	case gjson.Number:
		switch {
		case integer.MatchString(text):
		case v.Num != math.Trunc(v.Num) || math.IsInf(v.Num, 0):
			return 0, "int_from_float", ", got a number with a fractional part"
		default: // 1.0, 1e3
			text = strconv.FormatFloat(v.Num, 'f', -1, 64)
		}
	default:
		return 0, "int_type", ""
	}
	n, _ = strconv.ParseInt(text, 10, 64) // out of range: the nearest
	return n, "", ""
}

// RequiredInt reads an integer that must be given.
func (f *Form) RequiredInt(key string, least, most int) int {
	if !f.Has(key) {
		f.Fail(key, "missing", "Field required")
		return 0
	}
	return f.Int(key, least, least, most)
}

// Number returns a number from least to most; nil when it is not there or null. A text of a number is one, too.
func (f *Form) Number(key string, least, most float64) *float64 {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return nil
	}
	return f.number(key, v, least, most)
}

// NumberOr is Number for a field that must not be null; nil when it is not there.
func (f *Form) NumberOr(key string, least, most float64) *float64 {
	v := f.get(key)
	if !v.Exists() {
		return nil
	}
	return f.number(key, v, least, most)
}

func (f *Form) number(key string, v gjson.Result, least, most float64) *float64 {
	n := v.Num
	switch v.Type {
	case gjson.Number:
	case gjson.String:
		var err error
		if n, err = strconv.ParseFloat(strings.TrimSpace(v.Str), 64); err != nil || math.IsNaN(n) {
			f.fail(key, "float_parsing", "Input should be a valid number, unable to parse string as a number", v, nil)
			return nil
		}
	case gjson.True, gjson.False:
		n = 0
		if v.Type == gjson.True {
			n = 1
		}
	default:
		f.fail(key, "float_type", "Input should be a valid number", v, nil)
		return nil
	}
	switch {
	case n < least:
		f.fail(key, "greater_than_equal", fmt.Sprintf("Input should be greater than or equal to %g", least), v, map[string]any{"ge": least})
	case n > most:
		f.fail(key, "less_than_equal", fmt.Sprintf("Input should be less than or equal to %g", most), v, map[string]any{"le": most})
	default:
		return &n
	}
	return nil
}

// Bool returns a boolean; def when it is not there. As in the Gateway, several texts and the numbers 0 and 1 are booleans, too.
func (f *Form) Bool(key string, def bool) bool {
	v := f.get(key)
	switch {
	case !v.Exists():
		return def
	case v.Type == gjson.True || v.Type == gjson.False:
		return v.Bool()
	case v.Type == gjson.Number && (v.Num == 0 || v.Num == 1):
		return v.Num == 1
	case v.Type == gjson.String:
		if b, ok := booleans[strings.ToLower(v.Str)]; ok {
			return b
		}
	}
	if v.Type == gjson.String || v.Type == gjson.Number {
		f.fail(key, "bool_parsing", "Input should be a valid boolean, unable to interpret input", v, nil)
	} else {
		f.fail(key, "bool_type", "Input should be a valid boolean", v, nil)
	}
	return def
}

// BoolOr is Bool for a field that may be null: def, too.
func (f *Form) BoolOr(key string, def bool) bool {
	if f.get(key).Type == gjson.Null {
		return def
	}
	return f.Bool(key, def)
}

var booleans = map[string]bool{"true": true, "1": true, "yes": true, "on": true, "y": true, "t": true, "false": false, "0": false, "no": false, "off": false, "n": false, "f": false}

// RequiredBool is Bool for a field that must be there.
func (f *Form) RequiredBool(key string) bool {
	if !f.Has(key) {
		f.fail(key, "missing", "Field required", gjson.Result{}, nil)
		return false
	}
	return f.Bool(key, false)
}

// Dict is Object for a field that must not be null.
func (f *Form) Dict(key string) json.RawMessage {
	if v := f.get(key); v.Exists() && v.Type == gjson.Null {
		f.fail(key, "dict_type", "Input should be a valid dictionary", v, nil)
	}
	return f.Object(key)
}

// RequiredDict is Dict for a field that must be there.
func (f *Form) RequiredDict(key string) json.RawMessage {
	if !f.Has(key) {
		f.Fail(key, "missing", "Field required")
		return nil
	}
	return f.Dict(key)
}

// Object returns an object; nil when it is not there or null.
func (f *Form) Object(key string) json.RawMessage {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return nil
	}
	if !v.IsObject() {
		f.fail(key, "dict_type", "Input should be a valid dictionary", v, nil)
		return nil
	}
	return json.RawMessage(v.Raw)
}

// ModelSettings checks what an agent says to its model.
func (f *Form) ModelSettings(key string) {
	o := f.get(key)
	inner := &Form{in: o, where: f.where}
	o.ForEach(func(k, v gjson.Result) bool {
		if k.Str != "temperature" && k.Str != "max_tokens" {
			inner.fail(k.Str, "extra_forbidden", "Extra inputs are not permitted", v, nil)
		}
		return true
	})
	inner.Number("temperature", 0, 2)
	if inner.Raw("max_tokens") != nil {
		inner.Int("max_tokens", 1, 1, math.MaxInt)
	}
	for _, p := range inner.problems {
		p.Loc = []any{f.where, key, p.Loc[1]}
		f.problems = append(f.problems, p)
	}
}

// Amount returns {"type": "messages", "tokens" or "fraction", "value": number}; nil when it is not there or null.
func (f *Form) Amount(key string) *settings.Amount {
	raw := f.Object(key)
	if raw == nil {
		return nil
	}
	kind, v := gjson.GetBytes(raw, "type"), gjson.GetBytes(raw, "value")
	switch most := 1e9; {
	case kind.Str != "messages" && kind.Str != "tokens" && kind.Str != "fraction":
		f.Fail(key+".type", "literal_error", "Input should be 'messages', 'tokens' or 'fraction'")
	case v.Type != gjson.Number:
		f.Fail(key+".value", "float_type", "Input should be a valid number")
	case kind.Str == "fraction" && (v.Num <= 0 || v.Num > 1):
		f.Fail(key+".value", "value_error", "A fraction is more than 0 and at most 1")
	case kind.Str != "fraction" && (v.Num < 1 || v.Num > most || v.Num != math.Trunc(v.Num)):
		f.Fail(key+".value", "value_error", "Messages and tokens are whole numbers from 1 on")
	}
	return &settings.Amount{Type: kind.Str, Value: v.Num}
}

// Texts returns a list of texts; nil when it is not there or null.
func (f *Form) Texts(key string) []string {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return nil
	}
	if !v.IsArray() {
		f.fail(key, "list_type", "Input should be a valid list", v, nil)
		return nil
	}
	list := []string{}
	for _, e := range v.Array() {
		if e.Type != gjson.String {
			f.fail(key, "string_type", "Input should be a valid string", e, nil)
			return nil
		}
		list = append(list, e.Str)
	}
	return list
}

// Fields requires texts of an element of a list.
func (f *Form) Fields(key string, i int, e gjson.Result, names ...string) {
	problem := func(kind, msg string, v gjson.Result, more ...any) {
		f.problems = append(f.problems, Problem{Type: kind, Loc: append([]any{f.where, key, i}, more...), Msg: msg, Input: json.RawMessage(v.Raw)})
	}
	if !e.IsObject() {
		problem("model_attributes_type", "Input should be a valid dictionary or object to extract fields from", e)
		return
	}
	for _, name := range names {
		switch v := e.Get(gjson.Escape(name)); {
		case !v.Exists():
			problem("missing", "Field required", e, name)
		case v.Type != gjson.String:
			problem("string_type", "Input should be a valid string", v, name)
		}
	}
}

// Each calls fn for each element of a list; a field that is something else is a problem.
func (f *Form) Each(key string, fn func(i int, e gjson.Result)) {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return
	}
	if !v.IsArray() {
		f.fail(key, "list_type", "Input should be a valid list", v, nil)
		return
	}
	for i, e := range v.Array() {
		fn(i, e)
	}
}
