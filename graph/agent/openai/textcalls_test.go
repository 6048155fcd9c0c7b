package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tmc/langchaingo/llms"

	"understudy/graph/agent/llm"
)

func TestTextCalls(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Hello":                        "Hello",
		"Look <tool_call> no name":     "Look <tool_call> no name",
		"a <tool_call>x</tool_call> b": "a <tool_call>x</tool_call> b",
		"Look\n<tool_call> <function=ls> <parameter=path>/a b</parameter> <parameter=n>3</parameter> </function> </tool_call>\n":                                                                                             `Look|ls {"path":"/a b","n":3}`,
		"<tool_call><function=a></function></tool_call><tool_call>\n<function=b>\n<parameter=x>\n[1, {\"k\":true}]\n</parameter>\n<parameter=y>[not json</parameter><parameter=z>007</parameter>\n</function>\n</tool_call>": `|a {}|b {"x":[1, {"k":true}],"y":"[not json","z":"007"}`,
		"<tool_call><function=w><parameter=todos>\n[\n  {\n    \"a\": 1\n  }\n]\n</parameter><parameter=o>{\n}</parameter><parameter=s>[\n]\nx</parameter><parameter=t>true\n1</parameter></function></tool_call>":           "|w {\"todos\":[\n  {\n    \"a\": 1\n  }\n],\"o\":{\n},\"s\":\"[\\n]\\nx\",\"t\":\"true\\n1\"}",
	} {
		rest, calls := textCalls(text)
		got := rest
		for i, c := range calls {
			require.Equal(t, i, c.Index)
			require.NotEmpty(t, c.ID)
			require.True(t, json.Valid([]byte(c.Arguments)))
			got += "|" + c.Name + " " + c.Arguments
		}
		require.Equal(t, want, got, text)
	}
}

// However a text is cut into pieces, its line breaks come out the same.
func TestNewlines(t *testing.T) {
	t.Parallel()
	const text = "a\\nb\\\\n ```x\\ny``` ``\\n` c\\ ```\\n"
	want := (&newlines{}).read(text, true)
	require.Equal(t, "a\nb\\\n ```x\\ny``` ``\n` c\\ ```\\n", want)
	for i := range len(text) {
		for j := i; j < len(text); j++ {
			l := &newlines{}
			require.Equal(t, want, l.read(text[:i], false)+l.read(text[i:j], false)+l.read(text[j:], true), "%d %d", i, j)
		}
	}
}

