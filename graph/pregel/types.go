package pregel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Reserved names.
const (
	// START is the virtual node that takes the input.
	START = "__start__"
	// END is where a path through the graph ends.
	END = "__end__"
	// Parent, as Command.Graph, is the closest graph above.
	Parent = "__parent__"
)

// Values is an update or a state by the names of channels.
type Values = map[string]any

// Command is the result of a node that updates the state and chooses the next nodes at once.
type Command struct {
	// Graph is "" for this graph, or Parent.
	Graph string
	// Update is any update that a node can return: Values, a struct, raw JSON of an object, or []Write to set the order.
	Update any
	// Goto is a node's name, a Send, or a list ([]string, []Send, []any) of these.
	Goto any
	// Resume answers interrupts. Only Commands that start a run have it.
	Resume any
}

// Write is one write to a channel.
type Write struct {
	Channel string
	Value   any
}

// Send runs a node in the next step with an input of its own, concurrently with the other nodes of that step.
type Send struct {
	Node string
	Arg  any
	// Timeout bounds this task in place of the node's own; 0: the node's.
	Timeout time.Duration
}

// Overwrite replaces the value of a channel, bypassing its reducer.
type Overwrite struct{ Value any }

// overwriteKey marks an Overwrite that came as JSON.
const overwriteKey = "__overwrite__"

// Error is an error with a name, shown to clients and in checkpoints like the class of a Python exception.
type Error struct {
	Name string
	Text string
	// Cause is not shown to clients.
	Cause error
}

// Errorf makes an Error. A %w operand becomes its cause.
func Errorf(name, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Name: name, Text: err.Error(), Cause: errors.Unwrap(err)}
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ErrorName is the name under which the error shows.
func (e *Error) ErrorName() string { return e.Name }

// Names of errors that the engine itself raises.
const (
	nameInvalidUpdate = "InvalidUpdateError"
	nameRecursion     = "GraphRecursionError"
	nameEmptyInput    = "EmptyInputError"
	nameTimeout       = "NodeTimeoutError"
)

// ErrInterrupted is the error of Interrupt when the run has to stop and ask; test for it with errors.Is. A node returns it
// unchanged.
var ErrInterrupted = errors.New("the run waits for an answer")

// GraphInterrupt is the error behind ErrInterrupted.
type GraphInterrupt struct{ interrupts []interrupt }

func (e *GraphInterrupt) Error() string { return ErrInterrupted.Error() }

// Is makes errors.Is(err, ErrInterrupted) true.
func (e *GraphInterrupt) Is(target error) bool { return target == ErrInterrupted }

// interrupt is one question.
type interrupt struct {
	value  *value
	id     string
	schema *value // nil: none
}

// parentCommand carries a Command to the graph it addresses. It is an error, so that it ends the nodes on its way.
type parentCommand struct {
	cmd *Command
	ns  string // namespace of the target graph, or Parent until it is resolved
}

func (e *parentCommand) Error() string {
	var parts []string
	switch update := e.cmd.Update.(type) {
	case nil:
	case []Write:
		fields := make([]field, len(update))
		for i, w := range update {
			fields[i] = field{w.Channel, fromGo(w.Value)}
		}
		parts = append(parts, "update="+pyText(fromFields(fields).JSON()))
	default:
		parts = append(parts, "update="+pyText(fromGo(update).JSON()))
	}
	if e.cmd.Goto != nil {
		parts = append(parts, "goto="+pyText(fromGo(e.cmd.Goto).JSON()))
	}
	return "Command(" + strings.Join(parts, ", ") + ")"
}

// ErrorName returns the name of the exception for a Command to a parent that does not exist.
func (e *parentCommand) ErrorName() string { return "ParentCommand" }

// pyText formats JSON roughly as Python would, for error texts.
func pyText(raw []byte) string {
	return strings.NewReplacer(`"`, "'", ",", ", ", ":", ": ", "true", "True", "false", "False", "null", "None").Replace(string(raw))
}

// bubbles reports whether an error is not a failure of a node, but is passed up to the graph that handles it.
func bubbles(err error) bool {
	var gi *GraphInterrupt
	var pc *parentCommand
	return errors.As(err, &gi) || errors.As(err, &pc)
}

// RetryPolicy sets when a failed node runs again. The zero value of a field means LangGraph's default.
type RetryPolicy struct {
	InitialInterval time.Duration // before the first retry; default 500 ms
	BackoffFactor   float64       // default 2
	MaxInterval     time.Duration // default 128 s
	MaxAttempts     int           // the first one included; default 3
	NoJitter        bool          // do not add up to one random second to intervals
	// RetryOn reports whether to retry after the error. nil retries transient errors, but not those named ValueError,
	// TypeError, RuntimeError and so on; a plain error is a RuntimeError.
	RetryOn func(error) bool
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.InitialInterval == 0 {
		p.InitialInterval = 500 * time.Millisecond
	}
	if p.BackoffFactor == 0 {
		p.BackoffFactor = 2
	}
	if p.MaxInterval == 0 {
		p.MaxInterval = 128 * time.Second
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 3
	}
	if p.RetryOn == nil {
		p.RetryOn = retryByDefault
	}
	return p
}

// final lists the names of errors that a retry does not fix.
var final = map[string]bool{
	"ValueError": true, "TypeError": true, "ArithmeticError": true, "ZeroDivisionError": true, "OverflowError": true, "ImportError": true,
	"LookupError": true, "KeyError": true, "IndexError": true, "NameError": true, "AttributeError": false, "SyntaxError": true,
	"RuntimeError": true, "NotImplementedError": true, "RecursionError": true, "ReferenceError": true, "OSError": true,
	"FileNotFoundError": true, "PermissionError": true, nameRecursion: true,
}

func retryByDefault(err error) bool {
	name := errorName(err)
	return !final[name]
}

// CachePolicy caches the writes of a node for the next task with the same input. Compile needs WithCache.
type CachePolicy struct {
	// Key returns the key of an input; nil: the input's JSON.
	Key func(input []byte) string
	// TTL is how long an entry is valid; 0: until the cache evicts it.
	TTL time.Duration
}
