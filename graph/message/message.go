package message

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"
)

// Types of messages, as their field `type` names them.
const (
	TypeHuman    = "human"
	TypeAI       = "ai"
	TypeSystem   = "system"
	TypeTool     = "tool"
	TypeFunction = "function"
	TypeChat     = "chat"
	TypeRemove   = "remove"
	// Chunks are parts of a message that is being streamed.
	TypeAIChunk       = "AIMessageChunk"
	TypeHumanChunk    = "HumanMessageChunk"
	TypeSystemChunk   = "SystemMessageChunk"
	TypeToolChunk     = "ToolMessageChunk"
	TypeFunctionChunk = "FunctionMessageChunk"
	TypeChatChunk     = "ChatMessageChunk"
)

// RemoveAll is the id of a RemoveMessage that removes all messages before it.
const RemoveAll = "__remove_all__"

// Status of a tool's message.
const (
	StatusSuccess = "success"
	StatusError   = "error"
)

// Message is one message, or a chunk of one. The zero value of a field means that the message does not have it.
type Message struct {
	Type             string
	ID               string
	Name             string
	Content          Content
	AdditionalKwargs json.RawMessage // object; nil: empty
	ResponseMetadata json.RawMessage // object; nil: empty

	// Of the model.
	ToolCalls        []ToolCall
	InvalidToolCalls []InvalidToolCall
	Usage            *Usage
	// Of chunks of the model.
	ToolCallChunks []ToolCallChunk
	Last           bool // chunk_position is "last"

	// Of tools.
	ToolCallID string
	Artifact   json.RawMessage // nil: null
	Status     string          // StatusSuccess when empty

	// Role is that of a chat message.
	Role string
	// Extra are fields that no message class has, in their order.
	Extra []Field
}

// Field is a field of a JSON object.
type Field struct {
	Name  string
	Value json.RawMessage
}

// ToolCall is a call that the model asks for.
type ToolCall struct {
	Name string
	Args json.RawMessage // object; nil: empty
	ID   string          // "": null
}

// InvalidToolCall is a call whose arguments are not a JSON object.
type InvalidToolCall struct {
	Name, Args, ID, Error string // "": null
}

// ToolCallChunk is a part of a call in a chunk. Parts with the same index are of the same call.
type ToolCallChunk struct {
	Name string // "": null
	Args string // "": see NoArgs
	ID   string // "": null
	// Index is nil when the provider sends none.
	Index *int
	// NoArgs: args is null rather than "".
	NoArgs bool
}

// Usage counts tokens.
type Usage struct {
	InputTokens, OutputTokens, TotalTokens int64
	// Details as the provider gave them: objects of counts; nil: absent.
	InputDetails, OutputDetails json.RawMessage
}

// Content is text, or a list of blocks.
type Content struct {
	Text string
	// Blocks are strings and objects; nil: the content is Text. An empty, non-nil list is an empty list.
	Blocks []json.RawMessage
}

// Text is a content that is text.
func Text(text string) Content { return Content{Text: text} }

// String returns the text: that of the blocks, joined, where there are blocks. Blocks that are no text are left out.
func (c Content) String() string {
	if c.Blocks == nil {
		return c.Text
	}
	var b strings.Builder
	for _, block := range c.Blocks {
		b.WriteString(blockText(block))
	}
	return b.String()
}

// Empty reports whether there is neither text nor a block.
func (c Content) Empty() bool { return c.Text == "" && len(c.Blocks) == 0 }

// Human is a message of a person.
func Human(text string) Message { return Message{Type: TypeHuman, Content: Text(text)} }

// AI is a message of a model.
func AI(text string, calls ...ToolCall) Message {
	return Message{Type: TypeAI, Content: Text(text), ToolCalls: calls}
}

// System is an instruction.
func System(text string) Message { return Message{Type: TypeSystem, Content: Text(text)} }

// Tool is the result of a tool call.
func Tool(text, callID string) Message {
	return Message{Type: TypeTool, Content: Text(text), ToolCallID: callID, Status: StatusSuccess}
}

// AIChunk is a part of a model's message.
func AIChunk(text string) Message { return Message{Type: TypeAIChunk, Content: Text(text)} }

// Remove removes the message with this id from a list of messages; RemoveAll all that come before.
func Remove(id string) Message { return Message{Type: TypeRemove, ID: id} }

// WithID returns the message with another id.
func (m Message) WithID(id string) Message { m.ID = id; return m }

// WithName returns the message with a name.
func (m Message) WithName(name string) Message { m.Name = name; return m }

// Text returns the text of the content.
func (m Message) Text() string { return m.Content.String() }

// IsChunk reports whether the message is a chunk of one.
func (m Message) IsChunk() bool { return strings.HasSuffix(m.Type, "MessageChunk") }

// HiddenFromPeople reports whether a message is for models only, such as a reminder: it is hidden from people (hide_from_ui). An answer that a person gave on the card of a
// question (human_input_response) is hidden too, because the card shows it.
func (m Message) HiddenFromPeople() bool {
	return gjson.GetBytes(m.AdditionalKwargs, "hide_from_ui").Bool() && !gjson.GetBytes(m.AdditionalKwargs, "human_input_response").Exists()
}