// A conversation with MindIE: what it gets has no form of its own for tools, and its answer is whole with tools, streamed without.
func TestMindIE(t *testing.T) {
	t.Parallel()
	var asked gjson.Result
	answer := `{"choices":[{"index":0,"message":{"role":"assistant","content":"Look\\nhere <tool_call> <function=ls> <parameter=path>/a</parameter> </function> </tool_call>"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asked = gjson.ParseBytes(body); asked.Get("stream").Bool() {
			fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"Hel\\"}}]}`+"\n\n"+`data: {"choices":[{"index":0,"delta":{"content":"nlo"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			return
		}
		fmt.Fprint(w, answer)
	}))
	defer srv.Close()
	c, err := New(Options{Model: "m", BaseURL: srv.URL, Quirks: Quirks{TextCalls: true}, Retries: -1})
	require.NoError(t, err)
	said := func(tools bool, messages ...llms.MessageContent) *llm.Answer {
		t.Helper()
		var options []llms.CallOption
		if tools {
			options = append(options, llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "ls", Parameters: json.RawMessage(`{"type":"object"}`)}}}))
		}
		a := &llm.Answer{}
		for chunk, err := range c.StreamChunks(t.Context(), messages, options...) {
			require.NoError(t, err)
			a.Add(chunk)
		}
		return a
	}
	hi := llms.TextParts(llms.ChatMessageTypeHuman, "hi")
	a := said(true, hi)
	require.Equal(t, "Look\nhere", a.Content.String())
	require.Equal(t, "tool_calls", a.FinishReason)
	require.Equal(t, 3, a.Usage.Total)
	require.Len(t, a.ToolCalls, 1)
	require.Equal(t, `ls {"path":"/a"}`, a.ToolCalls[0].Name+" "+a.ToolCalls[0].Arguments.String())
	require.False(t, asked.Get("stream_options").Exists())

	image := llm.Part{ContentPart: llms.ImageURLContent{URL: "https://x.test"}, Instead: "[image]"}
	a = said(false, hi, llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{llms.TextContent{Text: "Look"}, llms.ToolCall{ID: "c", FunctionCall: &llms.FunctionCall{Name: "ls", Arguments: `{"path":"/a","n":3}`}}}},
		llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: "c", Content: "b.txt"}}}, llms.MessageContent{Role: llms.ChatMessageTypeHuman, Parts: []llms.ContentPart{image}})
	require.Equal(t, "Hel\nlo", a.Content.String())
	require.Equal(t, "stop", a.FinishReason)
	var sent []string
	for _, m := range asked.Get("messages").Array() {
		require.Len(t, m.Map(), 2)
		sent = append(sent, m.Get("role").Str+": "+m.Get("content").Str)
	}
	require.Equal(t, "user: hi|assistant: Look\n<tool_call> <function=ls> <parameter=path>/a</parameter> <parameter=n>3</parameter> </function> </tool_call>|user: <tool_response>\nb.txt\n</tool_response>|user: [image]", strings.Join(sent, "|"))

	answer = `{"choices":[{"index":0,"message":{"role":"assistant","content":"","tool_calls":[{"id":"c1","function":{"name":"ls","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`
	a = said(true, hi) // newer servers have OpenAI's form
	require.Len(t, a.ToolCalls, 1)
	require.Equal(t, "c1", a.ToolCalls[0].ID)
}

// What is not text is replaced by the text that older messages have for it, or is an error: never left out in silence.
func TestTextOfOtherParts(t *testing.T) {
	t.Parallel()
	text := func(role llms.ChatMessageType, parts ...llms.ContentPart) (string, error) {
		out, err := asText([]llms.MessageContent{{Role: role, Parts: parts}})
		if err != nil {
			return "", err
		}
		require.Len(t, out, 1)
		require.Len(t, out[0].Parts, 1)
		return out[0].Parts[0].(llms.TextContent).Text, nil
	}
	say := llms.TextContent{Text: "say"}
	document := json.RawMessage(`{"type":"document","source":{"type":"text","data":"words"}}`)
	for name, part := range map[string]llm.Part{
		"an image":     {ContentPart: llms.ImageURLContent{URL: "https://x.test"}, Block: json.RawMessage(`{"type":"image_url"}`)},
		"data":         {ContentPart: llms.BinaryContent{MIMEType: "application/pdf", Data: []byte("x")}, Block: json.RawMessage(`{"type":"file"}`)},
		"a block":      {Block: json.RawMessage(`{"type":"input_audio"}`)},
		"a broken one": {Block: document, Broken: "it is broken"},
	} {
		for _, role := range []llms.ChatMessageType{llms.ChatMessageTypeHuman, llms.ChatMessageTypeSystem} {
			_, err := text(role, say, part)
			var unsendable *llm.Unsendable
			require.ErrorAs(t, err, &unsendable, name)
			require.Contains(t, err.Error(), cmp.Or(part.Broken, "MindIE takes text only"))
			part := part
			part.Instead = "[left out]"
			got, err := text(role, say, part, say)
			require.NoError(t, err, name)
			require.Equal(t, "say\n[left out]\nsay", got, name)
		}
	}
	_, err := text(llms.ChatMessageTypeHuman, llms.ImageURLContent{URL: "https://x.test"})
	require.ErrorContains(t, err, "MindIE takes text only")
	_, err = text(llms.ChatMessageTypeAI, llms.ToolCall{ID: "c"})
	require.ErrorContains(t, err, "has no function")
	got, err := text(llms.ChatMessageTypeHuman, say, llm.Part{Block: document, Name: "a.txt"})
	require.NoError(t, err)
	require.Equal(t, "say\na.txt:\nwords", got)
	got, err = text(llms.ChatMessageTypeAI, say, llm.Part{Block: json.RawMessage(`{"type":"thinking"}`), Optional: true}, llm.Part{Reasoning: "r"}, llms.ImageURLContent{URL: "https://x.test"})
	require.NoError(t, err)
	require.Equal(t, "say", got)
}
