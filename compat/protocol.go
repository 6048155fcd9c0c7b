package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/run"
	"understudy/run/protocol"
)

var (
	errBody     = fault.New(fault.Invalid, "Invalid JSON body")
	errChannels = fault.New(fault.Invalid, "channels is required and must be a non-empty array")
)

// maxPrefixes bounds the namespaces of a filter: each namespace of a thread is compared with all of them.
const maxPrefixes = 1000

// maxChannels bounds the channels of a filter, which may have any names: each event is compared with all of them.
const maxChannels = 1000

// maxSeq bounds the seq at which a client resumes: no event has a greater one, and JavaScript counts no further.
const maxSeq = 1<<53 - 1

// EventFilter decodes the body of POST /threads/{thread_id}/stream/events. It is as lenient as LangGraph Server: what is malformed, except channels, counts
// as absent.
func EventFilter(body []byte) (protocol.Filter, error) {
	o, err := protocolBody(body)
	if err != nil {
		return protocol.Filter{}, err
	}
	f, bad, err := eventFilter(o)
	if err == nil && bad != nil {
		err = fault.Newf(fault.Invalid, "channels contains unsupported entries: %s. Allowed: %s, or any `custom:<name>`.",
			cut([]byte(strings.Join(bad, ", "))), strings.Join(protocol.Channels, ", "))
	}
	return f, err
}

// eventFilter reads a filter. bad are the entries of channels that name none. Its error is errChannels or about the namespaces.
func eventFilter(o object) (f protocol.Filter, bad []string, err error) {
	channels, ok := jsonscan.Elements(o["channels"])
	if !ok || len(channels) == 0 {
		return f, nil, errChannels
	}
	for _, c := range channels {
		name := text(c)
		if c[0] == '"' && protocol.IsChannel(name) {
			if !slices.Contains(f.Channels, name) {
				f.Channels = append(f.Channels, name)
			}
			if len(f.Channels) > maxChannels {
				return f, nil, fault.Newf(fault.Invalid, "channels has more than %d entries", maxChannels)
			}
			continue
		}
		if c[0] != '"' {
			name = cut(c)
		}
		bad = append(bad, name)
	}
	if bad != nil {
		return f, bad, nil
	}
	prefixes, _ := jsonscan.Elements(o["namespaces"])
	if len(prefixes) > maxPrefixes {
		return f, nil, fault.Newf(fault.Invalid, "namespaces has more than %d entries", maxPrefixes)
	}
	for _, prefix := range prefixes {
		if levels, ok := textList(prefix); ok {
			f.Namespaces = append(f.Namespaces, levels)
		}
	}
	if depth, ok := wholeNumber(o["depth"]); ok {
		levels := int(min(depth, MaxDepth*MaxDepth))
		f.Depth = &levels
	}
	if since, ok := wholeNumber(o["since"]); ok {
		f.Since, f.Resume = min(since, maxSeq), since > 0
	}
	return f, nil, nil
}

// protocolBody reads the body of a request of event streaming. One that is no object has no members.
func protocolBody(body []byte) (object, error) {
	body, err := Prepare(body)
	if err != nil {
		return nil, errBody
	}
	if len(body) == 0 || body[0] != '{' {
		return object{}, nil
	}
	return members(body), nil
}

// textList reads a list of strings.
func textList(raw json.RawMessage) ([]string, bool) {
	items, ok := jsonscan.Elements(raw)
	out := make([]string, len(items))
	for i, item := range items {
		if item[0] != '"' {
			return nil, false
		}
		out[i] = text(item)
	}
	return out, ok
}

// wholeNumber reads an integer that is not negative; one that is too large is the largest.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, (err == nil || errors.Is(err, strconv.ErrRange)) && n >= 0
}

// Command is a command of event streaming.
type Command struct {
	ID     json.RawMessage // as it came; nil: absent
	Method string
	params object
}

// CommandError is the answer to a command that is refused. Its text is one that clients may see.
type CommandError struct {
	Code, Message string
	Gap           *protocol.Gap // of a subscription that cannot resume
}

func (e *CommandError) Error() string { return e.Message }

// Codes of CommandError.
const (
	InvalidArgument    = "invalid_argument"
	UnknownCommand     = "unknown_command"
	UnknownError       = "unknown_error"
	NoSuchRun          = "no_such_run"
	NoSuchInterrupt    = "no_such_interrupt"
	NoSuchSubscription = "no_such_subscription"
	NoSuchNamespace    = "no_such_namespace"
	NoSuchCheckpoint   = "no_such_checkpoint"
	NotSupported       = "not_supported"
)

