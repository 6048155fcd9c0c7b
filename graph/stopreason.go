package graph

// StopReason is the limit that ended a run early, although it did not fail.
type StopReason string

// Why runs end early, with the names of DeerFlow.
const (
	LoopCapped          StopReason = "loop_capped"           // the model repeated itself
	TokenCapped         StopReason = "token_capped"          // the run used its tokens
	TurnCapped          StopReason = "turn_capped"           // a subagent called its model as often as it may
	SubagentLimitCapped StopReason = "subagent_limit_capped" // the run used its subagents
	SafetyCapped        StopReason = "safety_capped"         // the provider stopped an answer for safety
	ModelLengthCapped   StopReason = "model_length_capped"   // an answer reached the token limit of the model
	OrphanRecovered     StopReason = "orphan_recovered"      // the processes that executed the run died
)

// StopReasonKey is the member of additional_kwargs by which an answer names the limit that ended it. The run has it as its stop_reason.
const StopReasonKey = "run_stop_reason"

// Known reports whether r is one of the reasons above.
func (r StopReason) Known() bool {
	switch r {
	case LoopCapped, TokenCapped, TurnCapped, SubagentLimitCapped, SafetyCapped, ModelLengthCapped, OrphanRecovered:
		return true
	}
	return false
}

// After returns the reason of a run whose reason was before, and that was stopped again: the newest counts, but an answer that is too long says less than a limit.
func (r StopReason) After(before StopReason) StopReason {
	if r == ModelLengthCapped && before != "" {
		return before
	}
	return r
}
