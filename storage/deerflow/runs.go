package deerflow

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// Run is a run as it ended there, with what it used.
type Run struct {
	run.Run
	Completion run.Completion
}

// runColumns are those of runs that are read. Older installations lack some.
var runColumns = []string{
	"run_id", "thread_id", "status", "created_at", "updated_at", "metadata_json", "kwargs_json", "multitask_strategy", "error", "stop_reason",
	"total_input_tokens", "total_output_tokens", "total_tokens", "llm_call_count", "lead_agent_tokens", "subagent_tokens", "middleware_tokens", "token_usage_by_model", "model_name",
	"message_count", "first_human_message", "last_ai_message",
}

// Runs returns the runs, those of a thread together and oldest first. One that waited or ran there is interrupted.
func (i *Installation) Runs(ctx context.Context) iter.Seq2[*Run, error] {
	have, err := i.tables.columns(ctx, "runs")
	if err != nil {
		return nothing[Run](err)
	}
	var fields []string
	for _, c := range runColumns {
		if slices.Contains(have, c) {
			fields = append(fields, text(c))
		} else {
			fields = append(fields, "''")
		}
	}
	where := ""
	if slices.Contains(have, "operation_kind") { // others are edits of files and the like
		where = " WHERE operation_kind = 'run'"
	}
	return all(ctx, i.tables, "SELECT "+strings.Join(fields, ", ")+" FROM runs"+where+" ORDER BY thread_id, created_at, run_id", readRun)
}

func readRun(r []string) *Run {
	of := func(column string) string { return r[slices.Index(runColumns, column)] }
	number := func(column string) *int64 {
		n, err := strconv.ParseInt(of(column), 10, 64)
		if err != nil {
			return nil
		}
		return &n
	}
	optional := func(column string) *string {
		if text := of(column); text != "" {
			return &text
		}
		return nil
	}
	kwargs := jsonobj.Of(object(of("kwargs_json")))
	x := &Run{Run: run.Run{
		ID: id.Run(of("run_id")), Thread: here(of("thread_id")), Assistant: id.DefaultAssistant(graphName), Graph: graphName, Metadata: object(of("metadata_json")),
		Status: statusOf(of("status")), Strategy: run.Strategy(of("multitask_strategy")), CreatedAt: when(of("created_at")), Attempt: 1, Passed: true,
		OnCompletion: "keep", OnDisconnect: "continue",
	}}
	x.EndedAt = x.CreatedAt
	if of("updated_at") != "" {
		x.EndedAt = when(of("updated_at"))
	}
	x.StartedAt, x.UpdatedAt = x.CreatedAt, x.EndedAt
	if !slices.Contains([]run.Strategy{run.Enqueue, run.Reject, run.Interrupt, run.Rollback}, x.Strategy) {
		x.Strategy = run.Reject
	}
	x.Kwargs.Input, x.Kwargs.Config = kwargs.Get("input"), object(string(kwargs.Get("config")))
	if x.Status == run.Error {
		e := &jsonobj.Object{}
		e.SetText("error", "Error")
		e.SetText("message", of("error"))
		x.Error = e.JSON()
	}
	c := &x.Completion
	c.InputTokens, c.OutputTokens, c.TotalTokens, c.LLMCalls, c.Messages = number("total_input_tokens"), number("total_output_tokens"), number("total_tokens"), number("llm_call_count"), number("message_count")
	c.FirstHuman, c.LastAI, c.Error = optional("first_human_message"), optional("last_ai_message"), optional("error")
	if reason := optional("stop_reason"); reason != nil {
		c.StopReason = (*graph.StopReason)(reason)
	}
	c.ByCaller = map[string]run.Usage{}
	for caller, column := range map[string]string{"lead": "lead_agent_tokens", "subagent": "subagent_tokens", "middleware": "middleware_tokens"} {
		if n := number(column); n != nil && *n > 0 {
			c.ByCaller[caller] = run.Usage{Total: n}
		}
	}
	c.ByModel = byModel(of("token_usage_by_model"), of("model_name"), c.TotalTokens)
	return x
}

// byModel returns what models used; where that was not kept yet, all is the model's of the run.
func byModel(usage, model string, total *int64) map[string]run.Usage {
	out := map[string]run.Usage{}
	gjson.Parse(usage).ForEach(func(name, used gjson.Result) bool {
		field := func(key string) *int64 { n := used.Get(key).Int(); return &n }
		out[name.String()] = run.Usage{Input: field("input_tokens"), Output: field("output_tokens"), Total: field("total_tokens")}
		return true
	})
	if len(out) == 0 && total != nil && *total > 0 {
		if model == "" {
			model = "unknown"
		}
		out[model] = run.Usage{Total: total}
	}
	return out
}

func statusOf(status string) run.Status {
	switch s := run.Status(status); s {
	case run.Success, run.Error, run.Timeout, run.Interrupted:
		return s
	case run.Pending, run.Running:
		return run.Interrupted
	}
	return run.Error
}