func invalidArgument(format string, args ...any) error {
	return &CommandError{Code: InvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// DecodeCommand decodes the body of POST /threads/{thread_id}/commands. With a *CommandError the command has its ID.
func DecodeCommand(body []byte) (Command, error) {
	o, err := protocolBody(body)
	if err != nil {
		return Command{}, err
	}
	c := Command{ID: o["id"], Method: o.text("method")}
	if _, err := strconv.ParseInt(string(c.ID), 10, 64); err != nil || o.raw("method") == nil || o["method"][0] != '"' {
		return c, invalidArgument("Protocol commands must include an integer id and string method.")
	}
	c.params = object{}
	if raw := o.raw("params"); raw != nil && raw[0] == '{' {
		c.params = members(raw)
	}
	return c, nil
}

// Subscription returns the parameter of a command about a subscription; "": it has none.
func (c *Command) Subscription() string {
	if raw := c.params.raw("subscription_id"); raw == nil || raw[0] != '"' {
		return ""
	}
	return c.params.text("subscription_id")
}

// Unsubscribe returns the subscription that a command ends.
func (c *Command) Unsubscribe() (string, error) {
	name := c.Subscription()
	if name == "" {
		return "", invalidArgument("%s requires a subscription_id.", c.Method)
	}
	return name, nil
}

// UnknownSubscription is the answer to a command about a subscription that there is not.
func UnknownSubscription(name string) *CommandError {
	return &CommandError{Code: NoSuchSubscription, Message: "Unknown subscription: " + name}
}

// Filter reads the parameters of subscription.subscribe and subscription.reconnect. Since is that of the latter, which must name one.
func (c *Command) Filter() (protocol.Filter, error) {
	f, bad, err := eventFilter(c.params)
	switch {
	case errors.Is(err, errChannels):
		return f, invalidArgument("%s requires a non-empty channels array.", c.Method)
	case err != nil:
		return f, invalidArgument("%s: %s.", c.Method, err)
	case bad != nil:
		return f, invalidArgument("%s received an unsupported channel.", c.Method)
	case c.Method == "subscription.subscribe":
		f.Since, f.Resume = 0, false
		return f, nil
	}
	if _, ok := wholeNumber(c.params["since"]); !ok {
		return f, invalidArgument("%s requires a non-negative integer since.", c.Method)
	}
	return f, nil
}

// eventModes are the stream modes of runs made by commands: all that events are made of.
var eventModes = []string{"values", "updates", "messages-tuple", "tools", "custom", "tasks", graph.ModeIDs, graph.ModeChannels}

// RunStart reads the parameters of run.start.
func (c *Command) RunStart() (run.Request, error) {
	p := c.params
	if a := p.raw("assistant_id"); a == nil || a[0] != '"' || p.text("assistant_id") == "" {
		return run.Request{}, invalidArgument("run.start requires an assistant_id.")
	}
	b := &jsonobj.Object{}
	b.Set("assistant_id", p["assistant_id"])
	if input := p.raw("input"); input != nil {
		b.Set("input", input)
	}
	if s := p.text("multitaskStrategy"); slices.Contains([]run.Strategy{run.Enqueue, run.Reject, run.Interrupt, run.Rollback}, run.Strategy(s)) {
		b.SetText("multitask_strategy", s)
	}
	if t := p.raw("langsmith_tracer"); t != nil {
		if t[0] != '{' {
			return run.Request{}, invalidArgument("langsmith_tracer must be an object.")
		}
		var unknown []string
		for key := range members(t) {
			if key != "project_name" && key != "example_id" {
				unknown = append(unknown, "'"+cut([]byte(key))+"'")
			}
		}
		if slices.Sort(unknown); unknown != nil {
			return run.Request{}, invalidArgument("langsmith_tracer has unsupported fields: [%s].", strings.Join(unknown, ", "))
		}
		b.Set("langsmith_tracer", t)
	}
	return c.request(b)
}

// RunResponse reads the parameters of input.respond: the request of a run without an assistant, and the responses by interrupt.
func (c *Command) RunResponse() (run.Request, []run.Response, error) {
	p := c.params
	given := []object{p}
	if list := p.raw("responses"); list != nil {
		items, ok := jsonscan.Elements(list)
		if !ok {
			return run.Request{}, nil, invalidArgument("input.respond requires responses to be a list.")
		}
		if len(items) == 0 {
			return run.Request{}, nil, invalidArgument("input.respond requires at least one response.")
		}
		given = given[:0]
		for _, item := range items {
			if item[0] != '{' {
				return run.Request{}, nil, invalidArgument("input.respond requires responses to be objects.")
			}
			given = append(given, members(item))
		}
	}
	var responses []run.Response
	for _, o := range given {
		if i := o.raw("interrupt_id"); i == nil || i[0] != '"' || len(i) == 2 {
			return run.Request{}, nil, invalidArgument("input.respond requires an interrupt_id.")
		}
		var namespace []string
		if ns := o.raw("namespace"); ns != nil {
			var ok bool
			if namespace, ok = textList(ns); !ok {
				return run.Request{}, nil, invalidArgument("input.respond requires namespace to be a list of strings.")
			}
		}
		value := o["response"]
		if value == nil {
			value = json.RawMessage("null")
		}
		responses = append(responses, run.Response{Interrupt: o.text("interrupt_id"), Value: value, Namespace: namespace})
	}
	b, command := &jsonobj.Object{}, &jsonobj.Object{}
	for _, key := range []string{"update", "goto"} {
		if v := p.raw(key); v != nil {
			command.Set(key, v)
		}
	}
	if command.Len() > 0 {
		b.Set("command", command.JSON())
	}
	req, err := c.requestOfThread(b)
	return req, responses, err
}

// request completes the body of a v1 request for a run with what both commands have, and decodes it.
func (c *Command) request(b *jsonobj.Object) (run.Request, error) {
	at := id.Checkpoint("")
	if config := c.params.raw("config"); config != nil {
		if config[0] != '{' {
			return run.Request{}, invalidArgument("%s requires config to be an object.", c.Method)
		}
		if configurable := members(config).raw("configurable"); configurable != nil {
			if named := members(configurable).raw("checkpoint_id"); named != nil {
				at = id.Checkpoint(id.Canonical(text(named)))
				if at == "" {
					return run.Request{}, invalidArgument("Invalid config.configurable.checkpoint_id: '%s'.", cut([]byte(text(named))))
				}
				config = with(config, "configurable", without(configurable, func(key string) bool { return key == "checkpoint_id" }))
			}
		}
		b.Set("config", config)
	}
	if metadata := c.params.raw("metadata"); metadata != nil {
		if metadata[0] != '{' {
			return run.Request{}, invalidArgument("%s requires metadata to be an object.", c.Method)
		}
		b.Set("metadata", metadata)
	}
	b.SetText("if_not_exists", "create")
	b.Set("stream_subgraphs", json.RawMessage("true"))
	b.Set("stream_resumable", json.RawMessage("true"))
	req, err := NewRun(b.JSON(), RunForm{})
	if err != nil {
		return req, err
	}
	req.CheckpointID, req.Modes, req.EventStreaming = at, slices.Clone(eventModes), true
	return req, nil
}

// AppendCommandSuccess appends the answer to a command. seen is the seq of the last event that its connection had sent before; 0 over HTTP: a client that read on
// from a later one would miss those of its run.
func AppendCommandSuccess(dst []byte, c *Command, result json.RawMessage, seen int64) []byte {
	dst = append(append(dst, `{"type":"success","id":`...), c.ID...)
	dst = append(append(dst, `,"result":`...), result...)
	return append(appendSeen(dst, seen), '}')
}

// AppendCommandError appends the answer to a command that was refused.
func AppendCommandError(dst []byte, c *Command, e *CommandError) []byte {
	return append(appendRefused(dst, c, e), '}')
}

// AppendCommandErrorSeen is AppendCommandError on a connection that has sent events up to the seq seen.
func AppendCommandErrorSeen(dst []byte, c *Command, e *CommandError, seen int64) []byte {
	return append(appendSeen(appendRefused(dst, c, e), seen), '}')
}

func appendSeen(dst []byte, seen int64) []byte {
	return append(strconv.AppendInt(append(dst, `,"meta":{"applied_through_seq":`...), seen, 10), '}')
}

func appendRefused(dst []byte, c *Command, e *CommandError) []byte {
	ident := c.ID
	if ident == nil {
		ident = json.RawMessage("null")
	}
	dst = append(append(dst, `{"type":"error","id":`...), ident...)
	dst = jsonobj.AppendText(append(dst, `,"error":`...), e.Code)
	dst = jsonobj.AppendText(append(dst, `,"message":`...), e.Message)
	if e.Gap != nil {
		dst = e.Gap.AppendMembers(dst)
	}
	return dst
}
