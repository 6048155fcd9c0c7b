package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
)

// BudgetOptions limit the tokens of a run, those of its subagents included. 0: no limit.
type BudgetOptions struct {
	Total, Input, Output int64
	Warn, Stop           float64 // parts of a limit: at which the model is warned, and at which the run ends; 0 < Warn <= Stop <= 1
}

// Check returns what is wrong with the options.
func (o BudgetOptions) Check() error {
	switch {
	case min(o.Total, o.Input, o.Output) < 0 || max(o.Total, o.Input, o.Output) == 0:
		return errors.New("limits are numbers above 0, and there must be one")
	case !(o.Warn >= 0 && o.Stop > 0 && o.Stop <= 1): // not a number is not in order either
		return errors.New("parts of a limit are between 0 and 1")
	case o.Warn > o.Stop:
		return fmt.Errorf("warns at %v of the limit, but stops at %v; warn earlier", o.Warn, o.Stop)
	}
	return nil
}

const (
	spentKey      = "token_budget"
	budgetWarning = "[TOKEN BUDGET WARNING]"
	budgetStop    = "[TOKEN BUDGET EXCEEDED]"
)

// spent is what a run has used until now. It is kept in the state, so that it is the same after a restart and after messages were summarized.
type spent struct {
	Run    string `json:"run"`
	Input  int64  `json:"input"`
	Output int64  `json:"output"`
	Total  int64  `json:"total"`
	Warned bool   `json:"warned"`
}

func (s *spent) add(input, output, total int64) {
	s.Input, s.Output, s.Total = s.Input+input, s.Output+output, s.Total+max(total, input+output)
}

// TokenBudget ends a run that uses too many tokens: the calls of its answer are taken away, and the answer says so. Before that the model is warned once, in a request only.
// A resumed run is another run, with a budget of its own.
func TokenBudget(o BudgetOptions) (agent.Middleware, error) {
	if err := o.Check(); err != nil {
		return agent.Middleware{}, fmt.Errorf("token budget: %w", err)
	}
	return agent.Middleware{
		Name:    "TokenBudgetMiddleware",
		Private: true,
		State:   map[string]pregel.Channel{spentKey: pregel.LastValue()},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			used, err := used(ctx, r.State)
			if err != nil {
				return agent.ModelResponse{}, err
			}
			if kind, n, limit := o.highest(used); !used.Warned && limit > 0 && float64(n) >= o.Warn*float64(limit) {
				used.Warned = true
				r.Messages = append(slices.Clip(r.Messages), message.Human(fmt.Sprintf(
					budgetWarning+" This run has used %d of its %d %s tokens. Finish what you are doing and answer; call tools only if you cannot do without.", n, limit, kind)).WithName("budget_warning"))
			}
			out, err := next(ctx, r)
			if err != nil || len(out.Messages) == 0 || out.Messages[0].Type != message.TypeAI {
				return out, err
			}
			if u := out.Messages[0].Usage; u != nil {
				used.add(u.InputTokens, u.OutputTokens, u.TotalTokens)
			}
			out.Updates = append(slices.Clip(out.Updates), &pregel.Command{Update: pregel.Values{spentKey: used}})
			kind, n, limit := o.highest(used)
			if out.Structured != nil || limit == 0 || float64(n) < o.Stop*float64(limit) {
				return out, nil
			}
			pregel.LogOf(ctx).Warn("the run has used its tokens; it ends", "kind", kind, "used", n, "limit", limit)
			text := fmt.Sprintf(budgetStop+" This run has used %d %s tokens; its limit is %d. It ends with what it has so far.", n, kind, limit)
			out.Messages = []message.Message{Stopped(Closed(out.Messages[0], text), graph.TokenCapped)}
			return out, nil
		},
	}, nil
}

// used returns what the run has used, with what its subagents report since the last call.
func used(ctx context.Context, state pregel.Values) (spent, error) {
	s, _, err := pregel.Get[spent](state, spentKey)
	if err != nil {
		return s, fmt.Errorf("read %s: %w", spentKey, err)
	}
	info, _ := pregel.Info(ctx)
	list := agent.Messages(state)
	if run := string(info.Run); s.Run != run || run == "" && len(list) > 0 && list[len(list)-1].Type == message.TypeHuman && !list[len(list)-1].HiddenFromPeople() {
		s = spent{Run: run}
	}
	for _, m := range slices.Backward(list) {
		if m.Type != message.TypeTool {
			break
		}
		u := gjson.GetBytes(m.AdditionalKwargs, SubagentUsageKey)
		s.add(u.Get("input_tokens").Int(), u.Get("output_tokens").Int(), u.Get("total_tokens").Int())
	}
	return s, nil
}

// highest returns the limit of which the largest part is used; 0: nothing is used.
func (o BudgetOptions) highest(s spent) (kind string, n, limit int64) {
	for _, one := range []struct {
		kind     string
		n, limit int64
	}{{"total", s.Total, o.Total}, {"input", s.Input, o.Input}, {"output", s.Output, o.Output}} {
		if one.limit > 0 && one.n > 0 && (limit == 0 || float64(one.n)/float64(one.limit) > float64(n)/float64(limit)) {
			kind, n, limit = one.kind, one.n, one.limit
		}
	}
	return kind, n, limit
}

// over reports whether an answer says that its run has to end.
func over(m message.Message) bool {
	text := m.Text()
	return IsFallback(m) || strings.Contains(text, forcedStop) || strings.Contains(text, budgetStop) || gjson.GetBytes(m.AdditionalKwargs, safetyKey).Exists()
}
