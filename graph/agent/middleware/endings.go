package middleware

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// Members of additional_kwargs by which an answer says that its provider stopped it, with the detector, the field and its value, and the calls that were taken away.
const (
	safetyKey = "safety_termination"
	lengthKey = "model_length_termination"
)

// Detector recognizes answers that a provider stopped.
type Detector struct {
	Name    string
	Field   string   // of response_metadata, else of additional_kwargs: finish_reason or stop_reason
	Reasons []string // values of the field, in any case
}

// SafetyDetectors returns the detectors of SafetyFinishReason for the providers that are known.
func SafetyDetectors() []Detector {
	return []Detector{
		{"openai_compatible_content_filter", "finish_reason", []string{"content_filter"}},
		{"anthropic_refusal", "stop_reason", []string{"refusal"}},
		{"gemini_safety", "finish_reason", []string{
			"SAFETY", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "RECITATION", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
		}},
	}
}

var lengthDetectors = []Detector{
	{"openai_compatible_length", "finish_reason", []string{"length"}},
	{"anthropic_max_tokens", "stop_reason", []string{"max_tokens"}},
	{"gemini_max_tokens", "finish_reason", []string{"MAX_TOKENS"}},
}

// ending is what an answer in additional_kwargs says of its end. It is the custom event of SafetyFinishReason, too.
type ending struct {
	Detector string   `json:"detector"`
	Field    string   `json:"reason_field"`
	Value    string   `json:"reason_value"`
	Count    int      `json:"suppressed_tool_call_count"`
	Names    []string `json:"suppressed_tool_call_names"`
}

// detect returns how an answer was stopped; ok is false when none of the detectors knows it.
func detect(m message.Message, detectors []Detector) (e ending, ok bool) {
	for _, d := range detectors {
		value := gjson.GetBytes(m.ResponseMetadata, d.Field)
		if value.Type != gjson.String || value.Str == "" {
			value = gjson.GetBytes(m.AdditionalKwargs, d.Field)
		}
		if value.Type == gjson.String && slices.ContainsFunc(d.Reasons, func(r string) bool { return strings.EqualFold(r, value.Str) }) {
			return ending{Detector: d.Name, Field: d.Field, Value: value.Str, Names: []string{}}, true
		}
	}
	return e, false
}

// stopped returns the answer of a response that one of the detectors knows, and how it ended. Without one, or when the answer has its structured form, ok is false.
func stopped(r agent.ModelResponse, detectors []Detector) (m message.Message, e ending, ok bool) {
	if r.Structured != nil || len(r.Messages) == 0 || r.Messages[0].Type != message.TypeAI {
		return m, e, false
	}
	m = r.Messages[0]
	if e, ok = detect(m, detectors); !ok {
		return m, e, false
	}
	for _, c := range m.ToolCalls {
		e.Count, e.Names = e.Count+1, append(e.Names, c.Name)
	}
	for _, c := range m.InvalidToolCalls {
		e.Count, e.Names = e.Count+1, append(e.Names, c.Name)
	}
	return m, e, true
}

// SafetyFinishReason takes the calls away from an answer that the provider stopped for safety: their arguments may be half of what was meant. The answer says so, in its text
// and in additional_kwargs.safety_termination, and a custom event {"type": "safety_termination", …} has the same. Text that was cut stays as it is. Without detectors
// they are SafetyDetectors. It belongs at the end of the chain, where it sees answers first.
func SafetyFinishReason(detectors ...Detector) agent.Middleware {
	if len(detectors) == 0 {
		detectors = SafetyDetectors()
	}
	return agent.Middleware{
		Name: "SafetyFinishReasonMiddleware",
		WrapModelCall: stopping(detectors, safetyKey, graph.SafetyCapped, func(ctx context.Context, e ending) (why, then string) {
			pregel.LogOf(ctx).Warn("the provider stopped an answer for safety; its tool calls are not made", "detector", e.Detector, "reason", e.Value, "tools", e.Names)
			info, _ := pregel.Info(ctx)
			_ = pregel.Emit(ctx, struct { // a run without custom events loses nothing
				Type string `json:"type"`
				ending
				Thread string `json:"thread_id"`
			}{safetyKey, e, string(info.Thread)})
			return fmt.Sprintf("The model provider stopped this answer for safety reasons (%s: %s).", e.Field, e.Value), "Please rephrase the request, or ask for less."
		}),
	}
}

// ModelLength takes the calls away from an answer that the token limit of the model cut off, and explains it where the user would miss something: when calls were taken away,
// or when there is no text. Text that was cut stays as it is. additional_kwargs.model_length_termination says what was done, and graph.StopReasonKey that the limit was reached.
// It belongs at the end of the chain, before SafetyFinishReason.
func ModelLength() agent.Middleware {
	return agent.Middleware{
		Name: "ModelLengthFinishReasonMiddleware",
		WrapModelCall: stopping(lengthDetectors, lengthKey, graph.ModelLengthCapped, func(ctx context.Context, e ending) (why, then string) {
			pregel.LogOf(ctx).Warn("an answer was cut off by the model's token limit; its tool calls are not made", "detector", e.Detector, "tools", e.Names)
			return "The model reached its output limit before the answer was complete.", "Continue the conversation to resume."
		}),
	}
}

