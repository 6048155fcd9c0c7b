package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/jsonobj"
)

// Model is a chat model with its properties.
type Model struct {
	LLM llms.Model
	// Provider and Name appear in the metadata of its messages as ls_provider and ls_model_name, unless "".
	Provider, Name string
	// MaxInputTokens is the size of the model's input; 0: unknown. Fractions in Summarization need it.
	MaxInputTokens int
	// Options are passed with each call.
	Options []llms.CallOption
}

// metadata returns the metadata of the messages that the model streams, including more.
func (m Model) metadata(more map[string]any) json.RawMessage {
	out := map[string]any{"ls_integration": "langchain_chat_model", "ls_model_type": "chat"}
	if m.Provider != "" {
		out["ls_provider"] = m.Provider
	}
	if m.Name != "" {
		out["ls_model_name"] = m.Name
	}
	for k, v := range more {
		out[k] = v
	}
	raw, _ := json.Marshal(out) // texts and numbers
	return raw
}

// Ask calls a model in a node, also outside of an agent's loop. Its tokens are streamed to subscribers, and it returns the complete
// message with an id. metadata is added to that of the messages; with the tag "nostream" they are not streamed.
func (m Model) Ask(ctx context.Context, messages []message.Message, metadata map[string]any, tags ...string) (message.Message, error) {
	content, err := forModel(nil, messages)
	if err != nil {
		return message.Message{}, err
	}
	return m.ask(ctx, content, m.Options, metadata, tags)
}

func (m Model) ask(ctx context.Context, messages []llms.MessageContent, options []llms.CallOption, metadata map[string]any, tags []string) (message.Message, error) {
	call := pregel.StartModel(ctx, pregel.ModelInfo{Metadata: m.metadata(metadata), Tags: tags})
	t := teller{call: call, wanted: call.Wanted(), provider: m.Provider}
	for chunk, err := range llm.Stream(ctx, m.LLM, messages, options...) {
		if err != nil {
			call.Fail()
			return message.Message{}, err
		}
		t.chunk(chunk)
	}
	return call.End(t.end()), nil
}

// teller builds messages from a model's chunks.
type teller struct {
	call     *pregel.ModelCall
	wanted   bool // the chunks are streamed
	provider string
	answer   llm.Answer
	ids      []string // of tool calls without a provider's id
}

func (t *teller) chunk(c llm.Chunk) {
	t.nameCalls(c.ToolCalls)
	t.answer.Add(c)
	if !t.wanted {
		return
	}
	m := message.AIChunk(c.Content)
	m.AdditionalKwargs = kwargs(c.Reasoning, c.Refusal)
	m.ResponseMetadata = t.metadata(c.FinishReason)
	m.Usage = usageOf(c.Usage)
	if len(c.ToolCalls) > 0 {
		parts := make([]message.ToolCallChunk, len(c.ToolCalls))
		for i, d := range c.ToolCalls {
			parts[i] = message.ToolCallChunk{Name: d.Name, Args: d.Arguments, ID: d.ID, Index: &d.Index}
		}
		m = m.WithCallChunks(parts...)
	} else if c.Content == "" && m.AdditionalKwargs == nil && m.ResponseMetadata == nil && m.Usage == nil {
		return // only the name of the model; sent with the finish reason
	}
	t.call.Chunk(m)
}

// nameCalls sets the ids of calls whose provider sends none.
func (t *teller) nameCalls(deltas []llm.ToolCallDelta) {
	for i := range deltas {
		d := &deltas[i]
		for len(t.ids) <= d.Index && d.Index < maxToolCalls {
			t.ids = append(t.ids, "")
		}
		if d.Index >= len(t.ids) {
			continue
		}
		switch {
		case t.ids[d.Index] != "":
			d.ID = ""
		case d.ID == "":
			d.ID = "call_" + uuid.NewString()
			fallthrough
		default:
			t.ids[d.Index] = d.ID
		}
	}
}

// maxToolCalls is the maximum number of tool calls in one answer.
const maxToolCalls = 1024

func (t *teller) metadata(reason string) json.RawMessage {
	if reason == "" {
		return nil
	}
	b := jsonobj.AppendText([]byte(`{"finish_reason":`), reason)
	for _, f := range [...][2]string{{"model_name", t.answer.Model}, {"system_fingerprint", t.answer.Fingerprint}, {"model_provider", t.provider}} {
		if f[1] != "" {
			b = append(append(append(b, `,"`...), f[0]...), `":`...)
			b = jsonobj.AppendText(b, f[1])
		}
	}
	return append(b, '}')
}

// kwargs returns the additional_kwargs in which LangChain stores these texts.
func kwargs(reasoning, refusal string) json.RawMessage {
	switch {
	case reasoning == "" && refusal == "":
		return nil
	case refusal == "":
		return append(jsonobj.AppendText([]byte(`{"reasoning_content":`), reasoning), '}')
	case reasoning == "":
		return append(jsonobj.AppendText([]byte(`{"refusal":`), refusal), '}')
	}
	b := jsonobj.AppendText([]byte(`{"reasoning_content":`), reasoning)
	return append(jsonobj.AppendText(append(b, `,"refusal":`...), refusal), '}')
}

// end emits a last, empty chunk and returns the complete message.
func (t *teller) end() message.Message {
	if t.wanted {
		last := message.AIChunk("")
		last.Last = true
		t.call.Chunk(last)
	}
	a := &t.answer
	m := message.AI(a.Content.String())
	m.AdditionalKwargs = kwargs(a.Reasoning.String(), a.Refusal.String())
	m.ResponseMetadata = t.metadata(a.FinishReason)
	m.Usage = usageOf(a.Usage)
	for _, c := range a.ToolCalls {
		args := json.RawMessage(c.Arguments.String())
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		err := objectError(args)
		if err != nil || c.Name == "" {
			invalid := message.InvalidToolCall{Name: c.Name, Args: string(args), ID: c.ID}
			if err != nil {
				invalid.Error = err.Error()
			}
			m.InvalidToolCalls = append(m.InvalidToolCalls, invalid)
			continue
		}
		var compact bytes.Buffer
		_ = json.Compact(&compact, args) // it is valid
		m.ToolCalls = append(m.ToolCalls, message.ToolCall{Name: c.Name, Args: compact.Bytes(), ID: c.ID})
	}
	return m
}

func objectError(raw json.RawMessage) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("the arguments are no JSON object: %w", err)
	}
	if object == nil {
		return errors.New("the arguments are null")
	}
	return nil
}
