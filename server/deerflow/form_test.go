package deerflow

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/deerflow/settings"
)

func TestAmounts(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]*settings.Amount{
		`{}`:                                     nil,
		`{"keep":null}`:                          nil,
		`{"keep":{"type":"messages","value":2}}`: {Type: "messages", Value: 2},
		`{"keep":{"type":"tokens","value":1000}}`:      {Type: "tokens", Value: 1000},
		`{"keep":{"type":"fraction","value":0.25}}`:    {Type: "fraction", Value: 0.25},
		`{"keep":{"type":"fraction","value":1}}`:       {Type: "fraction", Value: 1},
		`{"keep":{"type":"messages","value":1e9}}`:     {Type: "messages", Value: 1e9},
		`{"keep":{"value":2,"type":"messages","x":1}}`: {Type: "messages", Value: 2},
	} {
		f, err := Body([]byte(body))
		require.NoError(t, err)
		require.Equal(t, want, f.Amount("keep"), body)
		require.NoError(t, f.Err(), body)
	}
	for _, body := range []string{
		`{"keep":3}`, `{"keep":{}}`, `{"keep":{"type":"messages"}}`, `{"keep":{"type":"words","value":1}}`, `{"keep":{"type":"messages","value":"2"}}`,
		`{"keep":{"type":"messages","value":0}}`, `{"keep":{"type":"messages","value":1.5}}`, `{"keep":{"type":"tokens","value":1e300}}`, `{"keep":{"type":"fraction","value":0}}`,
		`{"keep":{"type":"fraction","value":1.1}}`, `{"keep":{"type":"fraction","value":-1}}`,
	} {
		f, err := Body([]byte(body))
		require.NoError(t, err)
		f.Amount("keep")
		require.Error(t, f.Err(), body)
	}
}

// Numbers, booleans and texts are read as the Gateway's models do.
func TestLaxFields(t *testing.T) {
	t.Parallel()
	kind := func(f *Form) string {
		if len(f.problems) == 0 {
			return ""
		}
		return f.problems[0].Type
	}
	for value, want := range map[string]string{
		`5`: "", `"5"`: "", `5.0`: "", `5e0`: "", `true`: "", `" 5 "`: "", `"+5"`: "", `"5.0"`: "", `"0_5"`: "", `"-5"`: "greater_than_equal", `0`: "greater_than_equal", `11`: "less_than_equal",
		`99999999999999999999`: "less_than_equal", `-99999999999999999999`: "greater_than_equal", `1e300`: "less_than_equal", `null`: "int_type", `[]`: "int_type", `{}`: "int_type", `"x"`: "int_parsing",
		`""`: "int_parsing", `"5.5"`: "int_parsing", `"__5"`: "int_parsing", `5.5`: "int_from_float", `1e-3`: "int_from_float",
	} {
		f, err := Body([]byte(`{"n":` + value + `}`))
		require.NoError(t, err)
		n := f.Int("n", 7, 1, 10)
		require.Equal(t, want, kind(f), value)
		if want != "" {
			require.Equal(t, 7, n, value)
		}
	}
	for value, want := range map[string]string{
		`true`: "", `"YES"`: "", `"t"`: "", `1`: "", `1.0`: "", `2`: "bool_parsing", `"maybe"`: "bool_parsing", `""`: "bool_parsing", `null`: "bool_type", `[1]`: "bool_type",
	} {
		f, err := Body([]byte(`{"b":` + value + `}`))
		require.NoError(t, err)
		require.Equal(t, want == "", f.Bool("b", false), value)
		require.Equal(t, want, kind(f), value)
	}
	for value, want := range map[string]string{
		`0.5`: "", `"0.5"`: "", `true`: "", `2`: "less_than_equal", `"-1"`: "greater_than_equal", `"NaN"`: "float_parsing", `"x"`: "float_parsing", `null`: "float_type", `{}`: "float_type",
	} {
		f, err := Body([]byte(`{"x":` + value + `}`))
		require.NoError(t, err)
		require.Equal(t, want == "", f.NumberOr("x", 0, 1) != nil, value)
		require.Equal(t, want, kind(f), value)
	}
}

// A body that is no JSON object names the place at which it stops being one.
func TestBodies(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"": `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`, "null": `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`,
		"[1]":           `[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":[1]}]`,
		`{"a":}`:        `[{"type":"json_invalid","loc":["body",5],"msg":"JSON decode error","input":{},"ctx":{"error":"invalid character '}' looking for beginning of value"}}]`,
		"{":             `[{"type":"json_invalid","loc":["body",1],"msg":"JSON decode error","input":{},"ctx":{"error":"unexpected end of JSON input"}}]`,
		"{\"\xff\": 1}": `[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error","input":{},"ctx":{"error":"invalid UTF-8"}}]`,
	} {
		_, err := Body([]byte(body))
		var p Problems
		require.ErrorAs(t, err, &p, body)
		require.JSONEq(t, want, string(p.JSON()), body)
	}
}

// disable_clarification is not stored; non_interactive, which it becomes, is.
func TestUnattendedRuns(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{}`: `{"user_id":"u"}`, `{"disable_clarification":false}`: `{"user_id":"u"}`, `{"disable_clarification":true}`: `{"non_interactive":true,"user_id":"u"}`,
	} {
		r, err := ReadRun([]byte(`{"assistant_id":"lead_agent","context":`+given+`}`), &settings.Settings{}, "u", "t")
		require.NoError(t, err)
		require.JSONEq(t, want, gjson.GetBytes(r.LangGraph, "context").Raw, given)
	}
}
