package deerflow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/bridge"
	"understudy/compat"
	custom "understudy/deerflow/agent"
	"understudy/deerflow/journal"
	"understudy/deerflow/settings"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// RunBody is the body of a request for a run, read and checked.
type RunBody struct {
	// LangGraph is the same request as LangGraph Server takes it.
	LangGraph json.RawMessage
	// Thread is the one that a stateless run names; "" none.
	Thread string
	// Agent is the agent of the user that shall answer; "": the lead agent itself.
	Agent string
	// Checkpoint is where the run begins, in Thread or the thread of the path; "": at the head.
	Checkpoint string
}

// runFields are the fields that a request for a run may have.
var runFields = []string{
	"assistant_id", "input", "command", "metadata", "config", "context", "webhook", "checkpoint_id", "checkpoint", "interrupt_before", "interrupt_after", "stream_mode", "stream_subgraphs",
	"stream_resumable", "on_disconnect", "on_completion", "multitask_strategy", "after_seconds", "if_not_exists", "feedback_keys",
}

// streamModes are those that a run may have.
var streamModes = []string{"values", "messages-tuple", "updates", "debug", "tasks", "checkpoints", "custom"}

// serverContext are the keys of a context that only the server sets; transient ones are taken out, because a run is stored.
var (
	serverContext    = []string{"is_internal", "authz_attributes", "channel_user_id", "user_id", "user_role", "oauth_provider", "oauth_id", "oauth_token"}
	transientContext = []string{"github_token", "disable_clarification"}
)

// serverKwargs are the keys of additional_kwargs of a message that only the server sets.
var serverKwargs = []string{"original_user_content", "dynamic_context_reminder", "reminder_date", "view_image_message"}

