package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// interrupt is a question of a graph.
type interrupt struct {
	id    string
	value gjson.Result
}

func interruptOf(v gjson.Result) interrupt {
	id := v.Get("id").String()
	if id == "" {
		id = v.Get("interrupt_id").String()
	}
	return interrupt{id, v.Get("value")}
}

// decides reports whether the question is about calls of tools.
func (i interrupt) decides() bool {
	old := i.value.Array()
	return i.value.Get("action_requests").IsArray() || i.value.IsArray() && len(old) > 0 && old[0].Get("action_request").Exists()
}

// answer asks the person: to decide about calls of tools, in the form of LangChain's HumanInTheLoopMiddleware or of its older agent inbox, or
// for any text or JSON.
func (c *chat) answer(i interrupt) (any, error) {
	if requests := i.value.Get("action_requests"); requests.IsArray() {
		return c.decisions(requests.Array(), i.value.Get("review_configs"))
	}
	if i.decides() {
		return c.oldDecisions(i.value.Array())
	}
	question := i.value.String()
	if i.value.IsObject() || i.value.IsArray() {
		question = indented(i.value.Raw)
	}
	c.println(c.paint(yellow, "? ") + c.clean(question))
	text, err := c.in.line(c.paint(yellow, "answer (text or JSON)> "))
	if err != nil {
		return nil, err
	}
	return textOrJSON(text), nil
}

// textOrJSON is JSON when it looks like it, else text.
func textOrJSON(text string) any {
	text = strings.TrimSpace(text)
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// decisions asks about each call of a tool.
func (c *chat) decisions(requests []gjson.Result, configs gjson.Result) (any, error) {
	made := []any{}
	for n, r := range requests {
		name := r.Get("name").String()
		allowed := []string{"approve", "edit", "reject"}
		for k, config := range configs.Array() {
			if config.Get("action_name").String() == name || k == n && config.Get("action_name").String() == "" {
				allowed = allowed[:0]
				for _, d := range config.Get("allowed_decisions").Array() {
					allowed = append(allowed, d.String())
				}
				break
			}
		}
		args := r.Get("args")
		if !args.Exists() {
			args = r.Get("arguments")
		}
		choice, err := c.choose(name, args, allowed)
		if err != nil {
			return nil, err
		}
		decision := map[string]any{"type": choice}
		switch choice {
		case "edit":
			edited, err := c.edit(args)
			if err != nil {
				return nil, err
			}
			decision["edited_action"] = map[string]any{"name": name, "args": edited}
		case "reject", "respond":
			text, err := c.in.line(map[string]string{"reject": "why (may be empty)> ", "respond": "answer in place of the tool> "}[choice])
			if err != nil && (choice != "reject" || !errors.Is(err, io.EOF) || c.in.interactive()) { // a reason may be left out, but by Ctrl-D a person leaves
				return nil, err
			}
			if text = strings.TrimSpace(text); text != "" {
				decision["message"] = text
			}
		}
		made = append(made, decision)
	}
	return map[string]any{"decisions": made}, nil
}

// oldDecisions answers interrupts of the form of langgraph.prebuilt.interrupt.HumanInterrupt.
func (c *chat) oldDecisions(requests []gjson.Result) (any, error) {
	made := []any{}
	for _, r := range requests {
		var allowed []string
		for _, kind := range []struct{ flag, word string }{{"allow_accept", "approve"}, {"allow_edit", "edit"}, {"allow_respond", "respond"}, {"allow_ignore", "reject"}} {
			if r.Get("config." + kind.flag).Bool() {
				allowed = append(allowed, kind.word)
			}
		}
		name, args := r.Get("action_request.action").String(), r.Get("action_request.args")
		if text := r.Get("description").String(); text != "" {
			c.println(c.clean(text))
		}
		choice, err := c.choose(name, args, allowed)
		if err != nil {
			return nil, err
		}
		decision := map[string]any{"type": map[string]string{"approve": "accept", "edit": "edit", "respond": "response", "reject": "ignore"}[choice], "args": nil}
		switch choice {
		case "edit":
			edited, err := c.edit(args)
			if err != nil {
				return nil, err
			}
			decision["args"] = map[string]any{"action": name, "args": edited}
		case "respond":
			text, err := c.in.line("answer> ")
			if err != nil {
				return nil, err
			}
			decision["args"] = text
		}
		made = append(made, decision)
	}
	return made, nil
}

// choose asks which decision to make; the first letter is enough.
func (c *chat) choose(name string, args gjson.Result, allowed []string) (string, error) {
	c.println(c.paint(yellow, "? ") + "may " + c.paint(bold, c.clean(name)) + " be called with " + c.clean(args.Raw))
	if len(allowed) == 0 {
		allowed = []string{"approve", "reject"}
	}
	words := make([]string, len(allowed))
	for i, w := range allowed {
		words[i] = "[" + shortest(w, allowed) + "]" + strings.TrimPrefix(w, shortest(w, allowed))
	}
	for {
		text, err := c.in.line(c.paint(yellow, strings.Join(words, ", ")+"> "))
		if err != nil {
			return "", err
		}
		text = strings.ToLower(strings.TrimSpace(text))
		if i := slices.IndexFunc(allowed, func(w string) bool { return text != "" && (text == w || text == shortest(w, allowed)) }); i >= 0 {
			return allowed[i], nil
		}
		c.println("write one of " + strings.Join(allowed, ", "))
	}
}

// shortest is the shortest beginning of a word that no other has.
func shortest(word string, all []string) string {
	for n := 1; n < len(word); n++ {
		if !slices.ContainsFunc(all, func(other string) bool { return other != word && strings.HasPrefix(other, word[:n]) }) {
			return word[:n]
		}
	}
	return word
}

// edit asks for other arguments.
func (c *chat) edit(args gjson.Result) (json.RawMessage, error) {
	for {
		text, err := c.in.line("arguments as JSON (empty: " + c.clean(args.Raw) + ")> ")
		if err != nil {
			return nil, err
		}
		if text = strings.TrimSpace(text); text == "" {
			return json.RawMessage(args.Raw), nil
		}
		if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
			return json.RawMessage(text), nil
		}
		c.println(fmt.Sprintf("%s is no JSON object; write one such as %s", c.clean(text), c.clean(args.Raw)))
	}
}
