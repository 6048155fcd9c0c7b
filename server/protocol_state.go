package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"understudy/checkpointer"
	"understudy/compat"
	"understudy/id"
	"understudy/server/internal/web"
)

// executeState returns the result of a command about the state of a thread, which LangGraph Server does not know.
func (h *protocolHandlers) executeState(ctx context.Context, by caller, cmd *compat.Command) (json.RawMessage, error) {
	t, err := compat.PlainThreadID(by.thread)
	if err != nil {
		return nil, err
	}
	switch cmd.Method {
	case "state.get":
		return h.stateOf(ctx, t, cmd)
	case "state.listCheckpoints":
		return h.checkpointsOf(ctx, t, cmd)
	case "state.fork":
		req, err := cmd.StateFork()
		if err == nil {
			err = h.CompleteFor(by.requestID, by.headers, &req)
		}
		if err != nil {
			return nil, err
		}
		req.Key = by.key
		x, err := h.runs.Fork(ctx, t, req)
		if err != nil {
			return nil, err
		}
		by.made(x)
		return json.RawMessage(`{"run_id":"` + string(x.ID) + `","thread_id":"` + string(x.Thread) + `"}`), nil
	}
	req, err := cmd.InputInject()
	if err == nil {
		err = h.CompleteFor(by.requestID, by.headers, &req)
	}
	if err != nil {
		return nil, err
	}
	x, err := h.runs.Inject(ctx, t, req, func(a id.Assistant) error { return h.takesMessages(ctx, a) })
	if err != nil {
		return nil, err
	}
	by.made(x)
	return json.RawMessage(`{"run_id":"` + string(x.ID) + `"}`), nil
}

// takesMessages refuses assistants whose graphs have no messages in their input.
func (h *protocolHandlers) takesMessages(ctx context.Context, id id.Assistant) error {
	graph, others, err := speechless(ctx, h.assistants, id)
	if err == nil && others != nil {
		err = &compat.CommandError{
			Code: compat.NotSupported, Message: "The input of graph " + graph + " has no messages; it has: " + web.Bounded(strings.Join(others, ", "), web.MaxReason),
		}
	}
	return err
}

// stateOf returns the state of a namespace, as GET /threads/{thread_id}/state shows it.
func (h *protocolHandlers) stateOf(ctx context.Context, t id.Thread, cmd *compat.Command) (json.RawMessage, error) {
	ns, keys, err := cmd.StateGet()
	if err != nil {
		return nil, err
	}
	snap, err := h.threads.State(ctx, checkpointer.Key{Thread: t, NS: ns}, false)
	if err != nil {
		return nil, err
	}
	if ns != "" && snap.ID == "" {
		return nil, unknownNamespace(ns)
	}
	return compat.AppendStateResult(nil, snap, keys), nil
}

func unknownNamespace(ns string) error {
	return &compat.CommandError{Code: compat.NoSuchNamespace, Message: "Unknown namespace: " + web.Bounded(strings.ReplaceAll(ns, "|", ", "), web.MaxReason)}
}

// checkpointsOf lists the checkpoints of a namespace, the newest first.
func (h *protocolHandlers) checkpointsOf(ctx context.Context, t id.Thread, cmd *compat.Command) (json.RawMessage, error) {
	q, err := cmd.ListCheckpoints(t)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // the one before the last names the node that made it
	q.Memory = &web.AnswerMemory{Budget: &h.Reads}
	entries, err := h.threads.ReadHistory(ctx, q)
	if err != nil {
		return nil, err
	}
	defer entries.Close()
	out := []byte(`{"checkpoints":[`)
	var last *checkpointer.Snapshot
	for n := 0; n <= limit; n++ {
		snap, err := entries.Next(ctx)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if last != nil {
			if n > 1 {
				out = append(out, ',')
			}
			out = compat.AppendCheckpointSummary(out, last, snap)
		}
		if last = snap; snap == nil {
			if n == 0 && q.NS != "" && q.Before == "" {
				return nil, unknownNamespace(q.NS)
			}
			break
		}
	}
	return append(out, `]}`...), nil
}
