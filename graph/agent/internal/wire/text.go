package wire

import (
	"regexp"
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

// escaped reports whether the next character of a JSON text is escaped.
func escaped(raw string) bool {
	n := len(raw) - len(strings.TrimRight(raw, `\`))
	return n%2 == 1
}
