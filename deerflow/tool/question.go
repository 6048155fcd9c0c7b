package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// Bounds of a form. One that is beyond them is not shown in part: the question is shown without it.
const (
	maxFields  = 16
	maxChoices = 24  // of a field
	maxWords   = 200 // characters of a name, label, choice or placeholder
	maxForm    = 16 << 10
)

const askName = "ask_clarification"

// Question is what ask_clarification asks.
type Question struct {
	Question string          `json:"question"`
	Type     string          `json:"clarification_type"`
	Context  *string         `json:"context"`
	Options  json.RawMessage `json:"options"` // a list; some models send it as text
	Fields   json.RawMessage `json:"fields"`  // likewise
}

// icons show the type of a question.
var icons = map[string]string{"missing_info": "❓", "ambiguous_requirement": "🤔", "approach_choice": "🔀", "risk_confirmation": "⚠️", "suggestion": "💡"}

// unpacked returns JSON that some models send as a text.
func unpacked(raw json.RawMessage) json.RawMessage {
	var packed string
	if json.Unmarshal(raw, &packed) != nil || packed == "" {
		return raw
	}
	if json.Valid([]byte(packed)) {
		return json.RawMessage(packed)
	}
	return jsonobj.Quote(packed)
}

// choicesOf returns the options that can be shown: without blanks, each once.
func choicesOf(raw json.RawMessage) (list []string) {
	raw = unpacked(raw)
	var values []any
	if json.Unmarshal(raw, &values) != nil {
		var one any
		if json.Unmarshal(raw, &one) != nil || one == nil {
			return nil
		}
		values = []any{one}
	}
	seen := map[string]bool{}
	for _, v := range values {
		choice := strings.TrimSpace(fmt.Sprint(v))
		if v == nil || choice == "" || seen[choice] {
			continue
		}
		seen[choice] = true
		list = append(list, choice)
	}
	return list
}

// choice is an answer to choose from, as the web UI reads it.
type choice struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	Value string `json:"value"`
}

func choices(prefix string, texts []string) (list []choice) {
	for i, t := range texts {
		list = append(list, choice{fmt.Sprintf("%soption-%d", prefix, i+1), t, t})
	}
	return list
}

// joined returns choices in a line.
func joined(list []choice) string {
	var labels []string
	for _, c := range list {
		labels = append(labels, c.Label)
	}
	return strings.Join(labels, " / ")
}

