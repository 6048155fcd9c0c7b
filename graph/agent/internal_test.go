package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
	"understudy/graph/message"
)

func block(raw string) json.RawMessage { return json.RawMessage(raw) }

func TestForModel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		m    message.Message
		want llms.MessageContent
		err  string
	}{
		{"text", message.Human("hi"), llms.TextParts(llms.ChatMessageTypeHuman, "hi"), ""},
		{"nothing", message.AI(""), llms.TextParts(llms.ChatMessageTypeAI, ""), ""},
		{"blocks", message.Message{Type: message.TypeHuman, Content: message.Content{Blocks: []json.RawMessage{
			block(`"a"`), block(`{"type":"text","text":"b"}`), block(`{"type":"image_url","image_url":{"url":"u","detail":"low"}}`), block(`{"type":"image_url","image_url":"v"}`),
			block(`{"type":"image","url":"w"}`), block(`{"type":"image","base64":"AQ==","mime_type":"image/gif"}`), block(`{"type":"audio","data":"AQ=="}`),
			block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQ=="}}`), block(`{"type":"reasoning","reasoning":"hm"}`),
		}}}, llms.MessageContent{Role: llms.ChatMessageTypeHuman, Parts: []llms.ContentPart{
			llms.TextContent{Text: "a"},
			llms.TextContent{Text: "b"},
			llms.ImageURLContent{URL: "u", Detail: "low"},
			llms.ImageURLContent{URL: "v"},
			llms.ImageURLContent{URL: "w"},
			llms.BinaryContent{MIMEType: "image/gif", Data: []byte{1}},
			llms.BinaryContent{MIMEType: "audio/wav", Data: []byte{1}},
			llms.BinaryContent{MIMEType: "image/png", Data: []byte{1}},
		}}, ""},
		{
			"calls",
			message.Message{Type: message.TypeAI, Content: message.Text("see"), ToolCalls: []message.ToolCall{{Name: "f", ID: "1"}}, InvalidToolCalls: []message.InvalidToolCall{{Name: "g", Args: `{"q`, ID: "2"}}},
			llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{
				llms.TextContent{Text: "see"},
				llms.ToolCall{ID: "1", Type: "function", FunctionCall: &llms.FunctionCall{Name: "f", Arguments: "{}"}},
				llms.ToolCall{ID: "2", Type: "function", FunctionCall: &llms.FunctionCall{Name: "g", Arguments: `{"arguments":"{\"q"}`}},
			}},
			"",
		},
		{
			"a result",
			message.Message{Type: message.TypeTool, ToolCallID: "1", Name: "f", Content: message.Content{Blocks: []json.RawMessage{block(`{"type":"text","text":"a"}`), block(`{"type":"x"}`)}}},
			llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: "1", Name: "f", Content: `a{"type":"x"}`}}},
			"",
		},
		{
			"data in a result",
			message.Message{Type: message.TypeTool, ToolCallID: "1", Content: message.Content{Blocks: []json.RawMessage{
				block(`{"type":"text","text":"see "}`), block(`{"type":"image","base64":"AQ=="}`), block(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AQ=="}}`), block(`{"type":"audio","data":"AQ=="}`),
				block(`{"type":"file","base64":"AQ=="}`), block(`{"type":"video","base64":"AQ=="}`), block(`{"type":"document","source":{"type":"base64","data":"AQ=="}}`), block(`{"type":"document","source":{"type":"text","data":" words"}}`),
			}}},
			llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: "1", Content: "see [image][image][audio][file][video][document] words"}}},
			"",
		},
		{"a role", message.Message{Type: message.TypeChat, Role: "user", Content: message.Text("x")}, llms.TextParts(llms.ChatMessageTypeHuman, "x"), ""},
		{"a removal", message.Remove("x"), llms.MessageContent{}, "cannot be sent to a model"},
		{"an unknown block", message.Message{Type: message.TypeHuman, Content: message.Content{Blocks: []json.RawMessage{block(`{"type":"hologram"}`)}}}, llms.MessageContent{}, `type "hologram"`},
		{"no data", message.Message{Type: message.TypeHuman, Content: message.Content{Blocks: []json.RawMessage{block(`{"type":"audio"}`)}}}, llms.MessageContent{}, "has no data"},
		{"bad data", message.Message{Type: message.TypeHuman, Content: message.Content{Blocks: []json.RawMessage{block(`{"type":"image","base64":"?"}`)}}}, llms.MessageContent{}, "not valid base64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			system := message.System("s")
			got, err := forModel(&system, []message.Message{tt.m})
			if err == nil {
				for _, p := range got[1].Parts {
					if rich, ok := p.(llm.Part); ok && rich.Broken != "" {
						_, err = rich.Without(rich.Broken)
					}
				}
			}
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, llms.TextParts(llms.ChatMessageTypeSystem, "s"), got[0])
			if diff := cmp.Diff(tt.want, llm.Plain(got)[1]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Numbers of LangChain's count_tokens_approximately for the same messages.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	call := message.AI("", message.ToolCall{Name: "search", Args: json.RawMessage(`{"q":"x"}`), ID: "call_1"})
	talk := []message.Message{message.System("Be brief."), message.Human("Hello there"), message.AI("w0 w1 w2").WithName("agent"), call, message.Tool("Found it", "call_1")}
	require.Equal(t, 56, countTokens(talk, charsPerToken, false))
	talk[2].Usage, talk[2].ResponseMetadata = &message.Usage{TotalTokens: 200}, json.RawMessage(`{"model_provider":"openai"}`)
	talk[3].ResponseMetadata = talk[2].ResponseMetadata
	require.Equal(t, 70, countTokens(talk, charsPerToken, true))
	image := message.Message{Type: message.TypeHuman, Content: message.Content{Blocks: []json.RawMessage{block(`{"type":"image_url","image_url":{"url":"u"}}`), block(`{"type":"text","text":"abcd"}`)}}}
	require.Equal(t, 91, countTokens([]message.Message{image}, claudeChars, false))
}