// ReadRun reads the body of a request for a run on a thread; thread "": one that the body names, or a new one.
func ReadRun(body []byte, set *settings.Settings, user, thread string) (*RunBody, error) {
	f, err := Body(body)
	if err != nil {
		return nil, err
	}
	f.in.ForEach(func(k, v gjson.Result) bool {
		if !slices.Contains(runFields, k.Str) {
			f.fail(k.Str, "extra_forbidden", "Extra inputs are not permitted", v, nil)
		}
		return true
	})
	f.refuse()
	out := &RunBody{}
	o := jsonobj.Of(body)
	assistant := f.Text("assistant_id", 0, 200)
	if assistant != nil && *assistant != "" && *assistant != "lead_agent" {
		name, err := custom.Name(strings.ReplaceAll(*assistant, "_", "-"))
		if err != nil {
			f.Fail("assistant_id", "value_error", "Value error, "+err.Error())
		}
		out.Agent = name
	}
	checkpoint := jsonobj.Of(f.Object("checkpoint"))
	if out.Checkpoint = checkpoint.Text("checkpoint_id"); out.Checkpoint == "" {
		if at := f.Text("checkpoint_id", 0, 200); at != nil {
			out.Checkpoint = *at
		}
	}
	if of := checkpoint.Text("thread_id"); of != "" && thread != "" && of != thread {
		return nil, fault.New(fault.Invalid, "checkpoint thread_id does not match request thread_id")
	}
	o.SetText("assistant_id", "lead_agent")
	if f.Raw("multitask_strategy") == nil {
		o.SetText("multitask_strategy", string(run.Reject))
	}
	if f.Raw("on_disconnect") == nil {
		o.SetText("on_disconnect", "cancel")
	}
	o.Set("stream_resumable", json.RawMessage("true"))
	o.Set("if_not_exists", json.RawMessage(`"create"`))
	for _, key := range []string{"on_completion", "feedback_keys", "webhook", "after_seconds"} {
		o.Delete(key)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if raw := f.Object("command"); raw != nil {
		c := &jsonobj.Object{}
		if resume := jsonobj.Of(raw).Get("resume"); resume != nil {
			c.Set("resume", resume)
		}
		o.Set("command", c.JSON())
	}
	if err := f.messages(o); err != nil {
		return nil, err
	}
	if err := f.context(o, out, set, user); err != nil {
		return nil, err
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	out.LangGraph = o.JSON()
	return out, nil
}

// refuse notes options that the Gateway does not have.
func (f *Form) refuse() {
	unsupported := func(key, why string) {
		f.fail(key, "unsupported_run_option", why, f.get(key), nil)
	}
	if f.get("stream_resumable").Type == gjson.True {
		unsupported("stream_resumable", "Streams of the Gateway are kept without it")
	}
	if f.get("multitask_strategy").String() == string(run.Enqueue) {
		unsupported("multitask_strategy", "enqueue is not supported; use reject, interrupt or rollback")
	}
	for _, key := range []string{"webhook", "on_completion", "after_seconds", "feedback_keys"} {
		if f.Raw(key) != nil {
			unsupported(key, key+" is not supported")
		}
	}
	if v := f.get("if_not_exists"); v.Exists() && v.String() != "create" {
		unsupported("if_not_exists", "Threads are created when they are missing")
	}
	for _, key := range []string{"input", "command", "metadata", "config", "context", "checkpoint"} {
		f.Object(key)
	}
	if id := f.in.Get("config.configurable.thread_id"); id.Exists() && id.Type != gjson.Null && (id.Type != gjson.String || !ThreadPattern.MatchString(id.Str)) {
		f.problems = append(f.problems, Problem{
			Type: "value_error", Loc: []any{"body"}, Msg: "Value error, Invalid thread_id: it has 1 to 64 letters, digits, hyphens and underscores", Input: json.RawMessage(f.in.Raw), Ctx: map[string]any{"error": struct{}{}},
		})
	}
	modes := f.get("stream_mode")
	list := modes.Array() // of a single text, too
	for _, m := range list {
		if !slices.Contains(streamModes, m.String()) {
			f.fail("stream_mode", "unsupported_stream_mode", "Unsupported stream mode '"+m.String()+"'", modes, nil)
		}
	}
}

// roles are the types of messages, by the names that clients have for them.
var roles = []string{"human", "user", "ai", "assistant", "system", "tool", "function", "developer", "remove", "chat"}

// messages checks the messages of the input, and takes out of them what only the server may say.
func (f *Form) messages(o *jsonobj.Object) error {
	raw := f.Raw("input")
	if raw == nil || raw[0] != '{' {
		return nil
	}
	in := jsonobj.Of(raw)
	list := gjson.ParseBytes(in.Get("messages"))
	if !list.IsArray() {
		return nil
	}
	var clean []json.RawMessage
	for i, m := range list.Array() {
		if !m.IsObject() {
			clean = append(clean, json.RawMessage(m.Raw))
			continue
		}
		kind := m.Get("type").String()
		if kind == "" {
			kind = m.Get("role").String()
		}
		if !slices.Contains(roles, kind) {
			return fault.Newf(fault.Invalid, "Invalid message at input.messages[%d]: unexpected message type: '%s'", i, kind)
		}
		if !m.Get("content").Exists() && kind != "remove" {
			return fault.Newf(fault.Invalid, "Invalid message at input.messages[%d]: content is missing", i)
		}
		msg := jsonobj.Of(json.RawMessage(m.Raw))
		if extra := msg.Get("additional_kwargs"); len(extra) > 0 && extra[0] == '{' {
			msg.Set("additional_kwargs", without(extra, serverKwargs...))
		}
		clean = append(clean, msg.JSON())
	}
	in.Set("messages", encode(clean))
	o.Set("input", in.JSON())
	return nil
}

// defaultRecursion is the limit of supersteps of runs that name none.
const defaultRecursion = 100

// context makes the context of the run: the client's, without what is the server's, and with who runs it.
func (f *Form) context(o *jsonobj.Object, out *RunBody, set *settings.Settings, user string) error {
	config := jsonobj.Of(f.Object("config"))
	given := f.Object("context")
	configurable := jsonobj.Of(config.Get("configurable"))
	if inner := config.Get("context"); len(inner) > 0 && inner[0] == '{' {
		if given == nil {
			given = inner
		}
		configurable = &jsonobj.Object{} // as the Gateway: of both the context counts
	}
	config.Delete("context")
	out.Thread = gjson.GetBytes(f.Object("config"), "configurable.thread_id").String()
	ctx := jsonobj.Of(given)
	if gjson.GetBytes(ctx.Get("disable_clarification"), "@this").Bool() {
		ctx.Set("non_interactive", json.RawMessage("true")) // a server that takes the run over finds it there
	}
	for _, c := range []*jsonobj.Object{ctx, configurable} {
		for _, key := range slices.Concat(serverContext, transientContext) {
			c.Delete(key)
		}
	}
	configurable.Delete("thread_id")
	if name := gjson.GetBytes(ctx.Get("model_name"), "@this").String(); name != "" && set.Model(name) == nil {
		return fault.Newf(fault.Invalid, "Model '%s' is not in the configured model allowlist", name)
	}
	if out.Agent != "" {
		ctx.SetText("agent_name", out.Agent)
	} else if name := ctx.Text("agent_name"); name != "" {
		out.Agent = strings.ToLower(name)
	}
	ctx.SetText("user_id", user)
	limit := defaultRecursion // also for what is no positive integer
	if l := gjson.ParseBytes(config.Get("recursion_limit")); l.Type == gjson.Number && !strings.ContainsAny(l.Raw, "-.eE") && l.Num > 0 {
		limit = int(min(l.Num, float64(set.MaxRecursionLimit)))
	}
	config.Set("recursion_limit", json.RawMessage(fmt.Sprint(min(limit, set.MaxRecursionLimit))))
	if configurable.Len() > 0 {
		// LangGraph takes one of both; what only stands in the other is added.
		configurable.Each(func(key string, v json.RawMessage) {
			if ctx.Get(key) == nil && !strings.HasPrefix(key, "checkpoint_") {
				ctx.Set(key, v)
			}
		})
	}
	config.Delete("configurable")
	o.Set("config", config.JSON())
	o.Set("context", ctx.JSON())
	return nil
}

// Run is a run, with what is known of it when it is over.
func Run(x *run.Run, done *run.Completion) json.RawMessage {
	o := jsonobj.Of(compat.AppendRun(nil, x, nil))
	o.SetText("assistant_id", "lead_agent")
	o.Delete("langsmith_session_name")
	o.SetText("created_at", Stamp(x.CreatedAt))
	o.SetText("updated_at", Stamp(x.UpdatedAt))
	o.Set("metadata", without(x.Metadata, slices.Concat(startKeys, hiddenKeys)...))
	k := &jsonobj.Object{}
	k.Set("input", rawOr(x.Kwargs.Input, "null"))
	k.Set("config", givenConfig(x.Kwargs.Config))
	o.Set("kwargs", k.JSON())
	number := func(key string, v *int64) {
		n := int64(0)
		if v != nil {
			n = *v
		}
		o.Set(key, json.RawMessage(fmt.Sprint(n)))
	}
	if done == nil {
		done = &run.Completion{}
	}
	number("total_input_tokens", done.InputTokens)
	number("total_output_tokens", done.OutputTokens)
	number("total_tokens", done.TotalTokens)
	number("llm_call_count", done.LLMCalls)
	number("lead_agent_tokens", done.ByCaller["lead"].Total)
	number("subagent_tokens", done.ByCaller["subagent"].Total)
	number("middleware_tokens", done.ByCaller["middleware"].Total)
	number("message_count", done.Messages)
	o.Set("stop_reason", encode(done.StopReason))
	return o.JSON()
}

// startKeys are metadata that the server adds to a run: who made it, and how the agent works in it, which the row of its start shows.
var startKeys = []string{"created_by", "agent_name", "model_name", "thinking_enabled", "reasoning_effort", "is_plan_mode", "subagent_enabled", "tool_groups", "available_skills"}

// serverConfig are the keys of configurable that the server writes, who acts among them.
var serverConfig = []string{access.UserKey, access.IdentityKey, access.PermissionsKey, access.ApartKey, "langgraph_request_id", "run_id", "thread_id", "graph_id", "assistant_id", "user_id"}

// givenConfig is the configuration of a run without what the server wrote into it; null when nothing is left.
func givenConfig(raw json.RawMessage) json.RawMessage {
	config := jsonobj.Of(raw)
	config.Delete("metadata")
	given := &jsonobj.Object{}
	jsonobj.Of(config.Get("configurable")).Each(func(key string, v json.RawMessage) {
		if !slices.Contains(serverConfig, key) && !strings.HasPrefix(key, "__") {
			given.Set(key, v)
		}
	})
	config.Delete("configurable")
	if given.Len() > 0 {
		config.Set("configurable", given.JSON())
	}
	if config.Len() == 0 || config.Len() == 1 && string(config.Get("recursion_limit")) == fmt.Sprint(defaultRecursion) {
		return json.RawMessage("null")
	}
	return config.JSON()
}

func rawOr(raw json.RawMessage, def string) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(def)
	}
	return raw
}

