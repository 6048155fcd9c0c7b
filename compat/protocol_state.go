package compat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/run"
	"understudy/thread"
)

const (
	// defaultCheckpoints and maxCheckpoints are how many checkpoints state.listCheckpoints lists, by default and at most.
	defaultCheckpoints = 10
	maxCheckpoints     = 1000
)

// namespace reads the parameter of that name: the levels of a checkpoint namespace. Absent is the root, unless it is required.
func (c *Command) namespace(required bool) (string, error) {
	raw := c.params.raw("namespace")
	if raw == nil && !required {
		return "", nil
	}
	levels, ok := textList(raw)
	if !ok {
		return "", invalidArgument("%s requires namespace to be a list of strings.", c.Method)
	}
	return strings.Join(levels, "|"), nil
}

// StateGet reads the parameters of state.get: a namespace, and the keys of its state that are wanted; nil: all.
func (c *Command) StateGet() (ns string, keys []string, err error) {
	if ns, err = c.namespace(true); err != nil {
		return "", nil, err
	}
	if raw := c.params.raw("keys"); raw != nil {
		ok := false
		if keys, ok = textList(raw); !ok {
			return "", nil, invalidArgument("%s requires keys to be a list of strings.", c.Method)
		}
	}
	return ns, keys, nil
}

// ListCheckpoints reads the parameters of state.listCheckpoints.
func (c *Command) ListCheckpoints(t id.Thread) (thread.HistoryQuery, error) {
	ns, err := c.namespace(false)
	if err != nil {
		return thread.HistoryQuery{}, err
	}
	q := thread.HistoryQuery{Thread: t, NS: ns, Limit: defaultCheckpoints}
	if raw := c.params.raw("limit"); raw != nil {
		n, ok := wholeNumber(raw)
		if !ok || n < 1 || n > maxCheckpoints {
			return q, invalidArgument("%s requires limit to be an integer from 1 to %d.", c.Method, maxCheckpoints)
		}
		q.Limit = int(n)
	}
	if raw := c.params.raw("before"); raw != nil {
		if q.Before = id.Checkpoint(id.Canonical(text(raw))); q.Before == "" {
			return q, invalidArgument("%s requires before to be the id of a checkpoint.", c.Method)
		}
	}
	return q, nil
}

// StateFork reads the parameters of state.fork: the request of a run without an assistant, from a checkpoint.
func (c *Command) StateFork() (run.Request, error) {
	at := id.Checkpoint(id.Canonical(c.params.text("checkpoint_id")))
	if at == "" {
		return run.Request{}, invalidArgument("%s requires a checkpoint_id.", c.Method)
	}
	b := &jsonobj.Object{}
	if input := c.params.raw("input"); input != nil {
		b.Set("input", input)
	}
	req, err := c.requestOfThread(b)
	req.CheckpointID = at
	return req, err
}

// InputInject reads the parameters of input.inject: the request of a run without an assistant, whose input is the message.
func (c *Command) InputInject() (run.Request, error) {
	ns, err := c.namespace(true)
	if err != nil {
		return run.Request{}, err
	}
	if ns != "" {
		return run.Request{}, &CommandError{Code: NotSupported, Message: "Messages are injected into the root only: namespace must be []."}
	}
	raw := c.params.raw("message")
	if raw == nil || raw[0] != '{' {
		return run.Request{}, invalidArgument("%s requires message to be an object.", c.Method)
	}
	m := members(raw)
	if role := m.text("role"); role != "user" && role != "system" {
		return run.Request{}, invalidArgument("%s requires the role of message to be user or system.", c.Method)
	}
	if content := m.raw("content"); content == nil || content[0] != '"' && content[0] != '[' {
		return run.Request{}, invalidArgument("%s requires the content of message to be a string.", c.Method)
	}
	if name := m.raw("name"); name != nil && name[0] != '"' {
		return run.Request{}, invalidArgument("%s requires the name of message to be a string.", c.Method)
	}
	b := &jsonobj.Object{}
	b.Set("input", slices.Concat(json.RawMessage(`{"messages":[`), raw, json.RawMessage(`]}`)))
	return c.requestOfThread(b)
}

// requestOfThread is request for a run of the assistant of its thread.
func (c *Command) requestOfThread(b *jsonobj.Object) (run.Request, error) {
	b.SetText("assistant_id", "")
	req, err := c.request(b)
	req.AssistantID = ""
	return req, err
}

// AppendStateResult appends the result of state.get: {"values", "checkpoint"?: {"id", "ns"?}}. keys nil: all values.
func AppendStateResult(dst []byte, s *checkpointer.Snapshot, keys []string) []byte {
	dst = append(dst, `{"values":`...)
	switch {
	case len(s.Values) == 0:
		dst = append(dst, "{}"...)
	case keys == nil || s.Values[0] != '{':
		dst = append(dst, s.Values...)
	default:
		dst = append(dst, '{')
		first := true
		jsonscan.Each(s.Values, func(key []byte, start, end int) bool {
			if !slices.Contains(keys, text(key)) {
				return true
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(append(append(dst, key...), ':'), s.Values[start:end]...)
			return true
		})
		dst = append(dst, '}')
	}
	if s.ID != "" {
		dst = jsonobj.AppendText(append(dst, `,"checkpoint":{"id":`...), string(s.ID))
		if s.NS != "" {
			dst = jsonobj.AppendText(append(dst, `,"ns":`...), s.NS)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// AppendCheckpointSummary appends an entry of the result of state.listCheckpoints: {"id", "timestamp", "step", "node_name"?, "metadata"?}. The node is named if one
// alone ran since the parent; before is the next older entry, nil when there is none.
func AppendCheckpointSummary(dst []byte, s, before *checkpointer.Snapshot) []byte {
	dst = jsonobj.AppendText(append(dst, `{"id":`...), string(s.ID))
	dst = jsonobj.AppendText(append(dst, `,"timestamp":`...), s.CreatedAt)
	step, _ := strconv.ParseInt(string(jsonscan.Raw(s.Metadata, "step")), 10, 64)
	dst = strconv.AppendInt(append(dst, `,"step":`...), step, 10)
	if before != nil && before.ID == s.Parent && len(before.Next) == 1 && jsonscan.Text(s.Metadata, "source") == "loop" {
		dst = jsonobj.AppendText(append(dst, `,"node_name":`...), before.Next[0])
	}
	if len(s.Metadata) > 0 {
		dst = append(append(dst, `,"metadata":`...), s.Metadata...)
	}
	return append(dst, '}')
}
