package run

import "understudy/graph"

// Completion is what is known of a run that is over. nil is unknown, and never means zero: a graph need not say what its models used,
// nor keep in its messages what they answered. The names are those in the content of a run.end event.
type Completion struct {
	InputTokens  *int64           `json:"input_tokens"`
	OutputTokens *int64           `json:"output_tokens"`
	TotalTokens  *int64           `json:"total_tokens"`
	ByModel      map[string]Usage `json:"by_model"`
	ByCaller     map[string]Usage `json:"by_caller"` // lead, subagent, middleware
	LLMCalls     *int64           `json:"llm_calls"` // the sum of ByCaller
	Messages     *int64           `json:"message_count"`
	FirstHuman   *string          `json:"first_human_message"` // text, cut at maxText
	LastAI       *string          `json:"last_ai_message"`     // the last that has text
	Title        *string          `json:"title"`               // channel `title` of the thread's head
	Error        *string          `json:"error"`
	// StopReason is the limit that ended the run early; nil: there was none.
	StopReason *graph.StopReason `json:"stop_reason"`
}

// Usage is what model calls used, in tokens. The numbers of tokens are nil when none of the calls reported them.
type Usage struct {
	Input  *int64 `json:"input_tokens"`
	Output *int64 `json:"output_tokens"`
	Total  *int64 `json:"total_tokens"`
	Calls  int64  `json:"calls"`
}