// stopping takes the calls away from answers that one of the detectors knows, and explains those with calls or without text. report gets each of them, and returns why it
// ended and what to do then. key is the member of additional_kwargs that has the ending. The run has the reason to stop, for length also when there is a text.
func stopping(detectors []Detector, key string, reason graph.StopReason, report func(context.Context, ending) (why, then string)) func(context.Context, agent.ModelRequest, agent.ModelHandler) (agent.ModelResponse, error) {
	return func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
		out, err := next(ctx, r)
		if err != nil {
			return out, err
		}
		m, e, ok := stopped(out, detectors)
		if !ok {
			return out, nil
		}
		if e.Count == 0 && !silent(m) { // the text stands
			if reason == graph.ModelLengthCapped {
				out.Messages = []message.Message{Stopped(m, reason)}
			}
			return out, nil
		}
		why, then := report(ctx, e)
		if e.Count > 0 {
			why += " Its tool calls were not made, because they may be incomplete."
		}
		return e.end(Stopped(m, reason), out, key, why+" "+then), nil
	}
}

// end returns a response with an answer that ends with a text, and notes under key how it ended. Calls, and results that they have already, are left out.
func (e ending) end(m message.Message, out agent.ModelResponse, key, text string) agent.ModelResponse {
	m = Closed(m, text)
	if raw, err := json.Marshal(e); err == nil { // always: texts
		extra := jsonobj.Of(m.AdditionalKwargs)
		extra.Set(key, raw)
		m.AdditionalKwargs = extra.JSON()
	}
	out.Messages = []message.Message{m}
	return out
}

// Stopped returns an answer that names the limit which ended it, as the stop_reason of its run.
func Stopped(m message.Message, reason graph.StopReason) message.Message {
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.SetText(graph.StopReasonKey, string(reason.After(graph.StopReason(extra.Text(graph.StopReasonKey)))))
	m.AdditionalKwargs = extra.JSON()
	return m
}

// StopReasonOf returns the limit that an answer names; "": none.
func StopReasonOf(m message.Message) graph.StopReason {
	return graph.StopReason(gjson.GetBytes(m.AdditionalKwargs, graph.StopReasonKey).String())
}

// Closed returns an answer without calls, with a text after its own.
func Closed(m message.Message, text string) message.Message {
	if m.Content.Blocks != nil {
		m.Content.Blocks = slices.DeleteFunc(slices.Clone(m.Content.Blocks), func(b json.RawMessage) bool { return callBlocks[gjson.GetBytes(b, "type").Str] })
	}
	m.InvalidToolCalls = nil
	return WithCalls(WithText(m, text), nil)
}

// WithText returns a message with a text after its own.
func WithText(m message.Message, text string) message.Message {
	if m.Content.Blocks == nil {
		m.Content = message.Text(strings.TrimSpace(m.Content.Text + "\n\n" + text))
		return m
	}
	if strings.TrimSpace(m.Text()) != "" {
		text = "\n\n" + text
	}
	block := append(jsonobj.AppendText([]byte(`{"type":"text","text":`), text), '}')
	m.Content = message.Content{Blocks: append(slices.Clone(m.Content.Blocks), block)}
	return m
}

// callBlocks are the types of blocks in which providers keep calls.
var callBlocks = map[string]bool{"tool_use": true, "tool_call": true, "tool_call_chunk": true, "invalid_tool_call": true, "function_call": true, "input_json_delta": true}

// silent reports whether an answer has nothing that a person can see.
func silent(m message.Message) bool {
	return strings.TrimSpace(m.Text()) == "" && !slices.ContainsFunc(m.Content.Blocks, func(b json.RawMessage) bool {
		switch gjson.GetBytes(b, "type").Str {
		case "", "text", "output_text", "thinking", "redacted_thinking", "reasoning", "reasoning_content":
			return false
		}
		return true // an image, or what is not known here
	})
}

// Of TerminalResponse.
const (
	askedAgainKey = "asked_again" // of the state: the run that was asked again
	askAgain      = "Your last answer was empty. Look at what is in the conversation, and answer the user now. Call tools only if you cannot do without."
	callAgain     = "The arguments of your last tool call could not be read, so nothing was called. Call the tool again with arguments that are valid JSON, or answer the user."

	emptyText      = "The model ended without an answer, twice. Please try again, or use another model."
	unreadableText = "The model called a tool with arguments that cannot be read, twice. Please try again, or use another model."
)

