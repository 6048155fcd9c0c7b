package message_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"understudy/graph/message"
)

func TestConvert(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"text", `"hi"`, `{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":null}`},
		{
			"pair", `["assistant","hi"]`,
			`{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":null,"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null}`,
		},
		{
			"type", `{"type":"human","content":"hi","id":"1"}`,
			`{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":"1"}`,
		},
		{
			"unknown fields", `{"role":"user","content":[{"type":"text","text":"a"}],"x":1,"additional_kwargs":{"y":2}}`,
			`{"content":[{"type":"text","text":"a"}],"additional_kwargs":{"x":1,"y":2},"response_metadata":{},"type":"human","name":null,"id":null}`,
		},
		{
			"tool", `{"type":"tool","content":"r","tool_call_id":"c","status":"error","artifact":{"a":1}}`,
			`{"content":"r","additional_kwargs":{},"response_metadata":{},"type":"tool","name":null,"id":null,"tool_call_id":"c","artifact":{"a":1},"status":"error"}`,
		},
		{
			"developer", `{"role":"developer","content":"be"}`,
			`{"content":"be","additional_kwargs":{"__openai_role__":"developer"},"response_metadata":{},"type":"system","name":null,"id":null}`,
		},
		{
			"calls of OpenAI", `{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\": 1}"}}]}`,
			`{"content":"","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":null,"tool_calls":[{"name":"f","args":{"a":1},"id":"c","type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":null}`,
		},
		{
			"remove", `{"type":"remove","content":"","id":"7"}`,
			`{"content":"","additional_kwargs":{},"response_metadata":{},"type":"remove","name":null,"id":"7"}`,
		},
		{
			"envelope", `{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"hi","id":"1"}}`,
			`{"content":"hi","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":"1"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := message.Convert([]byte(tt.in))
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(m.AppendJSON(nil)))
			again, err := message.Parse([]byte(tt.want))
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(again.AppendJSON(nil)))
		})
	}
	for _, bad := range []string{
		`1`, `{`, `{"content":"x"}`, `{"role":"user"}`, `{"role":"king","content":""}`, `["user"]`, `[1,"x"]`, `null`,
		`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}`,
	} {
		_, err := message.Convert([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	zero, one := 0, 1
	chunks := []message.Message{
		message.AIChunk("He").WithID("lc_run--1"),
		message.AIChunk("llo").WithID("lc_run--1"),
		message.AIChunk("").WithCallChunks(
			message.ToolCallChunk{Name: "f", ID: "a", Index: &zero}, message.ToolCallChunk{Name: "g", ID: "b", Index: &one}),
		message.AIChunk("").WithCallChunks(message.ToolCallChunk{Args: `{"y": "`, Index: &one}),
		message.AIChunk("").WithCallChunks(message.ToolCallChunk{Args: `{"x":1}`, Index: &zero}),
		{
			Type: message.TypeAIChunk, Usage: &message.Usage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5, InputDetails: json.RawMessage(`{"cache_read":1}`)},
			ResponseMetadata: json.RawMessage(`{"finish_reason":"stop"}`), Last: true,
		},
	}
	sum := chunks[0]
	for _, c := range chunks[1:] {
		var err error
		sum, err = message.Add(sum, c)
		require.NoError(t, err)
	}
	assert.Equal(t, `{"content":"Hello","additional_kwargs":{},"response_metadata":{"finish_reason":"stop"},"type":"ai","name":null,"id":"lc_run--1",`+
		`"tool_calls":[{"name":"f","args":{"x":1},"id":"a","type":"tool_call"},{"name":"g","args":{"y":""},"id":"b","type":"tool_call"}],`+
		`"invalid_tool_calls":[],"usage_metadata":{"input_tokens":3,"output_tokens":2,"total_tokens":5,"input_token_details":{"cache_read":1}}}`,
		string(sum.Whole().AppendJSON(nil)))
}

func TestPartialJSON(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{`{"a": 1`, `{"a":1}`},
		{`{"a": "b`, `{"a":"b"}`},
		{`{"a": 1, "b`, `{"a":1}`},
		{`{"a": [1, {"b": tr`, `{"a":[1,{}]}`},
		{`{"a": "x\`, `{"a":"x"}`},
		{"{\"a\": \"x\ny", `{"a":"x\ny"}`},
		{`{]`, `null`},
		{`{"a":1}`, `{"a":1}`},
	}
	for _, tt := range tests {
		got, ok := message.PartialJSON(tt.in)
		assert.True(t, ok, tt.in)
		assert.Equal(t, tt.want, string(got), tt.in)
	}
	_, ok := message.PartialJSON("x")
	assert.False(t, ok)
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`"hi"`, `["user","x"]`, `{"type":"ai","content":[],"additional_kwargs":{},"response_metadata":{}}`,
		`{"role":"assistant","content":"x","tool_calls":[{"name":"f","args":{}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := message.Parse(raw)
		if err != nil {
			return
		}
		text := m.AppendJSON(nil)
		require.True(t, json.Valid(text), "%s", text)
		again, err := message.Parse(text)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again.AppendJSON(nil)))
	})
}

// Arguments that are nested deeply within a text, where the check of a request's depth does not see them, are an error: going down as deep
// as they are would end the process.
func TestDeepArguments(t *testing.T) {
	t.Parallel()
	_, err := message.Convert([]byte(`{"role":"assistant","content":"","tool_calls":[{"id":"a","function":{"name":"f","arguments":"` + strings.Repeat("[", 8<<20) + `"}}]}`))
	require.ErrorContains(t, err, "not valid JSON")
}

// What is hidden from people is for models, unless it is an answer that a person gave on a card.
func TestForModel(t *testing.T) {
	t.Parallel()
	for kwargs, want := range map[string]bool{
		``: false, `null`: false, `{}`: false, `{"hide_from_ui":false}`: false, `{"hide_from_ui":true}`: true, `{"hide_from_ui":true,"human_input_response":{"value":"red"}}`: false,
	} {
		require.Equal(t, want, message.Message{Type: message.TypeHuman, AdditionalKwargs: json.RawMessage(kwargs)}.HiddenFromPeople(), kwargs)
	}
}
