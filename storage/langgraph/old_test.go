package langgraph

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/internal/jsonplus"
	"understudy/transfer"
)

func pack(t testing.TB, text string) []byte {
	t.Helper()
	out, err := jsonplus.AppendValue(nil, []byte(text))
	require.NoError(t, err)
	return out
}

// whole is a checkpoint in one piece with a value of each kind.
func whole(t testing.TB) []byte {
	t.Helper()
	values := msgp.AppendMapHeader(nil, 8)
	for name, value := range map[string][]byte{
		"text": pack(t, `"hi"`), "none": pack(t, "null"), "list": pack(t, `[1,{"a":2}]`), "nul": pack(t, `"a\u0000b"`), "infinite": msgp.AppendFloat64(nil, math.Inf(1)),
		"number": pack(t, "1.5"), "unversioned": pack(t, `{"x":1}`), "delta": delta(pack(t, `[7]`)),
	} {
		values = append(msgp.AppendString(values, name), value...)
	}
	out := msgp.AppendMapHeader(nil, 6)
	out = msgp.AppendInt(msgp.AppendString(out, "v"), 3)
	out = msgp.AppendString(msgp.AppendString(out, "id"), "c1")
	out = append(msgp.AppendString(out, "channel_values"), values...)
	out = append(msgp.AppendString(out, "channel_versions"), pack(t, `{"text":1,"none":2,"list":10,"nul":2,"infinite":2,"number":2,"delta":2}`)...)
	out = append(msgp.AppendString(out, "versions_seen"), pack(t, `{"node":{"list":9}}`)...)
	return append(append(msgp.AppendString(out, "pending_sends"), 0x91), jsonplus.AppendSend(nil, "node", pack(t, "1"))...)
}

func delta(value []byte) []byte { return append([]byte{0xc7, byte(len(value)), 7}, value...) }

func TestSplit(t *testing.T) {
	t.Parallel()
	step := &transfer.Step{}
	step.ID = "c1"
	require.NoError(t, split(step, whole(t)))
	const two, ten = "00000000000000000000000000000002.0000000000000000", "00000000000000000000000000000010.0000000000000000"
	assert.JSONEq(t, `{"v":3,"id":"c1","channel_values":{"text":"hi","none":null,"number":1.5,"delta":true},
		"channel_versions":{"text":"00000000000000000000000000000001.0000000000000000","none":"`+two+`","list":"`+ten+`","nul":"`+two+`","infinite":"`+two+`","number":"`+two+`",
			"delta":"`+two+`","unversioned":"00000000000000000000000000000000.0000000000000000","__pregel_tasks":"`+ten+`-c1"},
		"versions_seen":{"node":{"list":"00000000000000000000000000000009.0000000000000000"}}}`, string(step.Data))
	got := map[string]string{}
	for _, b := range step.Blobs {
		text, err := jsonplus.AppendJSON(nil, b.Type, b.Data)
		require.NoError(t, err)
		got[b.Channel+"@"+strings.TrimLeft(b.Version, "0")] = string(text)
	}
	assert.Equal(t, map[string]string{
		"list@10.0000000000000000": `[1,{"a":2}]`, "nul@2.0000000000000000": `"a` + "\ufffd" + `b"`, "infinite@2.0000000000000000": "null", "delta@2.0000000000000000": "[7]",
		"unversioned@.0000000000000000": `{"x":1}`, "__pregel_tasks@10.0000000000000000-c1": `[{"node":"node","args":1}]`,
	}, got)
	assert.True(t, hasSends(step))
}

func TestSplitJSONKeepsEnvelopes(t *testing.T) {
	t.Parallel()
	step := &transfer.Step{}
	require.NoError(t, splitJSON(step, []byte(`{"v":1,"channel_values":{"a":{"lc":2,"type":"constructor","id":["uuid","UUID"],"args":["12345678123456781234567812345678"]},"b":"x"},
		"channel_versions":{"a":"1.x","b":"2.x"}}`)))
	require.Len(t, step.Blobs, 1)
	assert.Equal(t, jsonplus.TypeJSON, step.Blobs[0].Type)
	text, err := jsonplus.AppendJSON(nil, step.Blobs[0].Type, step.Blobs[0].Data)
	require.NoError(t, err)
	assert.Equal(t, `"12345678-1234-5678-1234-567812345678"`, string(text))
	assert.Equal(t, "x", gjson.GetBytes(step.Data, "channel_values.b").String())

	step = &transfer.Step{}
	require.NoError(t, splitJSON(step, []byte(`{"v":1,"channel_values":{"a":[NaN],"b":NaN},"channel_versions":{"a":"1","b":"1"}}`)))
	assert.Len(t, step.Blobs, 1) // NaN is null by now
}

func TestJoinIsTheWayBack(t *testing.T) {
	t.Parallel()
	step := &transfer.Step{}
	step.ID = "c1"
	require.NoError(t, split(step, whole(t)))
	out, err := join(step)
	require.NoError(t, err)
	again := &transfer.Step{}
	again.ID = "c1"
	require.NoError(t, split(again, out))
	assert.JSONEq(t, string(step.Data), string(again.Data))
	if diff := cmp.Diff(byChannel(step.Blobs), byChannel(again.Blobs)); diff != "" {
		t.Error(diff)
	}
	step.Blobs = append(step.Blobs, checkpointer.Blob{Channel: "p", Version: "1", Type: "pickle", Data: []byte("x")})
	_, err = join(step)
	assert.ErrorContains(t, err, "export to Postgres")
}

func byChannel(blobs []checkpointer.Blob) map[string]checkpointer.Blob {
	out := map[string]checkpointer.Blob{}
	for _, b := range blobs {
		out[b.Channel] = b
	}
	return out
}

func TestCleanJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "{}", "null": "{}", `{"step": 1}`: `{"step": 1}`, `{"n": NaN}`: `{"n":null}`,
		`{"writes":{"m":{"lc":1,"type":"constructor","id":["langchain","schema","messages","HumanMessage"],"kwargs":{"content":"x","type":"human"}}}}`: `{"writes":{"m":` +
			`{"content":"x","additional_kwargs":{},"response_metadata":{},"type":"human","name":null,"id":null}}}`,
	} {
		got, err := cleanJSON([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, string(got))
	}
	_, err := cleanJSON([]byte(`{`))
	assert.Error(t, err)
}

func FuzzSplit(f *testing.F) {
	f.Add(whole(f), false)
	f.Add([]byte(`{"v":1,"channel_values":{"a":[NaN]},"channel_versions":{"a":1},"pending_sends":[1]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		step := &transfer.Step{}
		step.ID = "c"
		var err error
		if text {
			err = splitJSON(step, data)
		} else {
			err = split(step, data)
		}
		if err != nil {
			return
		}
		if !json.Valid(step.Data) {
			t.Fatalf("%q gives %q", data, step.Data)
		}
		out, err := join(step)
		if err != nil {
			return
		}
		if err := split(&transfer.Step{}, out); err != nil {
			t.Fatalf("%q: what was joined cannot be split: %v", data, err)
		}
	})
}
