package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

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
	// Source is where the model is configured. Errors of calls name it, and say what to do: they are *llm.CallError. The zero value leaves errors as
	// they are.
	Source llm.Source
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
	call := pregel.StartModel(ctx, pregel.ModelInfo{Metadata: m.metadata(metadata), Tags: tags, Input: func() []json.RawMessage {
		shown := make([]json.RawMessage, len(messages))
		for i := range messages {
			shown[i], _ = json.Marshal(messages[i]) // nil is left out
		}
		return slices.DeleteFunc(shown, func(raw json.RawMessage) bool { return raw == nil })
	}})
	t := assembler{call: call, wanted: call.Wanted(), provider: m.Provider}
	for chunk, err := range llm.Stream(ctx, m.LLM, messages, options...) {
		if err != nil {
			call.Fail(err)
			if m.Source.Name != "" && ctx.Err() == nil {
				err = &llm.CallError{Source: m.Source, Err: err}
			}
			return message.Message{}, err
		}
		t.chunk(chunk)
	}
	return call.End(t.end()), nil
}

// assembler builds messages from a model's chunks. The complete message is the sum of those that are streamed.
type assembler struct {
	call        *pregel.ModelCall
	wanted      bool // the chunks are streamed
	provider    string
	sum         message.Sum
	blocks      bool     // the content is a list
	ids         []string // of tool calls
	model       string
	fingerprint string
}

func (t *assembler) chunk(c llm.Chunk) {
	t.nameCalls(c.ToolCalls)
	t.model, t.fingerprint = cmp.Or(t.model, c.Model), cmp.Or(t.fingerprint, c.Fingerprint)
	t.blocks = t.blocks || c.Blocks != nil
	if c.Empty() {
		return // only the name of the model; sent with the finish reason
	}
	t.call.Token()
	m := message.AIChunk(clean(c.Content))
	if t.blocks {
		m.Content = message.Content{Blocks: []json.RawMessage{}}
		for _, block := range c.Blocks {
			m.Content.Blocks = append(m.Content.Blocks, cleanJSON(block))
		}
	}
	m.AdditionalKwargs = merge(kwargs(clean(c.Reasoning), clean(c.Refusal)), cleanJSON(c.Kwargs))
	m.ResponseMetadata = t.metadata(c)
	m.Usage = usageOf(c.Usage)
	if len(c.ToolCalls) > 0 {
		parts := make([]message.ToolCallChunk, len(c.ToolCalls))
		for i, d := range c.ToolCalls {
			parts[i] = message.ToolCallChunk{Name: clean(d.Name), Args: clean(d.Arguments), ID: d.ID, Index: &d.Index}
		}
		m.ToolCallChunks = parts
	}
	t.sum.Add(m)
	if t.wanted {
		if len(m.ToolCallChunks) > 0 {
			m = m.WithCallChunks(m.ToolCallChunks...)
		}
		t.call.Chunk(m)
	}
}

// clean removes the null character: databases cannot keep it, and what is streamed is what is kept.
func clean(s string) string { return strings.ReplaceAll(s, "\x00", "") }

// cleanJSON removes the escape of the null character from the texts of a JSON value.
func cleanJSON(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(`\u0000`)) {
		return raw
	}
	out := make(json.RawMessage, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		switch {
		case raw[i] == '\\' && bytes.HasPrefix(raw[i:], []byte(`\u0000`)):
			i += len(`\u0000`) - 1
		case raw[i] == '\\' && i+1 < len(raw):
			out = append(out, raw[i], raw[i+1])
			i++
		default:
			out = append(out, raw[i])
		}
	}
	return out
}

// merge adds the members of an object to another, whose names differ.
func merge(a, b json.RawMessage) json.RawMessage {
	switch {
	case len(b) <= 2:
		return a
	case len(a) <= 2:
		return b
	}
	out := append(a[:len(a)-1:len(a)-1], ',')
	return append(out, b[1:]...)
}

// nameCalls sets the ids of calls whose provider sends none.
func (t *assembler) nameCalls(deltas []llm.ToolCallDelta) {
	for i := range deltas {
		d := &deltas[i]
		for len(t.ids) <= d.Index && d.Index < maxToolCalls {
			t.ids = append(t.ids, "")
		}
		if d.Index < 0 || d.Index >= len(t.ids) {
			continue
		}
		switch {
		case t.ids[d.Index] != "":
			d.ID = ""
		case d.ID == "":
			d.ID = llm.NewCallID()
			fallthrough
		default:
			t.ids[d.Index] = d.ID
		}
	}
}

// maxToolCalls is the maximum number of tool calls in one answer.
const maxToolCalls = 1024

// metadata returns the response_metadata of a chunk. That of the finish reason has all that is known of the model.
func (t *assembler) metadata(c llm.Chunk) json.RawMessage {
	var b json.RawMessage
	text := func(name, value string) {
		if value != "" {
			b = merge(b, append(jsonobj.AppendText([]byte(`{"`+name+`":`), value), '}'))
		}
	}
	if c.FinishReason != "" {
		if !c.Native {
			text("finish_reason", c.FinishReason)
		}
		text("model_name", t.model)
		text("system_fingerprint", t.fingerprint)
		text("model_provider", t.provider)
	}
	return merge(b, cleanJSON(c.Metadata))
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
func (t *assembler) end() message.Message {
	if t.wanted {
		last := message.AIChunk("")
		if t.blocks {
			last.Content = message.Content{Blocks: []json.RawMessage{}}
		}
		last.Last = true
		t.call.Chunk(last)
	}
	m := t.sum.Message().Whole()
	if t.blocks && m.Content.Blocks == nil {
		m.Content = message.Content{Blocks: []json.RawMessage{}}
	}
	return m
}
