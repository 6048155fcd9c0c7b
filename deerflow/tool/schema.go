package tool

import (
	"encoding/json"
	"strings"

	"understudy/internal/jsonobj"
)

// arg is an argument of a tool. kind is the JSON Schema of its value, without braces.
type arg struct {
	name, kind, about string
	optional          bool
}

const (
	text    = `"type":"string"`
	boolean = `"type":"boolean"`
	integer = `"type":"integer"`
	// Models send null for what they leave out.
	textOrNull    = `"anyOf":[{"type":"string"},{"type":"null"}]`
	integerOrNull = `"anyOf":[{"type":"integer"},{"type":"null"}]`
)

// description is the first argument of tools whose use is shown to the user.
var description = arg{"description", text, "Why you do this, in a few words. The user sees it.", true}

// schema returns the JSON Schema of arguments. Others are ignored.
func schema(args ...arg) json.RawMessage {
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{`)
	var required []string
	for i, a := range args {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(jsonobj.Quote(a.name))
		b.WriteString(`:{` + a.kind)
		if a.about != "" {
			b.WriteString(`,"description":`)
			b.Write(jsonobj.Quote(a.about))
		}
		b.WriteByte('}')
		if !a.optional {
			required = append(required, string(jsonobj.Quote(a.name)))
		}
	}
	b.WriteString(`},"required":[` + strings.Join(required, ",") + `]}`)
	return json.RawMessage(b.String())
}
