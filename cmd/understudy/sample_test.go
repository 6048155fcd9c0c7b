package main

import (
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
)

// A sample of a schema is one of its values.
func TestSampleInput(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		``:     `{}`,
		`null`: `{}`,
		`{}`:   `{"messages": [{"role": "user", "content": "What is 6 times 7?"}]}`,
		`{"type":"object","properties":{"messages":{"type":"array"},"n":{"type":"integer"}}}`:                                                                                                                                     `{"messages": [{"role": "user", "content": "What is 6 times 7?"}]}`,
		`{"type":"object","properties":{"messages":{"items":{"oneOf":[{"$ref":"#/$defs/M"}]},"type":"array"},"language":{"type":"string"}},"required":["messages","language"],"$defs":{"M":{"type":"object"}}}`:                   "",
		`{"type":"object","properties":{"question":{"type":"string"},"limit":{"type":"integer","minimum":3},"ok":{"type":"boolean"}},"required":["question","limit"]}`:                                                            `{"limit":3,"question":"What is 6 times 7?"}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"$defs":{"A":{"type":"object","properties":{"b":{"enum":["x","y"]},"c":{"anyOf":[{"type":"null"},{"type":"number"}]}},"required":["b","c"]}}}`: `{"a":{"b":"x","c":1.5}}`,
		`{"$ref":"#/$defs/In","$defs":{"In":{"type":"object","properties":{"days":{"type":"array","items":{"type":"string","format":"date"}},"next":{"anyOf":[{"$ref":"#/$defs/In"},{"type":"null"}]}},"required":["days"]}}}`:    `{"days":["2026-01-01"]}`,
		`{"type":"object","properties":{"self":{"$ref":"#/$defs/S"}},"required":["self"],"$defs":{"S":{"type":"object","properties":{"self":{"anyOf":[{"$ref":"#/$defs/S"},{"type":"null"}]}},"required":["self"]}}}`:             "",
		`{"type":"object","properties":{"z":{"type":"string","default":"zed"},"a":{"type":["null","integer"]},"b":{"type":"null"}}}`:                                                                                              `{"a":1,"z":"zed"}`,
		`{"type":"object","properties":{"l":{"$ref":"#/$defs/L"}},"$defs":{"L":{"$ref":"#/$defs/L"}}}`:                                                                                                                            "?",
		`{"type":"string"}`: `"some text"`,
	} {
		got := sampleInput(json.RawMessage(schema))
		require.True(t, json.Valid(got), "%s: %s", schema, got)
		if want != "" && want != "?" {
			require.Equal(t, want, string(got), schema)
		}
		if want == "?" || want == "{}" {
			continue // a schema that nothing can fit, or none
		}
		var s jsonschema.Schema
		require.NoError(t, json.Unmarshal([]byte(schema), &s))
		r, err := s.Resolve(nil)
		require.NoError(t, err)
		var v any
		require.NoError(t, json.Unmarshal(got, &v))
		require.NoError(t, r.Validate(v), "%s: %s", schema, got)
	}
}

// Any schema makes JSON.
func FuzzSampleInput(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"$ref":"#"}}}`))
	f.Add([]byte(`{"allOf":[{"anyOf":[{"$ref":"#"}]}]}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		if json.Valid(schema) && !json.Valid(sampleInput(schema)) {
			t.Fatalf("%s", sampleInput(schema))
		}
	})
}
