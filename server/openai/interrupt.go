package openai

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

// question is an interrupt that a thread waits at.
type question struct {
	id    string // "": it has none
	raw   json.RawMessage
	value gjson.Result
}

// questions reads the interrupts of a thread, {task: [{id, value}]}. The first is the one that is asked: their order is the same here and in the answer of
// the run that asked, whatever order its branches had.
func questions(interrupts json.RawMessage) []question {
	var all []question
	if len(interrupts) == 0 {
		return nil
	}
	gjson.ParseBytes(interrupts).ForEach(func(_, list gjson.Result) bool {
		all = append(all, questionsIn(list)...)
		return true
	})
	return inOrder(all)
}

func questionsIn(list gjson.Result) (all []question) {
	list.ForEach(func(_, v gjson.Result) bool {
		raw := bytes.Buffer{} // on one line, for events
		if json.Compact(&raw, []byte(v.Raw)) == nil {
			v = gjson.ParseBytes(raw.Bytes())
			all = append(all, question{id: v.Get("id").String(), raw: raw.Bytes(), value: v.Get("value")})
		}
		return true
	})
	return all
}

func inOrder(all []question) []question {
	slices.SortStableFunc(all, func(a, b question) int { return cmp.Compare(a.id, b.id) })
	return slices.CompactFunc(all, func(a, b question) bool { return a.id != "" && a.id == b.id })
}

// approves are texts that approve the calls of tools that an agent asks about.
var approves = []string{"approve", "approved", "yes", "y", "ok", "okay"}

// resume makes of a text the value that the first question is answered with. A JSON object or list is the value itself. An agent that asks about calls of
// tools takes decisions: a word of consent approves them, and any other text refuses them and tells the model why. Of several questions, the others are asked again.
func resume(pending []question, text string) json.RawMessage {
	trimmed := strings.TrimSpace(text)
	value := jsonobj.Quote(text)
	if v := gjson.Parse(trimmed); jsonscan.Valid([]byte(trimmed)) && (v.IsObject() || v.IsArray()) {
		value = json.RawMessage(trimmed)
	} else if calls := pending[0].value.Get("action_requests"); calls.IsArray() {
		kind := "reject"
		if allowed := pending[0].value.Get("review_configs.0.allowed_decisions"); !allows(allowed, kind) && allows(allowed, "respond") {
			kind = "respond"
		}
		decision := append(jsonobj.AppendText([]byte(`{"type":"`+kind+`","message":`), text), '}')
		if slices.Contains(approves, strings.ToLower(strings.TrimRight(trimmed, ".!"))) {
			decision = []byte(`{"type":"approve"}`)
		}
		decisions := make([][]byte, 0, 1)
		for range calls.Array() {
			decisions = append(decisions, decision)
		}
		o := jsonobj.Object{}
		o.Set("decisions", list(decisions))
		value = o.JSON()
	}
	if len(pending) == 1 || pending[0].id == "" {
		return value
	}
	o := jsonobj.Object{}
	o.Set(pending[0].id, value)
	return o.JSON()
}

func allows(decisions gjson.Result, kind string) bool {
	return slices.ContainsFunc(decisions.Array(), func(d gjson.Result) bool { return d.Str == kind })
}

// howApprove is how calls of tools are approved.
const howApprove = "Answer `approve`, or say what should be done instead."

// noThread is added to questions that cannot be answered.
const noThread = "(This cannot be answered, because the conversation has no thread.)"

// ask is the text by which a person learns of a question. resumable: an answer continues the run.
func (q question) ask(resumable bool) string {
	if !resumable {
		return q.text("") + "\n\n" + noThread
	}
	return q.text(howApprove)
}

// text is the text of a question. approve is added when calls of tools are to be approved.
func (q question) text(approve string) string {
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
