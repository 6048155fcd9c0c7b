package agent

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// shownCall emits what becomes of a call of a tool, in the stream mode tools. nil: the run did not subscribe to it.
type shownCall struct{ call message.ToolCall }

// startShowing emits the start of a call.
func startShowing(ctx context.Context, call message.ToolCall) *shownCall {
	if !pregel.WantsTools(ctx) {
		return nil
	}
	s := &shownCall{call}
	e := s.event("tool-started")
	e.SetText("tool_name", call.Name)
	e.Set("input", orEmpty(call.Args))
	pregel.EmitTool(ctx, e.JSON())
	return s
}

func (s *shownCall) event(name string) *jsonobj.Object {
	e := &jsonobj.Object{}
	e.SetText("event", name)
	e.SetText("tool_call_id", s.call.ID)
	return e
}

// finished emits the result of a call. Its message gets the ID under which the state will have it.
func (s *shownCall) finished(ctx context.Context, result *ToolResult) {
	if s == nil {
		return
	}
	output := json.RawMessage("null")
	if m := result.Message; m != nil {
		if m.ID == "" {
			m.ID = uuid.NewString()
		}
		output = m.AppendJSON(nil)
	}
	for _, u := range result.Updates {
		if m, ok := u.(message.Message); ok && m.ToolCallID == s.call.ID {
			output = m.AppendJSON(nil)
		}
	}
	e := s.event("tool-finished")
	e.Set("output", output)
	pregel.EmitTool(ctx, e.JSON())
}

// failed emits the error of a call. One that waits at an interrupt has not failed: it starts again.
func (s *shownCall) failed(ctx context.Context, err error) {
	var waits *pregel.GraphInterrupt
	if s == nil || errors.As(err, &waits) {
		return
	}
	e := s.event("tool-error")
	e.SetText("message", err.Error())
	pregel.EmitTool(ctx, e.JSON())
}
