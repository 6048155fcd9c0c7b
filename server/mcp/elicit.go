package mcp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/server/answer"
)

// Forms of questions: clients show flat objects.
const (
	textForm     = `{"type":"object","properties":{"answer":{"type":"string","title":"Answer","description":"A text, or JSON"}},"required":["answer"]}`
	decisionForm = `{"type":"object","properties":{` +
		`"decision":{"type":"string","title":"Decision","enum":["approve","reject"]},` +
		`"message":{"type":"string","title":"Message","description":"If you reject: why, or what should be done instead"}},"required":["decision"]}`
)

// Elicit makes the request by which a client asks its user a question of a call. Its id names both, so that any server can take the answer.
func Elicit(call json.RawMessage, q answer.Question) []byte {
	b := jsonobj.AppendText([]byte(`{"jsonrpc":"2.0","id":`), q.ID+":"+string(call))
	b = jsonobj.AppendText(append(b, `,"method":"elicitation/create","params":{"message":`...), q.Asks())
	b = append(b, `,"requestedSchema":`...)
	return append(append(b, form(q)...), "}}"...)
}

// form returns the schema of the answer to a question.
func form(q answer.Question) string {
	if q.Decides() {
		return decisionForm
	}
	if schema := responseSchema(q); schema != "" {
		return schema
	}
	return textForm
}

// responseSchema returns the schema that the graph has for the answer to a question, if clients can show it; "" if not.
func responseSchema(q answer.Question) string {
	schema := gjson.GetBytes(q.Raw, "response_schema")
	properties := schema.Get("properties")
	if schema.Get("type").Str != "object" || !properties.IsObject() {
		return ""
	}
	flat := true
	properties.ForEach(func(_, p gjson.Result) bool {
		flat = slices.Contains([]string{"string", "number", "integer", "boolean"}, p.Get("type").Str)
		return flat
	})
	if !flat {
		return ""
	}
	return schema.Raw
}

// Elicited is the answer of a client's user to a question.
type Elicited struct {
	Call     json.RawMessage // id of the call that asks
	Question string          // id of the interrupt
	accepted bool
	content  gjson.Result
}

// ReadElicited reads a body that answers a request of the server. ok is false when it answers none.
func ReadElicited(m Message) (e Elicited, ok bool) {
	question, call, ok := strings.Cut(m.AnswerTo, ":")
	if !ok || !isID(gjson.Parse(call)) || !gjson.Valid(call) {
		return e, false
	}
	e.Question, e.Call = question, json.RawMessage(call)
	e.accepted = m.Answer.Get("action").Str == "accept"
	e.content = m.Answer.Get("content")
	return e, true
}

// Reply returns the value that a question is answered with. ok is false when its user gives no answer.
func (e Elicited) Reply(q answer.Question) (value json.RawMessage, ok bool) {
	switch {
	case q.Decides():
		if e.accepted && e.content.Get("decision").Str == "approve" {
			return q.Decide(true, ""), true
		}
		why := e.content.Get("message").String()
		if strings.TrimSpace(why) == "" {
			why = "The user declined."
		}
		return q.Decide(false, why), true
	case !e.accepted:
		return nil, false
	case responseSchema(q) != "":
		if !e.content.IsObject() {
			return json.RawMessage(`{}`), true
		}
		return json.RawMessage(e.content.Raw), true
	}
	return q.Reply(e.content.Get("answer").String()), true
}
