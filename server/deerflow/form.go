// Package deerflow is the wire of DeerFlow's Gateway: request bodies, answers and errors, as its web UI, its channels and scripts speak it.
package deerflow

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
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
	if !gjson.ValidBytes(body) || !utf8.Valid(body) {
		return nil, Problems{{Type: "json_invalid", Loc: []any{"body"}, Msg: "JSON decode error", Input: json.RawMessage("{}")}}
	}
	f := &Form{in: gjson.ParseBytes(body), where: "body"}
	if !f.in.IsObject() {
		return nil, Problems{{Type: "model_attributes_type", Loc: []any{"body"}, Msg: "Input should be a valid dictionary or object to extract fields from", Input: body}}
	}
	return f, nil
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

// Mismatch is the problem of a text that has not a form.
func Mismatch(form *regexp.Regexp, where, key, text string) Problem {
	return Problem{Type: "string_pattern_mismatch", Loc: []any{where, key}, Msg: "String should match pattern '" + form.String() + "'", Input: jsonobj.Quote(text), Ctx: map[string]any{"pattern": form.String()}}
}

// Pattern requires a form of a text.
func (f *Form) Pattern(key string, form *regexp.Regexp) {
	if text := f.get(key).String(); !form.MatchString(text) {
		f.problems = append(f.problems, Mismatch(form, f.where, key, text))
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

// Int returns a whole number from least to most; def when it is not there or null.
func (f *Form) Int(key string, def, least, most int) int {
	v := f.get(key)
	if !v.Exists() || v.Type == gjson.Null {
		return def
	}
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	if f.where == "query" {
		n, err = strconv.ParseInt(v.Str, 10, 64)
	} else if err != nil && v.Type == gjson.Number && v.Num == math.Trunc(v.Num) && math.Abs(v.Num) < 1<<53 {
		n, err = int64(v.Num), nil
	}
	switch {
	case err != nil:
		f.fail(key, "int_type", "Input should be a valid integer", v, nil)
	case n < int64(least):
		f.fail(key, "greater_than_equal", fmt.Sprintf("Input should be greater than or equal to %d", least), v, map[string]any{"ge": least})
	case n > int64(most):
		f.fail(key, "less_than_equal", fmt.Sprintf("Input should be less than or equal to %d", most), v, map[string]any{"le": most})
	default:
		return int(n)
	}
	return def
}

// RequiredInt reads an integer that must be given.
func (f *Form) RequiredInt(key string, least, most int) int {
	if !f.Has(key) {
		f.Fail(key, "missing", "Field required")
		return 0
	}
	if f.Raw(key) == nil {
		f.Fail(key, "int_type", "Input should be a valid integer")
		return 0
	}
	return f.Int(key, least, least, most)
}

// Number returns a number from least to most; nil when it is not there or null.
func (f *Form) Number(key string, least, most float64) *float64 {
	v := f.get(key)
	switch {
	case !v.Exists() || v.Type == gjson.Null:
		return nil
	case v.Type != gjson.Number:
		f.fail(key, "float_type", "Input should be a valid number", v, nil)
	case v.Num < least:
		f.fail(key, "greater_than_equal", fmt.Sprintf("Input should be greater than or equal to %g", least), v, map[string]any{"ge": least})
	case v.Num > most:
		f.fail(key, "less_than_equal", fmt.Sprintf("Input should be less than or equal to %g", most), v, map[string]any{"le": most})
	default:
		return &v.Num
	}
	return nil
}

// Bool returns a boolean; def when it is not there or null. Queries may spell it in several ways.
func (f *Form) Bool(key string, def bool) bool {
	v := f.get(key)
	switch {
	case !v.Exists() || v.Type == gjson.Null:
		return def
	case v.Type == gjson.True || v.Type == gjson.False:
		return v.Bool()
	case v.Type == gjson.String:
		if b, ok := booleans[strings.ToLower(v.Str)]; ok {
			return b
		}
	}
	f.fail(key, "bool_parsing", "Input should be a valid boolean, unable to interpret input", v, nil)
	return def
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
