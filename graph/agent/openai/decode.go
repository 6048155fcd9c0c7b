package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"understudy/graph/agent/llm"
)

// completion is a chunk of an answer, or a whole one: then Message stands in place of Delta.
type completion struct {
	envelope
	Model       string     `json:"model"`
	Fingerprint string     `json:"system_fingerprint"`
	Choices     []choice   `json:"choices"`
	Usage       *wireUsage `json:"usage"`
	XGroq       *struct {  // Groq puts usage here
		Usage *wireUsage `json:"usage"`
		Error string     `json:"error"`
	} `json:"x_groq"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        *delta `json:"delta"`
	Message      *delta `json:"message"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content          json.RawMessage `json:"content"` // text, null, or a list of parts
	Refusal          string          `json:"refusal"`
	ReasoningContent string          `json:"reasoning_content"` // DeepSeek, vLLM, Qwen
	Reasoning        json.RawMessage `json:"reasoning"`         // OpenRouter, Ollama, newer vLLM; text
	ToolCalls        []toolCall      `json:"tool_calls"`
}

type toolCall struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a text; some servers send the object
	} `json:"function"`
}

type wireUsage struct {
	Prompt        int `json:"prompt_tokens"`
	Completion    int `json:"completion_tokens"`
	Total         int `json:"total_tokens"`
	PromptDetails *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails *struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	PromptCacheHit int `json:"prompt_cache_hit_tokens"` // DeepSeek
}

// decoder reads the chunks of one answer.
type decoder struct {
	calls    []*call
	finished bool       // the first choice has said why it ended
	usage    *llm.Usage // of the whole answer, as last reported
	model    string
}

// call is what is known of a tool call so far.
type call struct {
	wire     int // index as the server gave it
	id, name string
}

// maxCalls bounds the tool calls of one answer.
const maxCalls = 1024

// chunk reads one event. told is false when it has no content: role announcements, Azure's filter results.
func (d *decoder) chunk(data []byte) (c llm.Chunk, told bool, err error) {
	var in completion
	if err := json.Unmarshal(data, &in); err != nil {
		return c, false, fmt.Errorf("read answer: %w: %.200q", err, data)
	}
	failure := &Error{Status: http.StatusOK}
	if in.envelope.fill(failure) {
		return c, false, failure
	}
	usage := in.Usage
	if in.XGroq != nil {
		if in.XGroq.Error != "" {
			failure.Message = in.XGroq.Error
			return c, false, failure
		}
		if usage == nil {
			usage = in.XGroq.Usage
		}
	}
	if usage != nil {
		d.usage = usage.llm() // some servers count on in every chunk: the last one holds
	}
	for i := range in.Choices {
		if in.Choices[i].Index == 0 {
			if err := d.choice(&in.Choices[i], &c); err != nil {
				return c, false, err
			}
		}
	}
	if in.Model != "" && in.Model != d.model {
		d.model = in.Model
		c.Model = in.Model
	}
	if c.FinishReason != "" {
		c.Fingerprint = in.Fingerprint
	}
	told = c.Content != "" || c.Reasoning != "" || c.Refusal != "" || len(c.ToolCalls) > 0 || c.FinishReason != "" || c.Model != ""
	return c, told, nil
}

func (d *decoder) choice(in *choice, c *llm.Chunk) error {
	if in.FinishReason != "" && !d.finished {
		d.finished = true
		c.FinishReason = in.FinishReason
	}
	m := in.Delta
	if m == nil {
		m = in.Message
	}
	if m == nil {
		return nil
	}
	content, thinking, err := parts(m.Content)
	if err != nil {
		return err
	}
	c.Content = content
	c.Reasoning = m.ReasoningContent + thinking
	if c.Reasoning == "" {
		// Those who send both names send the same text twice.
		if err := json.Unmarshal(m.Reasoning, &c.Reasoning); err != nil && len(m.Reasoning) > 0 {
			c.Reasoning = "" // a setting or an object, not text
		}
	}
	c.Refusal = m.Refusal
	for i := range m.ToolCalls {
		piece, err := d.toolCall(&m.ToolCalls[i])
		if err != nil {
			return err
		}
		c.ToolCalls = append(c.ToolCalls, piece)
	}
	return nil
}

// toolCall finds the call that a piece belongs to. OpenAI numbers calls and names each once. Other servers send index 0 for every
// call, or none, or repeat id and name with each piece.
func (d *decoder) toolCall(in *toolCall) (llm.ToolCallDelta, error) {
	at := -1
	for i := len(d.calls) - 1; i >= 0; i-- {
		if in.Index == nil || d.calls[i].wire == *in.Index {
			at = i
			break
		}
	}
	if at >= 0 && in.ID != "" && d.calls[at].id != "" && in.ID != d.calls[at].id {
		at = -1
		for i, known := range d.calls { // a piece of an earlier one
			if known.id == in.ID && (in.Index == nil || known.wire == *in.Index) {
				at = i
			}
		}
	}
	if at >= 0 && in.Index == nil && in.ID == "" && in.Function.Name != "" && d.calls[at].name != "" {
		at = -1 // neither number nor id: a name begins a call
	}
	if at < 0 {
		if len(d.calls) == maxCalls {
			return llm.ToolCallDelta{}, fmt.Errorf("read answer: more than %d tool calls", maxCalls)
		}
		known := &call{wire: len(d.calls)}
		if in.Index != nil {
			known.wire = *in.Index
		}
		at = len(d.calls)
		d.calls = append(d.calls, known)
	}
	known := d.calls[at]
	out := llm.ToolCallDelta{Index: at}
	if known.id == "" {
		known.id, out.ID = in.ID, in.ID
	}
	if name := in.Function.Name; name != known.name {
		known.name += name
		out.Name = name
	}
	arguments := in.Function.Arguments
	if len(arguments) > 0 && !bytes.Equal(arguments, []byte("null")) {
		out.Arguments = text(arguments)
	}
	return out, nil
}

// parts reads content: a text, null, or the list of parts that Mistral sends when it thinks.
func parts(raw json.RawMessage) (content, thinking string, err error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return "", "", nil
	case raw[0] == '"':
		err = json.Unmarshal(raw, &content)
		return content, "", err
	case raw[0] != '[':
		return "", "", fmt.Errorf("read answer: content is neither text nor a list: %.200q", []byte(raw))
	}
	var list []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", "", fmt.Errorf("read answer: %w", err)
	}
	for _, p := range list {
		content += p.Text
		if p.Type != "thinking" {
			continue
		}
		var inner []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(p.Thinking, &inner) != nil {
			thinking += text(p.Thinking)
		}
		for _, t := range inner {
			thinking += t.Text
		}
	}
	return content, thinking, nil
}

func (u *wireUsage) llm() *llm.Usage {
	out := &llm.Usage{Input: u.Prompt, Output: u.Completion, Total: u.Total, CacheRead: u.PromptCacheHit}
	if u.PromptDetails != nil && u.PromptDetails.Cached > 0 {
		out.CacheRead = u.PromptDetails.Cached
	}
	if u.CompletionDetails != nil {
		out.Reasoning = u.CompletionDetails.Reasoning
	}
	if out.Total == 0 {
		out.Total = out.Input + out.Output
	}
	return out
}