// field is one of a form.
type field struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"`
	Type        string   `json:"type"`
	Required    bool     `json:"required"`
	Options     []choice `json:"options,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
}

var (
	fieldTypes = []string{"text", "textarea", "number", "select", "multi_select", "checkbox", "date"}
	// reserved are names that every object of JavaScript has: the web UI keeps what is filled in by name.
	reserved = []string{
		"__proto__", "constructor", "prototype", "toString", "toLocaleString", "valueOf", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
		"__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
	}
)

// form returns the fields of a form. It is nil if one of them cannot be shown: a form that lacks a field would be answered without it.
func (q Question) form() []field {
	var raw []map[string]json.RawMessage
	if json.Unmarshal(unpacked(q.Fields), &raw) != nil || len(raw) > maxFields {
		return nil
	}
	var list []field
	for _, r := range raw {
		f, ok := fieldOf(r)
		if !ok || slices.Contains(reserved, f.Name) || slices.ContainsFunc(list, func(o field) bool { return o.Name == f.Name }) {
			return nil
		}
		list = append(list, f)
	}
	if all, err := json.Marshal(list); err != nil || len(all) > maxForm {
		return nil
	}
	return list
}

// fieldOf reads a field; ok is false if it cannot be shown. One of a type that is not known, and a list to choose from that is empty, are filled in as text.
func fieldOf(raw map[string]json.RawMessage) (f field, ok bool) {
	word := func(key string) string {
		var s string
		_ = json.Unmarshal(raw[key], &s) // another type counts as none
		return strings.TrimSpace(s)
	}
	f = field{Name: word("name"), Label: word("label"), Type: word("type"), Placeholder: word("placeholder"), Required: isTrue(raw["required"])}
	if f.Label == "" {
		f.Label = f.Name
	}
	if !slices.Contains(fieldTypes, f.Type) {
		f.Type = "text"
	}
	if f.Type == "select" || f.Type == "multi_select" {
		texts := choicesOf(raw["options"])
		if len(texts) > maxChoices || slices.ContainsFunc(texts, tooLong) {
			return f, false
		}
		if f.Options = choices(f.Name+"-", texts); len(texts) == 0 {
			f.Type = "text"
		}
	}
	return f, f.Name != "" && !tooLong(f.Name) && !tooLong(f.Label) && !tooLong(f.Placeholder)
}

func tooLong(s string) bool { return utf8.RuneCountInString(s) > maxWords }

// isTrue reads a boolean that some models send as a text or a number.
func isTrue(raw json.RawMessage) bool {
	var v any
	_ = json.Unmarshal(raw, &v) // nil is false
	switch v := v.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		return strings.EqualFold(strings.TrimSpace(v), "true")
	}
	return false
}

// text returns the question as channels show it.
func (q Question) text(fields []field) string {
	icon := icons[q.Type]
	if icon == "" {
		icon = icons["missing_info"]
	}
	out := icon + " " + q.Question
	if q.Context != nil && *q.Context != "" {
		out = icon + " " + *q.Context + "\n\n" + q.Question
	}
	var lines []string
	for _, f := range fields {
		line := f.Label
		if f.Required {
			line += " (required)"
		}
		if len(f.Options) > 0 {
			line += " — options: " + joined(f.Options)
		}
		if f.Type == "multi_select" {
			line += " (multiple allowed)"
		}
		lines = append(lines, line)
	}
	if len(fields) == 0 {
		lines = choicesOf(q.Options)
	}
	for i, line := range lines {
		if i == 0 {
			out += "\n"
		}
		out += fmt.Sprintf("\n  %d. %s", i+1, line)
	}
	if len(fields) > 0 {
		out += "\n\nPlease reply with a value for each field."
	}
	return out
}

// request is the question as the web UI shows it: a card with a form, with answers to choose from, or with a text to write.
type request struct {
	Version  int      `json:"version"`
	Kind     string   `json:"kind"`
	Source   string   `json:"source"`
	ID       string   `json:"request_id"`
	Type     string   `json:"clarification_type"`
	Question string   `json:"question"`
	Mode     string   `json:"input_mode"`
	Call     string   `json:"tool_call_id,omitempty"`
	Context  *string  `json:"context,omitempty"`
	Fields   []field  `json:"fields,omitempty"`
	Options  []choice `json:"options,omitempty"`
}

// message returns the result of the call.
func (q Question) message(call message.ToolCall) (message.Message, error) {
	fields := q.form()
	m := message.Tool(q.text(fields), call.ID).WithName(call.Name).WithID("clarification:" + call.ID)
	r := request{Version: 1, Kind: "human_input_request", Source: askName, ID: m.ID, Type: q.Type, Question: q.Question, Mode: "free_text", Call: call.ID, Context: q.Context}
	if texts := choicesOf(q.Options); len(fields) > 0 {
		r.Version, r.Mode, r.Fields = 2, "form", fields
	} else if len(texts) > 0 {
		r.Mode, r.Options = "choice_with_other", choices("", texts)
	}
	var err error
	m.Artifact, err = json.Marshal(struct {
		Input request `json:"human_input"`
	}{r})
	return m, err
}

// Clarification gives an agent the tool ask_clarification. The run ends with the question; the next message of the user answers it. Calls of other tools in the same
// answer are left out: the question comes before what depends on its answer.
func Clarification() agent.Middleware {
	return agent.Middleware{Name: "ClarificationMiddleware", Tools: []agent.Tool{AskClarification()}, WrapModelCall: askAlone}
}

func askAlone(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
	out, err := next(ctx, r)
	if err != nil || len(out.Messages) == 0 || !slices.ContainsFunc(r.Tools, func(t agent.Tool) bool { return t.Name == askName }) {
		return out, err
	}
	kept := slices.DeleteFunc(slices.Clone(out.Messages[0].ToolCalls), func(c message.ToolCall) bool { return c.Name != askName })
	if left := len(out.Messages[0].ToolCalls) - len(kept); len(kept) > 0 && left > 0 {
		pregel.LogOf(ctx).Info("the model asks the user next to other calls, which are left out", "left_out", left)
		out.Messages = append([]message.Message{middleware.WithCalls(out.Messages[0], kept)}, out.Messages[1:]...)
	}
	return out, nil
}

// AskClarification returns the tool of Clarification.
func AskClarification() agent.Tool {
	return agent.Tool{
		Name:        askName,
		Description: "Asks the user a question, and waits for the answer. Ask before you act when something is missing, unclear, risky, or has several good ways. Call it alone. For several values at once use fields, which are shown as one form.",
		Schema: schema(arg{"question", text, "The question, short and exact.", false},
			arg{"clarification_type", text + `,"enum":["missing_info","ambiguous_requirement","approach_choice","risk_confirmation","suggestion"]`, "Why you ask.", false},
			arg{"context", textOrNull, "What the user needs to know to answer.", true}, arg{"options", `"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"string"},{"type":"null"}]`, "Answers to choose from.", true},
			arg{
				"fields", `"anyOf":[{"type":"array","items":{"type":"object"}},{"type":"string"},{"type":"null"}]`,
				"Fields of a form, in place of options: each has name, and may have label, type (" + strings.Join(fieldTypes, ", ") + "), required, options (texts, for select and multi_select) and placeholder.", true,
			}),
		Direct: true,
		Run: func(_ context.Context, call message.ToolCall) (any, error) {
			var q Question
			if err := json.Unmarshal(call.Args, &q); err != nil {
				return nil, fmt.Errorf("arguments: %w", err)
			}
			return q.message(call)
		},
	}
}
