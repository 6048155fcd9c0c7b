package answer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// Question is an interrupt that a thread waits at.
type Question struct {
	ID    string          // "": it has none
	Raw   json.RawMessage // {id, value}, on one line
	value gjson.Result
}

// Questions reads the interrupts of a thread, {task: [{id, value}]}. The first is the one that is asked: their order is the same here and in the answer of
// the run that asked, whatever order its branches had.
func Questions(interrupts json.RawMessage) []Question {
	var all []Question
	if len(interrupts) == 0 {
		return nil
	}
	gjson.ParseBytes(interrupts).ForEach(func(_, list gjson.Result) bool {
		all = append(all, questionsIn(list)...)
		return true
	})
	return inOrder(all)
}

func questionsIn(list gjson.Result) (all []Question) {
	list.ForEach(func(_, v gjson.Result) bool {
		raw := bytes.Buffer{} // on one line, for events
		if json.Compact(&raw, []byte(v.Raw)) == nil {
			v = gjson.ParseBytes(raw.Bytes())
			all = append(all, Question{ID: v.Get("id").String(), Raw: raw.Bytes(), value: v.Get("value")})
		}
		return true
	})
	return all
}

func inOrder(all []Question) []Question {
	slices.SortStableFunc(all, func(a, b Question) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b Question) bool { return a.ID != "" && a.ID == b.ID })
}

// approves are texts that approve the calls of tools that an agent asks about.
var approves = []string{"approve", "approved", "yes", "y", "ok", "okay"}

// Resume makes of a text the value that resumes a thread: what the first question is answered with. Of several questions, the others are asked again.
func Resume(pending []Question, text string) json.RawMessage {
	value := pending[0].Reply(text)
	if len(pending) == 1 || pending[0].ID == "" {
		return value
	}
	o := jsonobj.Object{}
	o.Set(pending[0].ID, value)
	return o.JSON()
}

// Reply makes of a text the value that the question is answered with. A JSON object or list is the value itself. An agent that asks about calls of
// tools takes decisions: a word of consent approves them, and any other text refuses them and reports the reason to the model.
func (q Question) Reply(text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	value := jsonobj.Quote(text)
	if v := gjson.Parse(trimmed); jsonscan.Valid([]byte(trimmed)) && (v.IsObject() || v.IsArray()) {
		value = json.RawMessage(trimmed)
	} else if q.Decides() {
		value = q.Decide(slices.Contains(approves, strings.ToLower(strings.TrimRight(trimmed, ".!"))), text)
	}
	return value
}

// Decides reports whether an agent asks about calls of tools, so that the answer is a decision.
func (q Question) Decides() bool { return q.value.Get("action_requests").IsArray() }

// Decide returns the value that approves all calls of tools that an agent asks about, or refuses them and shows the model why.
func (q Question) Decide(approve bool, why string) json.RawMessage {
	kind := "reject"
	if allowed := q.value.Get("review_configs.0.allowed_decisions"); !allows(allowed, kind) && allows(allowed, "respond") {
		kind = "respond"
	}
	decision := append(jsonobj.AppendText([]byte(`{"type":"`+kind+`","message":`), why), '}')
	if approve {
		decision = []byte(`{"type":"approve"}`)
	}
	var decisions []json.RawMessage
	for range q.value.Get("action_requests").Array() {
		decisions = append(decisions, decision)
	}
	o := jsonobj.Object{}
	o.Set("decisions", jsonscan.Join(decisions))
	return o.JSON()
}

func allows(decisions gjson.Result, kind string) bool {
	return slices.ContainsFunc(decisions.Array(), func(d gjson.Result) bool { return d.Str == kind })
}

// howApprove is how calls of tools are approved.
const howApprove = "Answer `approve`, or say what should be done instead."

// noThread is added to questions that cannot be answered.
const noThread = "(This cannot be answered, because the conversation has no thread.)"

// Text is the text by which a person learns of a question. resumable: an answer continues the run.
func (q Question) Text(resumable bool) string {
	if !resumable {
		return q.text("") + "\n\n" + noThread
	}
	return q.text(howApprove)
}

// Asks is the text of a question that is answered in a form.
func (q Question) Asks() string { return q.text("") }

// text is the text of a question. approve is added when calls of tools are to be approved.
func (q Question) text(approve string) string {
	v := q.value
	if v.Type == gjson.String {
		return v.Str
	}
	if calls := v.Get("action_requests"); calls.IsArray() {
		var lines []string
		for _, c := range calls.Array() {
			about := c.Get("description").String()
			if about == "" {
				about = c.Get("name").String() + " " + c.Get("args").Raw
			}
			lines = append(lines, about)
		}
		if approve != "" {
			lines = append(lines, approve)
		}
		return strings.Join(lines, "\n\n")
	}
	for _, key := range []string{"question", "message", "prompt", "query"} {
		if text := v.Get(key); text.Type == gjson.String && text.Str != "" {
			return text.Str
		}
	}
	if !v.Exists() {
		return "The run waits for an answer."
	}
	return v.Raw
}