// NotCancellable is the refusal for a run that is over.
func NotCancellable(x *run.Run) *Failure {
	return Fail(http.StatusConflict, fmt.Sprintf("Run %s is not cancellable (status: %s)", x.ID, x.Status))
}

// Stream writes the records of a run as the Gateway sends them: the first names run and thread, and the last one is `end`.
type Stream struct{ Run *run.Run }

// Append implements the form of an open response.
func (s *Stream) Append(dst []byte, r *bridge.Record) []byte {
	switch r.Event {
	case "metadata":
		o := *r
		o.Frame = nil
		o.Data = encode(struct {
			Run    string `json:"run_id"`
			Thread string `json:"thread_id"`
		}{string(s.Run.ID), string(s.Run.Thread)})
		return compat.AppendRecord(dst, &o, true)
	case "error":
		if gjson.GetBytes(r.Data, "error").String() == journal.Undelivered { // the answer stands; the run says what is missing
			return dst
		}
		o := *r
		o.Frame = nil
		o.Data = encode(struct {
			Message string `json:"message"`
			Name    string `json:"name"`
		}{gjson.GetBytes(r.Data, "message").String(), gjson.GetBytes(r.Data, "error").String()})
		return compat.AppendRecord(dst, &o, true)
	}
	return compat.AppendRecord(dst, r, r.Kept)
}

// End implements the form of an open response.
func (*Stream) End(dst []byte) []byte { return append(dst, "event: end\r\ndata: null\r\n\r\n"...) }
