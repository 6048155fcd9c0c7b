package jsonplus

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAppendStateGivesWhatPythonWrote: the corpus is JsonPlusSerializer's own, so what JSON carries comes back byte for byte.
func TestAppendStateGivesWhatPythonWrote(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"true", "false", "zero", "int", "negative", "int_32", "int_min", "int_max", "uint_max", "big_int", "float", "float_whole", "float_large",
		"float_1e16", "float_1e15", "float_small", "float_1e-5", "float_least", "text", "text_empty", "text_escapes", "text_long", "text_32",
		"list", "tuple", "list_long", "dict", "dict_long",
		"human", "human_named", "human_blocks", "ai", "ai_full", "ai_blocks", "system", "tool", "remove", "remove_all", "chat", "function",
		"ai_chunk", "ai_chunk_last", "human_chunk", "system_chunk", "tool_chunk", "chat_chunk", "function_chunk", "conversation",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := named(t, name)
			got, err := AppendState([]byte("before"), []byte(r.JSON))
			require.NoError(t, err)
			assert.Equal(t, append([]byte("before"), r.Data...), got)
			if IsMessage([]byte(r.JSON)) {
				got, err = AppendMessage(nil, []byte(r.JSON))
				require.NoError(t, err)
				assert.Equal(t, r.Data, got)
			}
		})
	}
}

func TestAppendSendAndInterrupt(t *testing.T) {
	t.Parallel()
	arg, err := AppendValue(nil, []byte(`{"k":1}`))
	require.NoError(t, err)
	assert.Equal(t, named(t, "send").Data, AppendSend(nil, "somewhere", arg))
	value, err := AppendValue(nil, []byte(`{"q":"?"}`))
	require.NoError(t, err)
	assert.Equal(t, named(t, "interrupt").Data, AppendInterrupt([]byte{0x91}, value, strings.Repeat("0", 32), nil))
}

func TestAppendCommandAndOverwrite(t *testing.T) {
	t.Parallel()
	pack := func(text string) []byte {
		b, err := AppendValue(nil, []byte(text))
		require.NoError(t, err)
		return b
	}
	command, overwrite := named(t, "command").Data, named(t, "overwrite").Data
	assert.Equal(t, command, AppendCommand(nil, pack(`{"a":1}`), pack("null"), pack(`"b"`)))
	assert.Equal(t, overwrite, AppendOverwrite(nil, pack("[1]")))

	arguments, ok := Arguments(command, "Command")
	require.True(t, ok)
	text, err := AppendJSON(nil, TypeMsgpack, arguments)
	require.NoError(t, err)
	assert.JSONEq(t, `{"graph":null,"update":{"a":1},"resume":null,"goto":"b"}`, string(text))
	for _, other := range [][]byte{nil, pack(`{"a":1}`), overwrite, named(t, "send").Data, command[:len(command)-1], append(slices.Clone(command), 0xc0)} {
		_, ok := Arguments(other, "Command")
		assert.False(t, ok, "%x", other)
	}
}

func TestMappingsStayMappings(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"x"}}`,
		`{"role":"user","content":"hi"}`,
		`{"type":"human","content":"hi"}`,
		`{"type":"text","content":"x","additional_kwargs":{},"response_metadata":{}}`,
		`{"type":"human","content":"x","additional_kwargs":1,"response_metadata":{}}`,
		`{"lc":2,"type":"constructor","id":["uuid","UUID"],"args":["1"]}`,
	} {
		got, err := AppendState(nil, []byte(text))
		require.NoError(t, err)
		assert.Equal(t, byte(0x80), got[0]&0xf0, text)
		back, err := AppendJSON(nil, TypeMsgpack, got)
		require.NoError(t, err)
		assert.Equal(t, text, string(back))
	}
	// A message keeps its mappings: what a tool returned is not made an object because it looks like a message.
	inner := `{"content":"x","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":null}`
	outer := `{"content":"","additional_kwargs":{},"response_metadata":{},"type":"tool","name":null,"id":null,"tool_call_id":"c","artifact":` + inner + `,"status":"success"}`
	got, err := AppendState(nil, []byte(`{"deep":[`+outer+`,`+inner+`]}`))
	require.NoError(t, err)
	assert.Equal(t, 1, bytes.Count(got, []byte("HumanMessage")))
	assert.Equal(t, 1, bytes.Count(got, []byte("ToolMessage")))
}

func TestAppendMessageFillsIn(t *testing.T) {
	t.Parallel()
	got, err := AppendMessage(nil, []byte(` { "type" : "ai", "extra": [1], "content": null, "id": "a" } `))
	require.NoError(t, err)
	back, err := AppendJSON(nil, TypeMsgpack, got)
	require.NoError(t, err)
	assert.Equal(t, `{"content":"","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,"id":"a","tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null,"extra":[1]}`, string(back))
}

func TestEncodersRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"nothing", ``, ErrNotJSON},
		{"half", `{"a":`, ErrNotJSON},
		{"NaN", `NaN`, ErrNotJSON},
		{"two", `1 2`, ErrNotJSON},
		{"no text", "\"\xff\"", ErrNotJSON},
		{"deep lists", strings.Repeat("[", 2000) + strings.Repeat("]", 2000), ErrDepth},
		{"deep maps", strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000), ErrDepth},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range []func([]byte, []byte) ([]byte, error){AppendValue, AppendState} {
				got, err := f([]byte("kept"), []byte(c.text))
				require.ErrorIs(t, err, c.want)
				assert.Equal(t, "kept", string(got))
			}
		})
	}
	for _, text := range []string{`[]`, `1`, `{}`, `{"type":"marker"}`, `{"type":3}`, `{"type":"tool","content":""}`, `{"type":"chat","content":""}`, `{"type":"function","content":""}`} {
		_, err := AppendMessage(nil, []byte(text))
		assert.ErrorIs(t, err, ErrNotMessage, text)
	}
}

func FuzzAppendState(f *testing.F) {
	for _, r := range corpus(f) {
		f.Add([]byte(r.JSON))
	}
	f.Add([]byte(`{"messages":[{"type":"tool","content":"","additional_kwargs":{},"response_metadata":{}}],"n":-123456789012345678901234567890}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		packed, err := AppendValue(nil, text)
		if err == nil {
			back, err := AppendJSON(nil, TypeMsgpack, packed)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if want, ok := decoded(text); ok {
				if got, _ := decoded(back); !reflect.DeepEqual(want, got) {
					t.Errorf("%q became %q", text, back)
				}
			}
		}
		if packed, err := AppendState(nil, text); err == nil {
			if _, err := AppendJSON(nil, TypeMsgpack, packed); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		} else if !errors.Is(err, ErrNotJSON) && !errors.Is(err, ErrDepth) && !errors.Is(err, ErrNotMessage) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// decoded returns a JSON value with numbers by value. ok is false when msgpack's floats or text do not hold it: 1e999, lone surrogates, NUL.
func decoded(text []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil || bytes.Contains(text, []byte(`\u`)) || bytes.IndexByte(text, 0) >= 0 {
		return nil, false
	}
	ok = true
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		case json.Number:
			if i, isInt := new(big.Int).SetString(v.String(), 10); isInt {
				return i.String()
			}
			f, err := v.Float64()
			ok = ok && err == nil
			return f
		}
		return v
	}
	return walk(v), ok
}
