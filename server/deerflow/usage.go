package deerflow

import (
	"encoding/json"
	"math"

	"github.com/tidwall/gjson"

	"understudy/graph/agent"
	"understudy/graph/message"
	"understudy/run"
)

// Usage is how many tokens the runs of a thread used.
type Usage struct {
	Thread   string                `json:"thread_id"`
	Total    int64                 `json:"total_tokens"`
	Input    int64                 `json:"total_input_tokens"`
	Output   int64                 `json:"total_output_tokens"`
	Runs     int                   `json:"total_runs"`
	ByModel  map[string]modelUsage `json:"by_model"`
	ByCaller struct {
		Lead       int64 `json:"lead_agent"`
		Subagent   int64 `json:"subagent"`
		Middleware int64 `json:"middleware"`
	} `json:"by_caller"`
	Context json.RawMessage `json:"context_usage"`
}

// ContextUsage is how much the messages of a state take of the context of a model that has room for so many tokens; room 0: not known.
func ContextUsage(values json.RawMessage, room int) json.RawMessage {
	var messages []message.Message
	for _, raw := range gjson.GetBytes(values, "messages").Array() {
		if m, ok := message.Read([]byte(raw.Raw)); ok {
			messages = append(messages, m)
		}
	}
	out := struct {
		Tokens int      `json:"token_count"`
		Room   *int     `json:"max_context_tokens"`
		Part   *float64 `json:"percentage"`
	}{Tokens: agent.Tokens(messages...)}
	if room > 0 {
		part := math.Round(float64(out.Tokens)/float64(room)*1000) / 10
		out.Room, out.Part = &room, &part
	}
	return encode(out)
}

type modelUsage struct {
	Tokens int64 `json:"tokens"`
	Runs   int   `json:"runs"`
}

// NewUsage is the usage of a thread without runs.
func NewUsage(thread string) *Usage {
	return &Usage{Thread: thread, ByModel: map[string]modelUsage{}, Context: json.RawMessage("null")}
}

// Add adds a run. Nothing is known of nil.
func (u *Usage) Add(c *run.Completion) {
	if c == nil {
		return
	}
	u.Runs++
	u.Input += number(c.InputTokens)
	u.Output += number(c.OutputTokens)
	for name, m := range c.ByModel {
		if name == "" {
			name = "unknown"
		}
		have := u.ByModel[name]
		u.ByModel[name] = modelUsage{have.Tokens + number(m.Total), have.Runs + 1}
	}
	for caller, to := range map[string]*int64{"lead": &u.ByCaller.Lead, "subagent": &u.ByCaller.Subagent, "middleware": &u.ByCaller.Middleware} {
		n := number(c.ByCaller[caller].Total)
		*to += n
		u.Total += n
	}
}

func number(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// JSON returns the answer.
func (u *Usage) JSON() json.RawMessage { return encode(u) }