// TerminalResponse asks the model again when its answer leaves nothing to do or to read, and answers in its place when the second is no better: an answer with neither text nor
// calls, once in a run, and each with calls of which none can be read, with their errors. Its own answer is one in place of an error: IsFallback recognizes it. An answer that a
// limit or safety ended is not asked for again. It belongs before ModelLength.
func TerminalResponse() agent.Middleware {
	return agent.Middleware{
		Name:    "TerminalResponseMiddleware",
		Private: true,
		State:   map[string]pregel.Channel{askedAgainKey: pregel.LastValue()},
		WrapModelCall: func(ctx context.Context, r agent.ModelRequest, next agent.ModelHandler) (agent.ModelResponse, error) {
			out, err := next(ctx, r)
			if err != nil || !fruitless(out) {
				return out, err
			}
			info, _ := pregel.Info(ctx)
			asked, _, err := pregel.Get[string](r.State, askedAgainKey)
			if err != nil {
				return out, fmt.Errorf("read %s: %w", askedAgainKey, err)
			}
			m := out.Messages[0]
			bad := unreadable(m)
			again := len(bad) == 0 && info.Run != "" && asked == string(info.Run)
			if !again {
				log, text, used := pregel.LogOf(ctx), askAgain, m.Usage
				var updates []any
				r.Messages = slices.Clip(r.Messages)
				if len(bad) > 0 {
					text = callAgain
					log.Warn("the model called tools with arguments that cannot be read; asking once more", "tools", namesOf(bad), "error", bad[0].Error)
					r.Messages = append(r.Messages, complete([]message.Message{m})...)
				} else {
					log.Warn("the model answered with nothing; asking once more")
					updates = []any{&pregel.Command{Update: pregel.Values{askedAgainKey: string(info.Run)}}}
				}
				r.Messages = append(r.Messages, message.Human(text).WithName("terminal_response_recovery"))
				if out, err = next(ctx, r); err != nil || len(out.Messages) == 0 {
					return out, err
				}
				again, m = fruitless(out), out.Messages[0]
				m.Usage = sum(used, m.Usage)
				out.Updates = append(slices.Clip(out.Updates), updates...)
			}
			if again {
				m = gaveUp(ctx, m)
			}
			out.Messages = slices.Clone(out.Messages)
			out.Messages[0] = m
			return out, nil
		},
	}
}

// fruitless reports whether a response leaves nothing to do or to read: it has neither text nor calls, or calls of which none can be read.
func fruitless(r agent.ModelResponse) bool {
	if r.Structured != nil || len(r.Messages) != 1 || r.Messages[0].Type != message.TypeAI {
		return false
	}
	m := r.Messages[0]
	if _, limited := detect(m, lengthDetectors); limited || len(m.ToolCalls) > 0 {
		return false
	}
	if len(unreadable(m)) > 0 {
		return true
	}
	raw := gjson.GetManyBytes(m.AdditionalKwargs, "tool_calls", "function_call")
	how := gjson.GetBytes(m.ResponseMetadata, "finish_reason").String()
	return silent(m) && !raw[0].Exists() && !raw[1].Exists() && how != "tool_calls" && how != "function_call"
}

// unreadable returns the calls of an answer whose arguments cannot be read; none if others can be.
func unreadable(m message.Message) []message.InvalidToolCall {
	if m, _ = withOwnCalls(m); len(m.ToolCalls) > 0 {
		return nil
	}
	return m.InvalidToolCalls
}

func namesOf(calls []message.InvalidToolCall) []string {
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = c.Name
	}
	return names
}

// gaveUp returns the answer in place of a second one that is fruitless.
func gaveUp(ctx context.Context, m message.Message) message.Message {
	reason := "Model returned an empty terminal response after one retry"
	if bad := unreadable(m); len(bad) > 0 {
		reason = "Model called tools with unreadable arguments after one retry"
		pregel.LogOf(ctx).Warn("the model called tools with arguments that cannot be read again; the run ends with an explanation", "tools", namesOf(bad), "error", bad[0].Error)
		m = Closed(m, unreadableText)
	} else {
		pregel.LogOf(ctx).Warn("the model answered with nothing again; the run ends with an explanation")
		m.Content = message.Text(emptyText)
	}
	extra := jsonobj.Of(m.AdditionalKwargs)
	extra.Set(fallbackKey, []byte("true"))
	extra.SetText("error_reason", reason)
	m.AdditionalKwargs = extra.JSON()
	return m
}

// sum adds the usage of two calls; the details are those of the second. nil: not known.
func sum(a, b *message.Usage) *message.Usage {
	if a == nil || b == nil {
		if b == nil {
			return a
		}
		return b
	}
	out := *b
	out.InputTokens += a.InputTokens
	out.OutputTokens += a.OutputTokens
	out.TotalTokens += a.TotalTokens
	return &out
}
