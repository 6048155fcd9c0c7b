package remote

import (
	"encoding/json"

	"understudy/graph"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// The v1 API has no events of tools: they are made of the tasks that call them. LangGraph's node for tools gets its calls as the input of a task, and returns
// their messages.

// toolCall is a call of a tool that has begun.
type toolCall struct{ id, name string }

// toolsBegun returns the events of calls that begin with a task, and notes them.
func (r *run) toolsBegun(ns, task string, input json.RawMessage) (events []graph.Event) {
	if one := jsonscan.Raw(input, "tool_call"); jsonscan.Text(input, "__type") == "tool_call_with_context" {
		input = append(append(json.RawMessage{'['}, one...), ']')
	}
	calls, _ := jsonscan.Elements(input)
	for _, call := range calls {
		c := toolCall{jsonscan.Text(call, "id"), jsonscan.Text(call, "name")}
		if jsonscan.Text(call, "type") != "tool_call" || c.id == "" {
			return nil
		}
		if r.tools == nil {
			r.tools = map[string][]toolCall{}
		}
		r.tools[task] = append(r.tools[task], c)
		o := toolEvent("tool-started", c.id)
		o.SetText("tool_name", c.name)
		o.Set("input", jsonscan.Raw(call, "args"))
		events = append(events, graph.Event{Name: "tools", NS: ns, Data: o.JSON()})
	}
	return events
}

// toolsEnded returns the events of calls that end with a task.
func (r *run) toolsEnded(ns, task string, result, failure json.RawMessage) (events []graph.Event) {
	calls := r.tools[task]
	delete(r.tools, task)
	results, _ := jsonscan.Elements(jsonscan.Raw(result, "messages"))
	for _, c := range calls {
		o := (*jsonobj.Object)(nil)
		for _, message := range results {
			if jsonscan.Text(message, "tool_call_id") == c.id {
				o = toolEvent("tool-finished", c.id)
				o.Set("output", message)
			}
		}
		switch {
		case o != nil:
		case len(failure) > 0 && failure[0] == '"':
			o = toolEvent("tool-error", c.id)
			o.Set("message", failure)
		case len(failure) > 0 && failure[0] == '{':
			o = toolEvent("tool-error", c.id)
			o.SetText("message", jsonscan.Text(failure, "message"))
		case len(result) > 0 && result[0] == '{': // a Command, for example, without a message of the call
			o = toolEvent("tool-finished", c.id)
			o.Set("output", result)
		default:
			continue
		}
		events = append(events, graph.Event{Name: "tools", NS: ns, Data: o.JSON()})
	}
	return events
}

func toolEvent(event, call string) *jsonobj.Object {
	o := &jsonobj.Object{}
	o.SetText("event", event)
	o.SetText("tool_call_id", call)
	return o
}

// holdTask is hold for an event of a task, with the events of the tools that it calls.
func (r *run) holdTask(e graph.Event) error {
	task, input, result, failure := "", json.RawMessage(nil), json.RawMessage(nil), json.RawMessage(nil)
	jsonscan.Each(e.Data, func(key []byte, start, end int) bool {
		v := e.Data[start:end]
		switch string(key) {
		case `"id"`:
			task = string(v)
		case `"input"`:
			input = v
		case `"result"`:
			result = v
		case `"error"`:
			failure = v
		}
		return true
	})
	for _, tool := range r.toolsEnded(e.NS, task, result, failure) {
		if err := r.hold(tool); err != nil {
			return err
		}
	}
	if err := r.hold(e); err != nil {
		return err
	}
	for _, tool := range r.toolsBegun(e.NS, task, input) {
		if err := r.hold(tool); err != nil {
			return err
		}
	}
	return nil
}
