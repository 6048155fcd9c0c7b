package wire

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// Texts reads JSON texts that come in pieces. Servers that cut a text between the two escapes of a surrogate pair get the first held back
// until the second comes. The zero value is ready.
type Texts struct{ held map[string]string }

// half is the escape of the first half of a surrogate pair at the end of a text.
var half = regexp.MustCompile(`^\\u[dD][89abAB][0-9a-fA-F]{2}"$`)

// Read returns a piece of the text of this name; "" for values of other types.
func (t *Texts) Read(name string, in gjson.Result) string {
	if in.Type != gjson.String {
		return ""
	}
	held := t.held[name]
	if held == "" && !strings.Contains(in.Raw, `\u`) {
		return in.Str
	}
	raw := in.Raw
	if held != "" && len(raw) > 2 {
		raw = `"` + held + raw[1:]
		delete(t.held, name)
	}
	if at := len(raw) - len(`\ud83d"`); at > 0 && half.MatchString(raw[at:]) && !escaped(raw[:at]) {
		if t.held == nil {
			t.held = map[string]string{}
		}
		t.held[name] = strings.Clone(raw[at : len(raw)-1])
		raw = raw[:at] + `"`
	}
	return gjson.Parse(raw).Str
}

// maxCount is the largest number that JSON keeps exactly in all languages: clients and storages compute with counts.
const maxCount = 1 << 53

// Count reads a count of tokens, a number or a text with one. ok is false for what is no count: negative, beyond 2^53, or of another type.
func Count(v gjson.Result) (n int64, ok bool) {
	if v.Type != gjson.Number && v.Type != gjson.String {
		return 0, false
	}
	x := v.Num
	if v.Type == gjson.String {
		var err error
		if x, err = strconv.ParseFloat(v.Str, 64); err != nil {
			return 0, false
		}
	}
	if !(x >= 0 && x <= maxCount) { // also what is no number
		return 0, false
	}
	return int64(x), true
}

// escaped reports whether the next character of a JSON text is escaped.
func escaped(raw string) bool {
	n := len(raw) - len(strings.TrimRight(raw, `\`))
	return n%2 == 1
}
