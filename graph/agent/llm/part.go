package llm

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"
)

// Marks that agents may put around what people write, in requests. Scripted models do not see them.
const (
	InputBegin = "--- BEGIN USER INPUT ---\n"
	InputEnd   = "\n--- END USER INPUT ---"
)

// Part is a part of a message with what langchaingo's types have no place for. Which fields are set follows from the embedded part.
type Part struct {
	// ContentPart is the part as other models understand it; nil: they can do nothing with it.
	llms.ContentPart
	// Block is the content block as the message has it, such as a document, or the thinking of a model; nil: none.
	Block json.RawMessage
	// Provider is the model_provider of the message of a model that the part is from; "": unknown, or not from a model.
	Provider string
	// Optional means that a model that does not know Block leaves it out: it is a model's own, such as its thinking.
	Optional bool

	// Unasked means that Block is thinking which the provider sent although the request did not turn it on.
	Unasked bool
	// Reasoning is the text that a model thought before it answered, of providers that have it next to the content.
	Reasoning string
	// Details are OpenRouter's reasoning_details; nil: none.
	Details json.RawMessage
	// Extra is the extra_content of an llms.ToolCall, such as Gemini's signature of its thoughts; nil: none.
	Extra json.RawMessage
	// Failed means that an llms.ToolCallResponse is an error.
	Failed bool
	// Content is that of an llms.ToolCallResponse, in parts; nil: its text is all there is.
	Content []llms.ContentPart

	// Name is the name of the file that Block has; "": unknown.
	Name string
	// Broken is why no model can take Block, such as data that is not base64; "": some can.
	Broken string
	// Message is the ID of the message, for errors; "": unknown.
	Message string
	// Instead is the text for a model that cannot take the part; "": the part is an error then, of the message that was just sent.
	Instead string
}

// UnaskedThinking is the member of additional_kwargs that marks a message for Unasked.
const UnaskedThinking = "unasked_thinking"

// Without returns what is sent in place of a part that a model cannot take: a text, or an *Unsendable.
func (p Part) Without(reason string) (string, error) {
	if p.Instead != "" {
		return p.Instead, nil
	}
	return "", &Unsendable{Message: p.Message, Kind: gjson.GetBytes(p.Block, "type").String(), Name: p.Name, Reason: reason}
}

// InMessage adds the position of a message in a request, from 0, to an error that does not name it.
func InMessage(i int, err error) error {
	if e, ok := err.(*Unsendable); ok && e.Message != "" { //nolint:errorlint // as Without returns it
		return err
	}
	return fmt.Errorf("message %d: %w", i, err)
}

// CutDataURL returns the type and the base64 of a data URL; ok is false for other addresses.
func CutDataURL(address string) (mime, data string, ok bool) {
	head, data, encoded := strings.Cut(address, ";base64,")
	head, ok = strings.CutPrefix(head, "data:")
	if !encoded || !ok {
		return "", "", false
	}
	mime, _, _ = strings.Cut(head, ";")
	return mime, data, true
}

// BlockText returns the text of a content block of which text is all there is, such as a document of text or a search result; "" for other
// blocks.
func BlockText(raw json.RawMessage) string {
	v := gjson.ParseBytes(raw)
	switch kind, source := v.Get("type").Str, v.Get("source"); {
	case kind == "text-plain", kind == "file" && v.Get("source_type").Str == "text":
		return v.Get("text").String()
	case kind == "document" && source.Get("type").Str == "text":
		return source.Get("data").String()
	case kind == "document" && source.Get("type").Str == "content":
		return texts(source.Get("content"))
	case kind == "search_result":
		return strings.Join([]string{v.Get("title").String(), source.String(), texts(v.Get("content"))}, "\n")
	}
	return ""
}

// texts returns the text of a content: a text, or a list of blocks of text. It is "" if another block is among them.
func texts(content gjson.Result) string {
	if !content.IsArray() {
		return content.String()
	}
	var all []string
	for _, b := range content.Array() {
		if b.Get("type").Str != "text" {
			return ""
		}
		all = append(all, b.Get("text").String())
	}
	return strings.Join(all, "\n")
}

// Unsendable is the error of a message with content that the model cannot take.
type Unsendable struct {
	Message string // its ID; "": unknown
	Kind    string // type of the content block; "": unknown, or the whole message
	Name    string // of the file; "": unknown
	Reason  string
}

func (e *Unsendable) Error() string {
	var b strings.Builder
	if e.Message != "" {
		fmt.Fprintf(&b, "message %s: ", e.Message)
	}
	if e.Kind != "" {
		fmt.Fprintf(&b, "a content block of type %q ", e.Kind)
		if e.Name != "" {
			fmt.Fprintf(&b, "(%s) ", e.Name)
		}
		b.WriteString("cannot be sent to this model: ")
	}
	return b.String() + e.Reason
}

// unsendable returns the first part that a model without llm's own parts cannot take.
func unsendable(messages []llms.MessageContent) error {
	for _, m := range messages {
		for _, part := range m.Parts {
			if p, ok := part.(Part); ok && p.ContentPart == nil && p.Block != nil && !p.Optional {
				if _, err := p.Without(reason(p)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func reason(p Part) string {
	if p.Broken != "" {
		return p.Broken
	}
	return "it takes no such blocks"
}

// Plain returns messages without Part: with the parts of langchaingo alone.
func Plain(messages []llms.MessageContent) []llms.MessageContent {
	out := make([]llms.MessageContent, 0, len(messages))
	for _, m := range messages {
		parts := make([]llms.ContentPart, 0, len(m.Parts))
		for _, p := range m.Parts {
			if rich, ok := p.(Part); ok {
				p = rich.ContentPart
				if p == nil && rich.Instead != "" {
					p = llms.TextContent{Text: rich.Instead}
				}
			}
			if p != nil {
				parts = append(parts, p)
			}
		}
		if len(parts) == 0 {
			parts = append(parts, llms.TextContent{})
		}
		out = append(out, llms.MessageContent{Role: m.Role, Parts: parts})
	}
	return out
}

// NewCallID returns an id for a tool call to which its provider gave none. It fits all providers: OpenAI allows 40 characters.
func NewCallID() string {
	id := uuid.New()
	return "call_" + hex.EncodeToString(id[:12])
}

// Result returns the tool result in a part, and the Part around it; the zero Part if there is none.
func Result(p llms.ContentPart) (llms.ToolCallResponse, Part, error) {
	rich, ok := p.(Part)
	if ok {
		p = rich.ContentPart
	}
	result, ok := p.(llms.ToolCallResponse)
	if !ok {
		return result, rich, fmt.Errorf("%T is not a tool result", p)
	}
	return result, rich, nil
}