// What is trimmed for a summary begins with the instructions and the summary before it, and leaves the conversation as it is.
func TestTrim(t *testing.T) {
	t.Parallel()
	system, earlier := message.System("Be brief."), message.Human("Here is a summary: the person is Ann")
	earlier.AdditionalKwargs = block(`{"lc_source":"summarization"}`)
	for heads, head := range map[string][]message.Message{"none": nil, "system": {system}, "summary": {earlier}, "both": {system, earlier}} {
		for turns := range 8 {
			for _, size := range []int{1, 40, 4000} {
				all := append([]message.Message(nil), head...)
				for i := range turns {
					all = append(all, message.Human(fmt.Sprintf("%d %s", i, strings.Repeat("x", size))), message.AI("ok"))
				}
				if len(all) == 0 {
					continue
				}
				before := append([]message.Message(nil), all...)
				s := &summarizer{SummarizationOptions: SummarizationOptions{MaxTokens: 60}}
				got := s.trim(all)
				require.Equal(t, before, all, "%s, %d turns of %d", heads, turns, size)
				require.GreaterOrEqual(t, len(got), len(head))
				require.Equal(t, head, append([]message.Message(nil), got[:len(head)]...), "%s, %d turns of %d", heads, turns, size)
				if turns > 0 {
					require.Contains(t, got[len(got)-1].Text(), "ok", "the end is kept")
				}
			}
		}
	}
}

func TestTranscript(t *testing.T) {
	t.Parallel()
	call := message.AI("a < b", message.ToolCall{Name: "s", Args: json.RawMessage(`{"q":"x"}`), ID: `c"1`})
	require.Equal(t, "<message type=\"human\">1 &amp; 2</message>\n<message type=\"ai\">\n  <content>a &lt; b</content>\n  <tool_call id=\"c&quot;1\" name=\"s\">{\"q\": \"x\"}</tool_call>\n</message>",
		transcript([]message.Message{message.Human("1 & 2"), call}))
}
