package compat

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

const (
	// longestDelay is the longest time that a run is delayed. Longer ones are shortened to it.
	longestDelay = 100 * 365 * 24 * time.Hour
	// endOfTime is the number of seconds after which no clock has a time: LangGraph Server fails beyond the year 9999.
	endOfTime = 7900 * 365 * 86400
)

// delay reads after_seconds. A time before now is no delay.
func delay(seconds float64) (time.Duration, error) {
	switch {
	case math.Abs(seconds) > endOfTime:
		return 0, fault.Newf(fault.Unprocessable, "after_seconds is %g; it must be between -%[2]d and %[2]d", seconds, int64(endOfTime))
	case seconds >= longestDelay.Seconds():
		return longestDelay, nil
	}
	return time.Duration(max(seconds, 0) * float64(time.Second)), nil
}

// RunForm is the route by which a run is created.
type RunForm struct {
	Stateless bool
	Followed  bool // stream and wait: the body may have on_disconnect
}

func (f RunForm) schema() *Schema {
	switch {
	case f.Stateless && f.Followed:
		return RunStatelessStream
	case f.Stateless:
		return RunStateless.plain()
	case f.Followed:
		return RunStatefulStream
	}
	return RunStateful.plain()
}

// NewRun decodes the body of a request that creates a run. It does not validate the address of a webhook.
func NewRun(body []byte, form RunForm) (run.Request, error) {
	o, err := decode(body, form.schema())
	if err != nil {
		return run.Request{}, err
	}
	return o.run(form)
}

// NewRuns decodes the body of POST /runs/batch.
func NewRuns(body []byte) ([]run.Request, error) {
	body, err := Prepare(body)
	if err != nil {
		return nil, err
	}
	if err := RunBatch.Check(body); err != nil {
		return nil, err
	}
	var reqs []run.Request
	each(body, func(_ string, b []byte) {
		req, bad := members(b).run(RunForm{Stateless: true})
		if bad != nil && err == nil {
			err = bad
		}
		reqs = append(reqs, req)
	})
	return reqs, err
}

func (o object) run(form RunForm) (run.Request, error) {
	req := run.Request{
		AssistantID:  o.text("assistant_id"),
		Metadata:     o.metadata(),
		Strategy:     run.Enqueue,
		IfNotExists:  "reject",
		OnDisconnect: "continue",
		OnCompletion: "delete",
	}
	req.Arguments.Arguments = graph.Arguments{
		Input:           o.raw("input"),
		Command:         o.raw("command"),
		Modes:           o.modes("stream_mode"),
		Subgraphs:       o.bool("stream_subgraphs"),
		InterruptBefore: o.raw("interrupt_before"),
		InterruptAfter:  o.raw("interrupt_after"),
		Durability:      o.text("durability"),
	}
	req.Resumable, req.Webhook = o.bool("stream_resumable"), o.text("webhook")
	if form.Followed {
		req.OnDisconnect = o.textOr("on_disconnect", "continue")
	}
	var err error
	if req.FeedbackKeys, err = o.feedbackKeys(); err != nil {
		return req, err
	}
	if req.After, err = delay(o.number("after_seconds")); err != nil {
		return req, err
	}
	if req.Durability == "" {
		req.Durability = "async"
		if o.raw("checkpoint_during") != nil && !o.bool("checkpoint_during") {
			req.Durability = "exit"
		}
	}
	if t := members(o.raw("langsmith_tracer")); len(t) > 0 {
		req.Tracer = &run.Tracer{Project: t["project_name"], Example: t["example_id"]}
	}
	if req.Config, req.Context, err = o.configured(); err != nil {
		return req, err
	}
	if form.Stateless {
		req.OnCompletion = o.textOr("on_completion", "delete")
		if members(req.Command).raw("resume") != nil {
			return req, run.ErrStatelessResume
		}
		return req, nil
	}
	req.Strategy = run.Strategy(o.textOr("multitask_strategy", string(run.Enqueue)))
	req.IfNotExists = o.textOr("if_not_exists", "reject")
	if c := o.text("checkpoint_id"); c != "" {
		if req.CheckpointID = id.Checkpoint(id.Canonical(c)); req.CheckpointID == "" {
			return req, fault.New(fault.Unprocessable, "Invalid checkpoint ID")
		}
	}
	if c := o.raw("checkpoint"); c != nil {
		at, m := checkpointOf(c, ""), members(c)
		req.CheckpointNS = at.NS
		req.CheckpointMap = m.raw("checkpoint_map")
		if m["checkpoint_id"] != nil { // any text: a run from an unknown checkpoint begins on an empty state
			req.CheckpointID = at.ID
		}
	}
	return req, nil
}

// modes reads stream modes: one, or a list. None means values.
func (o object) modes(key string) []string {
	switch v := o.raw(key); {
	case v == nil:
	case v[0] == '"':
		return []string{text(v)}
	case len(v) > 2:
		return o.texts(key)
	}
	return []string{"values"}
}

