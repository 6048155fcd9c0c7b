package graph

import (
	"strings"
	"time"
)

// ModelCall is one finished call of a model within a run, as reported by its graph.
type ModelCall struct {
	ID      string // unique within the run
	Message string // id of the message that answered; "" when there is none
	Caller  Caller
	Model   string // "" when unknown
	Usage   *Usage // nil when the model did not report it
	// Took is how long the call took; 0: unknown.
	Took time.Duration
	// Number counts the calls of the run from 1, in the order in which they ended. Graphs leave it 0; who collects the calls sets it.
	Number int
}

// Usage is the number of tokens of a model call.
type Usage struct {
	Input, Output, Total int64
}

// Caller is the kind of code that called a model.
type Caller string

// Callers of models.
const (
	Lead       Caller = "lead"
	Subagent   Caller = "subagent"
	Middleware Caller = "middleware"
)

// CallerOf classifies a model call. node is the calling node, nested reports whether it runs in a subgraph, source is the lc_source in the
// metadata of the call. A tag `middleware:…` or `subagent:…` marks the call as well. Middleware of a subagent is middleware.
func CallerOf(node string, nested bool, source string, tags ...string) Caller {
	subagent := nested
	for _, tag := range tags {
		switch kind, _, _ := strings.Cut(tag, ":"); Caller(kind) {
		case Middleware:
			return Middleware
		case Subagent:
			subagent = true
		}
	}
	if source != "" || middlewareHook(node) {
		return Middleware
	}
	if subagent {
		return Subagent
	}
	return Lead
}

// middlewareHook reports whether an agent's node runs a hook of a middleware: `<middleware>.before_model` and the like.
func middlewareHook(node string) bool {
	at := strings.LastIndexByte(node, '.')
	if at < 0 {
		return false
	}
	switch node[at+1:] {
	case "before_agent", "before_model", "after_model", "after_agent":
		return true
	}
	return false
}
