package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/message"
	"understudy/graph/pregel"
	"understudy/internal/pytext"
)

// ResponseFormat is the form of an answer. The model returns it by calling a tool that does not exist: its arguments are the
// answer.
type ResponseFormat struct {
	Name        string // of the tool
	Description string
	Schema      json.RawMessage // JSON Schema of an object
	// Text is shown in the conversation as the result of the call; "": the answer itself.
	Text string
	// Strict fails the run when an answer does not match the schema. Otherwise the model gets the error and tries again.
	Strict bool
}

// FormatOf returns a ResponseFormat whose schema is derived from a struct, as in NewTool.
func FormatOf[T any](name, description string) (*ResponseFormat, error) {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, fmt.Errorf("response format %s: %w", name, err)
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("response format %s: %w", name, err)
	}
	return &ResponseFormat{Name: name, Description: description, Schema: raw}, nil
}

// boundFormat is a format with its parsed schema. nil: none.
type boundFormat struct {
	ResponseFormat
	schema *jsonschema.Resolved
}

func bindFormat(f *ResponseFormat) (*boundFormat, error) {
	if f == nil {
		return nil, nil
	}
	if f.Name == "" {
		return nil, errors.New("the response format needs a name")
	}
	schema, err := resolve(f.Schema)
	if err != nil {
		return nil, fmt.Errorf("response format %s: its schema: %w", f.Name, err)
	}
	return &boundFormat{*f, schema}, nil
}

// is reports whether a tool's name is that of the format.
func (f *boundFormat) is(tool string) bool { return f != nil && f.Name == tool }

func (f *boundFormat) definition() llms.Tool {
	return Tool{Name: f.Name, Description: f.Description, Schema: f.Schema}.definition()
}

// response looks for the answer in the model's message.
func (f *boundFormat) response(said message.Message) (ModelResponse, error) {
	out := ModelResponse{Messages: []message.Message{said}}
	var calls []message.ToolCall
	for _, c := range said.ToolCalls {
		if f.is(c.Name) {
			calls = append(calls, c)
		}
	}
	var problem *pregel.Error
	switch len(calls) {
	case 0:
		if f != nil && len(said.ToolCalls) == 0 && len(said.InvalidToolCalls) == 0 {
			out.Structured = f.inText(said.Text())
		}
		return out, nil
	case 1:
		if err := validate(f.schema, calls[0].Args); err != nil {
			problem = pregel.Errorf("StructuredOutputValidationError", "Failed to parse structured output for tool '%s': %w.", f.Name, err)
		}
	default:
		names := make([]string, len(calls))
		for i, c := range calls {
			names[i] = c.Name
		}
		problem = pregel.Errorf("MultipleStructuredOutputsError",
			"Model incorrectly returned multiple structured responses (%s) when only one is expected.", strings.Join(names, ", "))
	}
	if problem != nil && f.Strict {
		return ModelResponse{}, problem
	}
	if problem != nil {
		for _, c := range calls {
			m := message.Tool(fmt.Sprintf(toolErrorText, problem.Error()), c.ID).WithName(c.Name)
			out.Messages = append(out.Messages, m)
		}
		return out, nil
	}
	out.Structured = orEmpty(calls[0].Args)
	text := f.Text
	if text == "" {
		text = "Returning structured response: " + pytext.Repr(out.Structured)
	}
	out.Messages = append(out.Messages, message.Tool(text, calls[0].ID).WithName(f.Name))
	return out, nil
}

// inText returns the answer that a model wrote as text, of providers that cannot force a tool; nil when the text is none.
func (f *boundFormat) inText(text string) json.RawMessage {
	text = strings.TrimSpace(withoutThoughts(text))
	if inner, ok := strings.CutPrefix(text, "```"); ok {
		text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(inner, "json"), "```"))
	}
	args, err := message.Arguments(text)
	if text == "" || err != nil || validate(f.schema, args) != nil {
		return nil
	}
	return args
}

// remind adds an instruction, which is sent and not kept, to a conversation that ends with an answer in prose. Many models refuse a
// conversation that ends with their own message.
func (f *boundFormat) remind(messages []message.Message) []message.Message {
	n := len(messages)
	if f == nil || n == 0 || messages[n-1].Type != message.TypeAI {
		return messages
	}
	return append(messages[:n:n], message.Human(fmt.Sprintf("Return the answer by calling the tool `%s`.", f.Name)))
}