// JoinModes reads ?stream_mode= of a join: each value is a mode or a JSON list of modes. A repeated parameter, as Python's client sends a
// list, selects the union; LangGraph Server uses only the last value. An empty value or list selects all modes: nil. Any other value,
// such as modes joined by commas, selects no event, as in LangGraph Server.
func JoinModes(values []string) []string {
	var modes []string
	for _, v := range values {
		list := []string{v}
		if strings.HasPrefix(v, "[") {
			if b, err := Prepare([]byte(v)); err == nil {
				list = object{"m": b}.texts("m")
			}
		}
		if v == "" || len(list) == 0 {
			return nil
		}
		modes = append(modes, list...)
	}
	return modes
}

// ThreadModes reads ?stream_modes= of the stream of a thread: a list with commas, or the parameter repeated. None: run_modes.
func ThreadModes(values []string) ([]string, error) {
	var modes []string
	for _, v := range values {
		for v != "" {
			var one string
			one, v = cutComma(v)
			switch one {
			case "run_modes", "lifecycle", "state_update":
				modes = append(modes, one)
			case "":
			default:
				return nil, fault.New(fault.Unprocessable, "Invalid stream mode: "+cut([]byte(one)))
			}
		}
	}
	if modes == nil {
		modes = []string{"run_modes"}
	}
	return modes, nil
}

func cutComma(s string) (first, rest string) {
	for i := range len(s) {
		if s[i] == ',' {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// Cancel is the request of POST /runs/cancel: the runs of a thread, or with a status those of all threads.
type Cancel struct {
	Thread id.Thread
	Runs   []id.Run
	Status string
}

// CancelRuns decodes the body of POST /runs/cancel.
func CancelRuns(body []byte) (Cancel, error) {
	o, err := decode(body, RunsCancel)
	if err != nil {
		return Cancel{}, err
	}
	c := Cancel{Status: o.text("status")}
	names := o.texts("run_ids")
	if c.Status != "" {
		if o.raw("thread_id") != nil || len(names) > 0 {
			return c, fault.New(fault.Unprocessable, "When providing a 'status', 'thread_id' and 'run_ids' must be omitted. "+
				"The 'status' parameter cancels all runs with the given status, regardless of thread or run ID.")
		}
		return c, nil
	}
	if c.Thread, err = ThreadID(o.text("thread_id")); err != nil {
		return c, err
	}
	for _, n := range names {
		r, err := RunID(n)
		if err != nil {
			return c, err
		}
		c.Runs = append(c.Runs, r)
	}
	return c, nil
}

// CancelAction reads ?action=: any value but rollback means interrupt.
func CancelAction(s string) run.Action {
	if s == string(run.CancelRollback) {
		return run.CancelRollback
	}
	return run.CancelInterrupt
}

// AppendRun appends a run.
func AppendRun(dst []byte, x *run.Run, cols Columns) []byte {
	r := newRow(dst, cols)
	r.text("run_id", string(x.ID))
	r.text("thread_id", string(x.Thread))
	r.text("assistant_id", string(x.Assistant))
	r.object("metadata", x.Metadata)
	r.text("status", string(x.Status))
	if r.key("kwargs") {
		r.dst = appendKwargs(r.dst, &x.Kwargs)
	}
	r.text("multitask_strategy", string(x.Strategy))
	r.time("created_at", x.CreatedAt)
	r.time("updated_at", x.UpdatedAt)
	r.raw("langsmith_session_name", nil)
	return r.end()
}

func appendKwargs(dst []byte, k *run.Arguments) []byte {
	r := newRow(dst, nil)
	r.raw("input", k.Input)
	r.raw("command", k.Command)
	r.object("config", startingAt(k, encryption.Hide(k.Config)))
	r.raw("context", k.Context)
	r.key("stream_mode")
	r.dst = appendTexts(r.dst, k.Modes)
	r.raw("interrupt_before", k.InterruptBefore)
	r.raw("interrupt_after", k.InterruptAfter)
	r.textOrNull("webhook", k.Webhook)
	r.raw("feedback_keys", k.FeedbackKeys)
	r.bool("temporary", k.Temporary)
	r.bool("subgraphs", k.Subgraphs)
	r.bool("resumable", k.Resumable)
	r.bool("checkpoint_during", k.Durability != "exit")
	r.text("durability", k.Durability)
	return r.end()
}

// startingAt returns a configuration with the checkpoint at which the run was asked to start, as clients see it: in configurable.
func startingAt(k *run.Arguments, config json.RawMessage) json.RawMessage {
	if k.CheckpointID == "" && k.CheckpointNS == "" {
		return config
	}
	o := jsonobj.Of(config)
	configurable := jsonobj.Of(o.Get("configurable"))
	if k.CheckpointID != "" {
		configurable.SetText("checkpoint_id", string(k.CheckpointID))
	}
	if k.CheckpointNS != "" {
		configurable.SetText("checkpoint_ns", k.CheckpointNS)
	}
	if len(k.CheckpointMap) > 0 {
		configurable.Set("checkpoint_map", k.CheckpointMap)
	}
	o.Set("configurable", configurable.JSON())
	return o.JSON()
}

// AppendResult appends the answer of a wait or join.
func AppendResult(dst []byte, res run.Result) []byte {
	if len(res.Error) > 0 {
		return AppendError(dst, res.Error)
	}
	return appendRaw(dst, res.Values)
}
