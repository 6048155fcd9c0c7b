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
	"understudy/server/a2a"
)

// executeState returns the result of a command about the state of a thread, which LangGraph Server does not know.
func (s *Server) executeState(ctx context.Context, by caller, cmd *compat.Command) (json.RawMessage, error) {
	t, err := compat.PlainThreadID(by.thread)
	if err != nil {
		return nil, err
	}
	switch cmd.Method {
	case "state.get":
		return s.stateOf(ctx, t, cmd)
	case "state.listCheckpoints":
		return s.checkpointsOf(ctx, t, cmd)
	case "state.fork":
		req, err := cmd.StateFork()
		if err == nil {
			err = s.completeFor(by.requestID, by.headers, &req)
		}
		if err != nil {
			return nil, err
		}
		x, err := s.opts.Runs.Fork(ctx, t, req)
		if err != nil {
			return nil, err
		}
		by.made(x)
		return json.RawMessage(`{"run_id":"` + string(x.ID) + `","thread_id":"` + string(x.Thread) + `"}`), nil
	}
	req, err := cmd.InputInject()
	if err == nil {
		err = s.completeFor(by.requestID, by.headers, &req)
	}
	if err != nil {
		return nil, err
	}
	x, err := s.opts.Runs.Inject(ctx, t, req, func(a id.Assistant) error { return s.takesMessages(ctx, a) })
	if err != nil {
		return nil, err
	}
	by.made(x)
	return json.RawMessage(`{"run_id":"` + string(x.ID) + `"}`), nil
}

// takesMessages refuses assistants whose graphs have no messages in their input.
func (s *Server) takesMessages(ctx context.Context, id id.Assistant) error {
	a, err := s.opts.Assistants.Get(ctx, id)
	if err != nil {
		return err
	}
	schemas, err := s.schemas(ctx, a)
	if err != nil {
		return err
	}
	if ok, names := a2a.Speaks(schemas); !ok {
		return &compat.CommandError{
			Code: compat.NotSupported, Message: "The input of graph " + a.GraphID + " has no messages; it has: " + bounded(strings.Join(names, ", "), maxReason),
		}
	}
	return nil
}

// stateOf returns the state of a namespace, as GET /threads/{thread_id}/state shows it.
func (s *Server) stateOf(ctx context.Context, t id.Thread, cmd *compat.Command) (json.RawMessage, error) {
	ns, keys, err := cmd.StateGet()
	if err != nil {
		return nil, err
	}
	snap, err := s.opts.Threads.State(ctx, checkpointer.Key{Thread: t, NS: ns}, false)
	if err != nil {
		return nil, err
	}
	if ns != "" && snap.ID == "" {
		return nil, unknownNamespace(ns)
	}
	return compat.AppendStateResult(nil, snap, keys), nil
}

func unknownNamespace(ns string) error {
	return &compat.CommandError{Code: compat.NoSuchNamespace, Message: "Unknown namespace: " + bounded(strings.ReplaceAll(ns, "|", ", "), maxReason)}
}

// checkpointsOf lists the checkpoints of a namespace, the newest first.
func (s *Server) checkpointsOf(ctx context.Context, t id.Thread, cmd *compat.Command) (json.RawMessage, error) {
	q, err := cmd.ListCheckpoints(t)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // the one before the last names the node that made it
	q.Room = &reads{budget: &s.reads}
	h, err := s.opts.Threads.ReadHistory(ctx, q)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	out := []byte(`{"checkpoints":[`)
	var last *checkpointer.Snapshot
	for n := 0; n <= limit; n++ {
		snap, err := h.Next(ctx)
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
