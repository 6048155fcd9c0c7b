package protocol

import (
	"encoding/json"
	"strings"

	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// space is a namespace with its form on the wire.
type space struct {
	levels  []string
	json    []byte
	matches []bool // by filter
}

// maxSpaces bounds the namespaces whose form is kept.
const maxSpaces = 1024

func (p *Projection) space(ns string) *space {
	if sp := p.spaces[ns]; sp != nil {
		return sp
	}
	if len(p.spaces) >= maxSpaces {
		clear(p.spaces)
	}
	sp := p.newSpace(levelsOf(ns))
	p.spaces[ns] = sp
	return sp
}

func (p *Projection) newSpace(levels []string) *space {
	sp := &space{levels: levels, json: []byte{'['}, matches: make([]bool, len(p.filters))}
	for i, level := range levels {
		if i > 0 {
			sp.json = append(sp.json, ',')
		}
		sp.json = jsonobj.AppendText(sp.json, level)
	}
	sp.json = append(sp.json, ']')
	for i := range p.filters {
		sp.matches[i] = p.filters[i].namespace(levels)
	}
	return sp
}

// parentOf returns the namespace above one; "" is the root.
func parentOf(ns string) string {
	i := strings.LastIndexByte(ns, '|')
	if i < 0 {
		return ""
	}
	return ns[:i]
}

// graphOf returns the node that a namespace belongs to, and the id of its task.
func graphOf(ns string) (name, task string) {
	name, task, _ = strings.Cut(ns[strings.LastIndexByte(ns, '|')+1:], ":")
	return name, task
}

// levelsOf returns the levels of a namespace.
func levelsOf(ns string) []string {
	if ns == "" {
		return nil
	}
	return strings.Split(ns, "|")
}

// tasks sends a task as it is. The first one of a subgraph starts the namespace of that, and the result of the task that called it ends it.
func (p *Projection) tasks(st *runState, ns string, data []byte) {
	task, isResult := "", false
	var failure, waits, input, metadata json.RawMessage
	jsonscan.Each(data, func(key []byte, start, end int) bool {
		switch v := data[start:end]; string(key) {
		case `"id"`:
			task = text(v)
		case `"result"`:
			isResult = true
		case `"error"`:
			isResult, failure = true, v
		case `"interrupts"`:
			waits = v
		case `"input"`:
			input = v
		case `"metadata"`:
			metadata = v
		}
		return true
	})
	if !isResult {
		if call := callOf(input); call != "" {
			st.calls[task] = call
		}
		if ns != "" && st.closed[ns] == "" && !st.graphs.has(ns) {
			if agent := jsonscan.Text(metadata, "lc_agent_name"); agent != "" {
				st.agents[ns] = agent
			}
		}
	}
	p.openSpace(st, ns)
	if isResult && task != "" {
		p.finishMessages(st, st.messages.ofTask(task))
		state, why := "completed", ""
		switch {
		case len(failure) > 0 && string(failure) != "null":
			state, why = "failed", failureText(failure)
		case len(waits) > 2:
			state = "interrupted"
		}
		for _, at := range st.graphs.calledBy(ns, task) {
			p.closeSpaces(st, at, state, why)
		}
		delete(st.calls, task)
	}
	p.emit(st, ns, "tasks", "", func(b []byte) []byte { return append(b, data...) })
}

// callOf returns the id of the call of a tool that is the input of a task: of the first one, where they come in a list.
func callOf(input json.RawMessage) string {
	if call := jsonscan.Raw(input, "tool_call"); call != nil {
		return jsonscan.Text(call, "id")
	}
	if len(input) == 0 || input[0] != '[' {
		return ""
	}
	first := ""
	calls, _ := jsonscan.Elements(input)
	for _, call := range calls {
		if first = jsonscan.Text(call, "id"); first != "" {
			break
		}
	}
	return first
}

// graphName returns the name of the graph of a namespace: that of an agent, or of the node that called it.
func (st *runState) graphName(ns string) string {
	if agent := st.agents[ns]; agent != "" {
		return agent
	}
	name, _ := graphOf(ns)
	return name
}

// openSpace starts a namespace, and those above it, unless they have been started. What is left of one that has ended, its values at the end of an interrupt
// for example, does not start it again.
func (p *Projection) openSpace(st *runState, ns string) {
	if ns == "" || st.closed[ns] != "" || st.graphs.has(ns) {
		return
	}
	p.openSpace(st, parentOf(ns))
	st.graphs.add(ns)
	p.emit(st, ns, "lifecycle", "", func(b []byte) []byte {
		_, task := graphOf(ns)
		b = append(append(b, `{"event":"started","namespace":`...), p.space(ns).json...)
		b = jsonobj.AppendText(append(b, `,"graph_name":`...), st.graphName(ns))
		b = jsonobj.AppendText(append(b, `,"trigger_call_id":`...), task)
		if call := st.calls[task]; call != "" && st.agents[ns] != "" {
			b = append(jsonobj.AppendText(append(b, `,"cause":{"type":"toolCall","tool_call_id":`...), call), '}')
		}
		return append(b, '}')
	})
}

// closeSpaces ends a namespace and all within it, the deepest first; "" is all of them. The messages in it end before.
func (p *Projection) closeSpaces(st *runState, within, state, why string) {
	for _, ns := range st.graphs.close(within) {
		st.closed[ns] = state
		p.finishMessages(st, st.messages.inNS(ns))
		p.emit(st, ns, "lifecycle", "", func(b []byte) []byte {
			return appendLifecycle(b, state, st.graphName(ns), why)
		})
	}
}

func (p *Projection) rootLifecycle(st *runState, state, why string) {
	st.state = state
	p.emit(st, "", "lifecycle", "", func(b []byte) []byte { return appendLifecycle(b, state, st.row.Graph, why) })
}

// failureText is the text of the error of a task: a string, or {error, message}.
func failureText(raw json.RawMessage) string {
	if message := text(raw); message != "" {
		return message
	}
	return jsonscan.Text(raw, "message")
}

func appendLifecycle(b []byte, state, graph, why string) []byte {
	b = jsonobj.AppendText(append(b, `{"event":`...), state)
	b = jsonobj.AppendText(append(b, `,"graph_name":`...), graph)
	if why != "" {
		b = jsonobj.AppendText(append(b, `,"error":`...), why)
	}
	return append(b, '}')
}
