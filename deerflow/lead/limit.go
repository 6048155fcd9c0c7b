package lead

import (
	"context"
	"fmt"
	"slices"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/agent/middleware"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// noMoreSubagents ends an answer that calls subagents although the run has had all of its own.
const noMoreSubagents = "[SUBAGENT LIMIT REACHED] This run has used all of its subagents. It continues with what they found."

// limitSubagents cuts calls of task from an answer that has more than a run may have at once, or in all. The others are noted in the state, from which the count of a run
// is taken: it is the same after a restart. An answer of a run that has had all of its subagents says so.
func limitSubagents(configured int, enabled func(context.Context) bool) agent.Middleware {
	return agent.Middleware{
		Name: "SubagentLimitMiddleware",
		AfterModel: agent.Hook{Run: func(ctx context.Context, state pregel.Values) (any, error) {
			list := agent.Messages(state)
			if len(list) == 0 || !enabled(ctx) {
				return nil, nil
			}
			used, err := delegated(ctx, state)
			if err != nil {
				return nil, err
			}
			most, total := concurrent(ctx), perRun(ctx, configured)
			m, tasks := list[len(list)-1], 0
			var noted []delegation
			allowed := min(most, max(total-used, 0))
			kept := slices.DeleteFunc(slices.Clone(m.ToolCalls), func(c message.ToolCall) bool {
				if c.Name != "task" {
					return false
				}
				if tasks++; tasks <= allowed {
					noted = append(noted, begun(ctx, c))
				}
				return tasks > allowed
			})
			update := pregel.Values{}
			if len(noted) > 0 {
				update[delegationsKey] = noted
			}
			if len(kept) < len(m.ToolCalls) {
				pregel.LogOf(ctx).Info("the model called more subagents than the run may have; the others are left out", "called", tasks, "at_once", most, "in_all", total, "used", used)
				if used >= total {
					m = middleware.Stopped(middleware.WithText(m, noMoreSubagents), graph.SubagentLimitCapped)
				}
				update["messages"] = []message.Message{middleware.WithCalls(m, kept)}
			}
			if len(update) == 0 {
				return nil, nil
			}
			return update, nil
		}},
		WrapToolCall: func(ctx context.Context, r agent.ToolRequest, next agent.ToolHandler) (agent.ToolResult, error) {
			if r.Call.Name != "task" {
				return next(ctx, r)
			}
			all, _, err := pregel.Get[[]delegation](r.State, delegationsKey)
			if err != nil {
				return agent.ToolResult{}, fmt.Errorf("read delegations: %w", err)
			}
			at := slices.IndexFunc(all, func(d delegation) bool { return d.ID == r.Call.ID })
			if at < 0 {
				m := message.Tool(fmt.Sprintf("Error: This run has used all of its %d subagents. Do the rest yourself.", perRun(ctx, configured)), r.Call.ID).WithName(r.Call.Name)
				m.Status = message.StatusError
				return agent.ToolResult{Message: &m}, nil
			}
			out, err := next(ctx, r)
			if err == nil && out.Message != nil {
				out.Updates = append(slices.Clip(out.Updates), &pregel.Command{Update: pregel.Values{delegationsKey: []delegation{ended(all[at], *out.Message)}}})
			}
			return out, err
		},
	}
}

// delegated returns how many subagents the run has had.
func delegated(ctx context.Context, state pregel.Values) (n int, err error) {
	all, _, err := pregel.Get[[]delegation](state, delegationsKey)
	if err != nil {
		return 0, fmt.Errorf("read delegations: %w", err)
	}
	info, _ := pregel.Info(ctx)
	for _, d := range all {
		if d.Run == string(info.Run) {
			n++
		}
	}
	return n, nil
}

// perRun returns how many subagents a run may have in all: as many as it says, else as the settings say.
func perRun(ctx context.Context, configured int) int {
	if v := wish(ctx, "max_total_subagents"); v.Exists() {
		return min(max(int(v.Int()), 1), maxPerRun)
	}
	return configured
}
