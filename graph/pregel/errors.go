package pregel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"understudy/graph"
	"understudy/internal/names"
)

// panicked is a panic of a node.
type panicked struct {
	value any
	stack []byte
	node  string // "": the engine
}

func (e *panicked) Error() string { return fmt.Sprint(e.value) }

// located is the error of a node on its way up. Its text is the error's: clients and checkpoints show that alone, as LangGraph does.
type located struct {
	node string // path of the node: see NodeError
	err  error
}

func (e *located) Error() string { return e.err.Error() }
func (e *located) Unwrap() error { return e.err }

// inNode adds the node to the error of a task, unless a node within it has failed.
func inNode(t *task, err error) error {
	var inner *located
	if err == nil || bubbles(err) || errors.As(err, &inner) {
		return err
	}
	return &located{t.place(), err}
}

// place returns the path of the task's node.
func (t *task) place() string { return strings.ReplaceAll(withoutTaskIDs(t.ns), "|", "/") }

// mostNamed is how many nodes an error or a log line names.
const mostNamed = 5

// someOf lists the names of nodes, each once.
func someOf(nodes []string) string {
	slices.Sort(nodes)
	return names.Some(slices.Compact(nodes), mostNamed)
}

// errorName returns the name of an error for clients: that of its ErrorName method, TimeoutError for deadlines, else
// RuntimeError.
func errorName(err error) string {
	var named interface{ ErrorName() string }
	if errors.As(err, &named) {
		return named.ErrorName()
	}
	var p *panicked
	switch {
	case errors.As(err, &p):
		return "PanicError"
	case errors.Is(err, context.DeadlineExceeded):
		return "TimeoutError"
	case errors.Is(err, context.Canceled):
		return "CancelledError"
	}
	return "RuntimeError"
}

// shown lists the names of errors whose text clients may see, as in LangGraph Server.
var shown = map[string]bool{
	"ValueError": true, "TypeError": true, "KeyError": true, "AttributeError": true, "RuntimeError": true, "RecursionError": true,
	"NotImplementedError": true, "TimeoutError": true, "UnicodeDecodeError": true, "UnicodeEncodeError": true,
	nameInvalidUpdate: true, nameRecursion: true, nameEmptyInput: true, nameTimeout: true,
	"GraphInterrupt": true, "NodeInterrupt": true, "ParentCommand": true, "TaskNotFound": true, "GraphBubbleUp": true, "HTTPException": true,
	"NodeCancelledError": true, "UnknownInterruptError": true, "GraphDrained": true, "EmptyChannelError": true,
}

// errorText returns the text of an error for clients. The text of a KeyError is its repr, as with Python's str.
func errorText(err error) string {
	name := errorName(err)
	if !shown[name] {
		return graph.Masked
	}
	if name == "KeyError" {
		return pyRepr(err.Error())
	}
	return err.Error()
}

// failure returns the error of a run in the form that graph.Graph promises.
func failure(err error) error {
	var known *graph.Failure
	if errors.As(err, &known) {
		return err
	}
	var stored *storageError
	if errors.As(err, &stored) {
		return graph.ServerFailure(err)
	}
	return &graph.Failure{Type: errorName(err), Message: errorText(err), Detail: errorDetail(err), Fix: fixOf(err)}
}

// mistakes are errors of the engine that LangGraph words for graphs in Python, by how they begin, with what to do in Go.
var mistakes = []struct{ text, fix string }{
	{"Expected dict, got", "an update is Values, a struct of keys, raw JSON of an object, []Write, a *Command, []any of these, or nil"},
	{"Recursion limit of", "end the loop of the graph, or raise recursion_limit: WithRecursionLimit, or in the configuration of the run or assistant"},
	{"Received no input for", "send an input with at least one key of the state"},
	{"Cannot use Command(resume=...) without checkpointer", "pass WithThread with the thread and the saver of the run that asked"},
}

// onlyOne is in the errors of keys that take one update in a step, and annotated ends them with what to do in Python.
const (
	onlyOne   = "Can receive only one value per step."
	annotated = " Use an Annotated key to handle multiple values."
)

// trouble begins the line of LangGraph's errors with the address of a page about Python.
const trouble = "\nFor troubleshooting, visit: "

// fixOf returns what a developer in Go does about an error; "" when that is unknown.
func fixOf(err error) string {
	var choice *undeclared
	if errors.As(err, &choice) {
		return choice.fix()
	}
	var merge *unmerged
	if errors.As(err, &merge) {
		return merge.fix()
	}
	var read *misread
	if errors.As(err, &read) {
		return read.fix()
	}
	var known *Error
	if !errors.As(err, &known) || known.Cause != nil {
		return ""
	}
	for _, m := range mistakes {
		if !strings.HasPrefix(known.Text, m.text) {
			continue
		}
		var in *ofInput
		if errors.As(err, &in) {
			return "this is the input of graph " + in.graph + ": " + m.fix
		}
		return m.fix
	}
	return ""
}

// ofInput is the error of an input that is no update. Its text is for clients: see fixOf.
type ofInput struct {
	graph string
	err   error
}

func (e *ofInput) Error() string { return e.err.Error() }
func (e *ofInput) Unwrap() error { return e.err }

// advised is an error as Invoke returns it, with what to do in place of a page about Python. It keeps its name for clients.
type advised struct {
	fix string
	err error
}

func (e *advised) Error() string {
	text, _, _ := strings.Cut(e.err.Error(), trouble)
	text = strings.TrimSuffix(text, annotated)
	return strings.TrimSuffix(text, ".") + "; " + e.fix
}

func (e *advised) Unwrap() error { return e.err }

// errorDetail returns the name and the whole text of an error, and the stack of a panic in the lines after it.
func errorDetail(err error) string {
	text := errorName(err) + ": " + err.Error()
	var at *located
	if errors.As(err, &at) {
		first, rest, more := strings.Cut(text, "\n")
		text = first + " (node " + at.node + ")"
		if more {
			text += "\n" + rest
		}
	}
	var p *panicked
	if errors.As(err, &p) {
		text = "PanicError: " + p.line() + "\n" + string(p.stack)
	}
	return text
}

// line returns the value of the panic and the node in one line.
func (e *panicked) line() string {
	text := strings.Join(strings.Fields(e.Error()), " ")
	if e.node != "" {
		text += " (node " + e.node + ")"
	}
	return text
}

// errorRepr returns the form of an error in checkpoints: Python's repr of an exception.
func errorRepr(err error) string {
	if err.Error() == "" {
		return errorName(err) + "()"
	}
	return errorName(err) + "(" + pyRepr(err.Error()) + ")"
}

// pyRepr is Python's repr of text.
func pyRepr(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b := []byte{quote}
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r < 0x20 || r == 0x7f:
			b = fmt.Appendf(b, `\x%02x`, r)
		default:
			b = append(b, string(r)...)
		}
	}
	return string(append(b, quote))
}
