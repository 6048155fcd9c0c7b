package compat

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

func TestPrepare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"compact stays", `{"a":[1,2.0,"x y"]}`, `{"a":[1,2.0,"x y"]}`},
		{"spaces go, but not in text", " {\n\t\"a b\" : [ 1 , \"x \\n y\" ] }\r\n", `{"a b":[1,"x \n y"]}`},
		{"huge integers keep their digits", `{"a": 123456789012345678901234567890}`, `{"a":123456789012345678901234567890}`},
		{"an escaped nul", `["a\u0000b","\\u0000"]`, `["a\ufffdb","\\u0000"]`},
		{"a surrogate pair", `["\ud83d\ude00"]`, `["\ud83d\ude00"]`},
		{"quotes in text", `{ "a\"}" : "\\" }`, `{"a\"}":"\\"}`},
		{"a lone high surrogate", `["\ud83d"]`, ""},
		{"a lone low surrogate", `["\ude00"]`, ""},
		{"a high surrogate and something else", `["\ud83d\u0041"]`, ""},
		{"broken UTF-8", "[\"\xff\"]", ""},
		{"a raw nul", "[\"\x00\"]", ""},
		{"trailing garbage", `{} x`, ""},
		{"two values", `{}{}`, ""},
		{"nothing", ``, ""},
		{"NaN", `[NaN]`, ""},
		{"a mark of byte order", "\ufeff{}", ""},
		{"as deep as may be", strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth), strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)},
		{"deeper than parsers go", strings.Repeat("[", parseDepth+1) + strings.Repeat("]", parseDepth+1), ""},
		{"too large for a float", `{"a":1e400}`, ""},
		{"too small for a float", `[-1e400]`, ""},
		{"an exponent of its own size", `[1e99999999999999999999]`, ""},
		{"just too large", `[1.8E+308]`, ""},
		{"the largest", `[1.7976931348623157e308,-1.7976931348623157E+308]`, `[1.7976931348623157e308,-1.7976931348623157E+308]`},
		{"an integer that no float holds", `[` + strings.Repeat("9", 310) + `]`, ""},
		{"an integer of thousands of digits", `{"a":{"b":[-` + strings.Repeat("1", 5000) + `]}}`, ""},
		{"an integer that a float holds", `[1` + strings.Repeat("0", 307) + `]`, `[1` + strings.Repeat("0", 307) + `]`},
		{"one digit more", `[ -1` + strings.Repeat("0", 308) + `, 7]`, `[-1e+308,7]`},
		{"thousands of decimals", `[0.` + strings.Repeat("1", 5000) + `,2]`, `[1.111111111111111e-01,2]`},
		{"next to nothing", `{"a": -1e-99999, "1e-99999": 1e-300}`, `{"a":-0.0,"1e-99999":1e-300}`},
		{"large numbers in text", `["1e400","` + strings.Repeat("9", 5000) + `"]`, `["1e400","` + strings.Repeat("9", 5000) + `"]`},
		{"much deeper and open", strings.Repeat("[", 1<<20), ""},
		{"brackets in text", `["` + strings.Repeat("[", 5000) + `"]`, `["` + strings.Repeat("[", 5000) + `"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Prepare([]byte(c.in))
			if c.want == "" {
				require.ErrorIs(t, err, ErrJSON)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

// Bodies that are too deep are refused for that, unless they are no JSON at all.
func TestDepth(t *testing.T) {
	t.Parallel()
	_, err := Prepare([]byte(`{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`))
	require.ErrorIs(t, err, ErrDepth)
	_, err = Prepare([]byte(strings.Repeat("[", MaxDepth+1)))
	require.ErrorIs(t, err, ErrJSON)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	newRun := func(body string) error { _, err := NewRun([]byte(body), RunForm{}); return err }
	waited := func(body string) error { _, err := NewRun([]byte(body), RunForm{Followed: true}); return err }
	stateless := func(body string) error { _, err := NewRun([]byte(body), RunForm{Stateless: true}); return err }
	batch := func(body string) error { _, err := NewRuns([]byte(body)); return err }
	search := func(body string) error { _, _, err := SearchThreads([]byte(body)); return err }
	put := func(body string) error { _, err := PutItem([]byte(body)); return err }
	create := func(body string) error { _, err := NewAssistant([]byte(body)); return err }
	cancel := func(body string) error { _, err := CancelRuns([]byte(body)); return err }
	newCron := func(body string) error { _, err := NewCron([]byte(body), ""); return err }
	patchCron := func(body string) error { _, err := PatchCron([]byte(body)); return err }
	history := func(body string) error { _, err := History("t", []byte(body)); return err }
	for _, c := range []struct {
		name   string
		decode func(string) error
		body   string
		kind   fault.Kind
		text   string
	}{
		{"not an object", newRun, `[]`, fault.Unprocessable, "[] is not of type \"object\"\n\nFailed validating \"type\" in schema\n\nOn instance:\n    []"},
		{"required", waited, `{}`, fault.Unprocessable, "\"assistant_id\" is a required property\n\nFailed validating \"required\" in schema[\"components\"][\"schemas\"][\"RunCreateStateful\"]\n\nOn instance:\n    {}"},
		{"on_disconnect", waited, `{"assistant_id":"a","on_disconnect":"x"}`, fault.Unprocessable, "\"x\" is not one of \"cancel\" or \"continue\"\n\nFailed validating \"enum\" in schema[\"allOf\"][1][\"properties\"][\"on_disconnect\"]\n\nOn instance[\"on_disconnect\"]:\n    \"x\""},
		{"nested", newRun, `{"assistant_id":"a","config":{"recursion_limit":"x"}}`, fault.Unprocessable, "\"x\" is not of type \"integer\"\n\nFailed validating \"type\" in schema[\"properties\"][\"config\"][\"properties\"][\"recursion_limit\"]\n\nOn instance[\"config\"][\"recursion_limit\"]:\n    \"x\""},
		{"webhook", newRun, `{"assistant_id":"a","webhook":""}`, fault.Unprocessable, "\"\" is shorter than 1 character\n\nFailed validating \"minLength\""},
		{"three of an enum", newRun, `{"assistant_id":"a","durability":"x"}`, fault.Unprocessable, `"x" is not one of "sync", "async" or "exit"`},
		{"checkpoint id beside another", newRun, `{"assistant_id":"a","checkpoint_id":"x","checkpoint":{"checkpoint_id":"00000000-0000-4000-8000-000000000000"}}`, fault.Unprocessable, "Invalid checkpoint ID"},
		{"checkpoint id", newRun, `{"assistant_id":"a","checkpoint_id":"x"}`, fault.Unprocessable, "Invalid checkpoint ID"},
		{"goto", newRun, `{"assistant_id":"a","command":{"goto":{"node":"x"}}}`, fault.Unprocessable, `{"goto":{"node":"x"}} is not valid under any of the schemas listed in the 'anyOf' keyword`},
		{"both", newRun, `{"assistant_id":"a","context":{"a":1},"config":{"configurable":{"b":1}}}`, fault.Invalid, "Cannot specify both configurable and context."},
		{"resume without a thread", stateless, `{"assistant_id":"a","command":{"resume":1}}`, fault.Invalid, "You must provide a thread_id when resuming."},
		{"empty batch", batch, `[]`, fault.Unprocessable, "[] has less than 1 item\n\nFailed validating \"minItems\" in schema\n\nOn instance:\n    []"},
		{"batch of one bad", batch, `[{"input":{}}]`, fault.Unprocessable, "\"assistant_id\" is a required property\n\nFailed validating \"required\" in schema[\"components\"][\"schemas\"][\"RunCreateStateless\"]\n\nOn instance[0]:\n    {\"input\":{}}"},
		{"extract", search, `{"extract":{"a":"nowhere.x"}}`, fault.Unprocessable, "Extract path 'nowhere.x' must start with one of: config, interrupts, metadata, values"},
		{"extract type", search, `{"extract":{"a":3}}`, fault.Unprocessable, "3 is not of type \"string\"\n\nFailed validating \"type\" in schema[\"properties\"][\"extract\"][\"additionalProperties\"]\n\nOn instance[\"extract\"][\"a\"]:\n    3"},
		{"too many to extract", search, `{"extract":{"a":"values","b":"values","c":"values","d":"values","e":"values","f":"values","g":"values","h":"values","i":"values","j":"values","k":"values"}}`, fault.Unprocessable, ""},
		{"select", search, `{"select":["colour"]}`, fault.Unprocessable, "\"colour\" is not one of \"thread_id\", \"created_at\" or 7 other candidates\n\nFailed validating \"enum\" in schema[\"properties\"][\"select\"][\"items\"]\n\nOn instance[\"select\"][0]:\n    \"colour\""},
		{"a fraction", search, `{"limit":1.5}`, fault.Unprocessable, `1.5 is not of type "integer"`},
		{"beyond any integer", search, `{"limit":1e400}`, fault.Unprocessable, ""},
		{"null", search, `{"limit":null}`, fault.Unprocessable, `null is not of type "integer"`},
		{"ids", search, `{"ids":["xyz"]}`, fault.Invalid, "Invalid thread ID xyz"},
		{"two types", put, `{"namespace":["n"],"key":"k","value":{},"ttl":"x"}`, fault.Unprocessable, `"x" is not of types "null", "number"`},
		{"index", put, `{"namespace":["n"],"key":"k","value":{},"index":true}`, fault.Unprocessable, `true is not valid under any of the schemas listed in the 'oneOf' keyword`},
		{"assistant id", create, `{"graph_id":"g","assistant_id":"xyz"}`, fault.Unprocessable, "Invalid assistant ID: must be a UUID"},
		{"a UUID in braces", create, `{"graph_id":"g","assistant_id":"{00000000-0000-4000-8000-000000000000}"}`, fault.Unprocessable, "Invalid assistant ID: must be a UUID"},
		{"cancel nothing", cancel, `{}`, fault.Unprocessable, "{} is not valid under any of the schemas listed in the 'oneOf' keyword\n\nFailed validating \"oneOf\" in schema\n\nOn instance:\n    {}"},
		{"cancel twice", cancel, `{"status":"all","thread_id":"00000000-0000-4000-8000-000000000000"}`, fault.Unprocessable, "When providing a 'status', 'thread_id' and 'run_ids' must be omitted."},
		{"cancel run", cancel, `{"thread_id":"00000000-0000-4000-8000-000000000000","run_ids":["x"]}`, fault.Unprocessable, "Invalid run ID: must be a UUID"},
		{"empty cron patch", patchCron, `{}`, fault.Invalid, "Request body cannot be empty"},
		{"end time", patchCron, `{"end_time":"soon"}`, fault.Unprocessable, "Invalid end_time: 'soon'."},
		{"before", history, `{"before":3}`, fault.Unprocessable, ""},
		{"before null", history, `{"before":null}`, fault.Unprocessable, ""},
		{"before empty", history, `{"before":""}`, fault.Unprocessable, ""},
		{"cron without an end", newCron, `{"assistant_id":"a","schedule":"* * * * *","end_time":null}`, fault.Unprocessable, `null is not of type "string"`},
		{"before configurable", history, `{"before":{"configurable":3}}`, fault.Unprocessable, ""},
		{"a long instance is cut", newRun, `{"assistant_id":"a","config":"` + strings.Repeat("é", 10_000) + `"}`, fault.Unprocessable, "\"éé"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.decode(c.body)
			require.Error(t, err)
			require.Equal(t, c.kind, fault.KindOf(err))
			require.True(t, strings.HasPrefix(err.Error(), c.text), err.Error())
			require.Less(t, len(err.Error()), 3*shown)
		})
	}
}

func TestNewRun(t *testing.T) {
	t.Parallel()
	defaults := run.Request{
		AssistantID: "a", Strategy: run.Enqueue, IfNotExists: "reject", OnDisconnect: "continue", OnCompletion: "delete",
		Arguments: run.Arguments{Arguments: graph.Arguments{Modes: []string{"values"}, Durability: "async"}},
	}
	change := func(f func(*run.Request)) run.Request { r := defaults; f(&r); return r }
	const cp = "1ef00000-0000-6000-8000-000000000000"
	for _, c := range []struct {
		name, body string
		form       RunForm
		want       run.Request
	}{
		{"defaults", `{"assistant_id":"a"}`, RunForm{}, defaults},
		{"unknown members, nulls and an empty list of modes", `{"assistant_id":"a","zz":1,"input":null,"command":null,"stream_mode":[]}`, RunForm{}, defaults},
		{"the last of two keys counts", `{"assistant_id":"b","assistant_id":"a"}`, RunForm{}, defaults},
		{
			"also in what is kept", `{"assistant_id":"a","metadata":{"a":1,"b":2,"a":3},"config":{"configurable":{"x":1,"x":2},"tags":[],"tags":["t"]}}`,
			RunForm{},
			change(func(r *run.Request) {
				r.Metadata = json.RawMessage(`{"a":3,"b":2}`)
				r.Config = json.RawMessage(`{"configurable":{"x":2},"tags":["t"]}`)
			}),
		},
		{"modes", `{"assistant_id":"a","stream_mode":"updates"}`, RunForm{}, change(func(r *run.Request) { r.Modes = []string{"updates"} })},
		{
			"payloads stay bytes", `{"assistant_id":"a","input":{"b":1.0,"a":[1e5,12345678901234567890]}}`,
			RunForm{},
			change(func(r *run.Request) { r.Input = json.RawMessage(`{"b":1.0,"a":[1e5,12345678901234567890]}`) }),
		},
		{"delay", `{"assistant_id":"a","after_seconds":1.5}`, RunForm{}, change(func(r *run.Request) { r.After = 1500 * time.Millisecond })},
		{"a delay before now", `{"assistant_id":"a","after_seconds":-5}`, RunForm{}, defaults},
		{"a delay for ever", `{"assistant_id":"a","after_seconds":1e10}`, RunForm{}, change(func(r *run.Request) { r.After = longestDelay })},
		{
			"checkpoint", `{"assistant_id":"a","checkpoint":{"thread_id":"t","checkpoint_ns":"n:1","checkpoint_id":"` + cp + `","checkpoint_map":{"":"x"}}}`,
			RunForm{},
			change(func(r *run.Request) {
				r.CheckpointNS, r.CheckpointID, r.CheckpointMap = "n:1", cp, json.RawMessage(`{"":"x"}`)
			}),
		},
		{"checkpoint_id", `{"assistant_id":"a","checkpoint_id":"` + cp + `"}`, RunForm{}, change(func(r *run.Request) { r.CheckpointID = cp })},
		{"old durability", `{"assistant_id":"a","checkpoint_during":false}`, RunForm{}, change(func(r *run.Request) { r.Durability = "exit" })},
		{"both durabilities", `{"assistant_id":"a","checkpoint_during":false,"durability":"sync"}`, RunForm{}, change(func(r *run.Request) { r.Durability = "sync" })},
		{"nobody is there to leave", `{"assistant_id":"a","on_disconnect":"cancel"}`, RunForm{}, defaults},
		{"somebody is", `{"assistant_id":"a","on_disconnect":"cancel"}`, RunForm{Followed: true}, change(func(r *run.Request) { r.OnDisconnect = "cancel" })},
		{"stateless runs have no siblings", `{"assistant_id":"a","multitask_strategy":"reject","on_completion":"keep"}`, RunForm{Stateless: true}, change(func(r *run.Request) { r.OnCompletion = "keep" })},
		{
			"reserved names go", `{"assistant_id":"a","metadata":{"run_id":1,"mine":2,"cron_id":3},"config":{"tags":["x"],"configurable":{"a":1,"langgraph_auth_user":2,"__pregel_x":3},"x":1}}`,
			RunForm{},
			change(func(r *run.Request) {
				r.Metadata = json.RawMessage(`{"mine":2}`)
				r.Config = json.RawMessage(`{"tags":["x"],"configurable":{"a":1},"x":1}`)
			}),
		},
		{
			"reserved names go from context", `{"assistant_id":"a","context":{"langgraph_request_id":1,"u":{"langgraph_request_id":2}}}`,
			RunForm{},
			change(func(r *run.Request) { r.Context = json.RawMessage(`{"u":{"langgraph_request_id":2}}`) }),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewRun([]byte(c.body), c.form)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// NUL is refused in the labels of namespaces, and becomes U+FFFD in all other text.
func TestNULOfItems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		decode func([]byte) error
		body   string
	}{
		{func(b []byte) error { _, err := PutItem(b); return err }, `{ "key": "k", "value": {}, "namespace": [ "a", "%s" ] }`},
		{func(b []byte) error { _, _, err := DeleteItem(b); return err }, `{"key":"k","namespace":["%s"]}`},
		{func(b []byte) error { _, _, err := SearchItems(b); return err }, `{"filter":{"x":"\u0000"},"namespace_prefix":["%s","b"]}`},
		{func(b []byte) error { _, err := SearchNamespaces(b); return err }, `{"prefix":["%s"]}`},
		{func(b []byte) error { _, err := SearchNamespaces(b); return err }, `{"prefix":["a"],"suffix":["b","%s"]}`},
	} {
		for label, refused := range map[string]bool{`a`: false, `\u0000`: true, `a\\\u0000b`: true, `a\\u0000`: false, `\ufffd`: false} {
			err := tt.decode([]byte(strings.Replace(tt.body, "%s", label, 1)))
			require.Equal(t, refused, fault.Is(err, fault.Invalid), "%s in %s: %v", label, tt.body, err)
			require.Equal(t, refused, err != nil)
		}
	}
	i, err := PutItem([]byte(`{"namespace":["a"],"key":"k\u0000","value":{"x\u0000":["\u0000"]}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"k\uFFFD", `{"x\ufffd":["\ufffd"]}`}, []string{i.Key, string(i.Value)})
}

// Any delay is one that a clock can show, or refused.
func TestDelays(t *testing.T) {
	t.Parallel()
	for _, sign := range []float64{1, -1} {
		for seconds := 1e-300; !math.IsInf(seconds, 0); seconds *= 7 {
			got, err := NewRun(fmt.Appendf(nil, `{"assistant_id":"a","after_seconds":%g}`, sign*seconds), RunForm{})
			if seconds > endOfTime {
				require.True(t, fault.Is(err, fault.Unprocessable), "%g: %v", seconds, err)
				continue
			}
			require.NoError(t, err)
			want := min(seconds, longestDelay.Seconds())
			if sign < 0 {
				want = 0
			}
			require.InDelta(t, want, got.After.Seconds(), 1e-9+want/1e9)
		}
	}
}

func TestHistoryBefore(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"before":"x"}`, `{"before":{"checkpoint_id":"x","thread_id":"t"}}`, `{"before":{"configurable":{"checkpoint_id":"x"}}}`} {
		q, err := History("t", []byte(body))
		require.NoError(t, err)
		require.Equal(t, id.Checkpoint("x"), q.Before, body)
		require.Equal(t, 1, q.Limit)
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "event: values\r\ndata: {\"n\":1}\r\n", string(AppendFrame(nil, "values", []byte(`{"n":1}`))))
	require.Equal(t, "event: xdata: y\r\ndata: 1\r\n", string(AppendFrame(nil, "x\r\ndata: y\x00", []byte(`1`))))
	require.Equal(t, "event: x\r\ndata: [1,\r\ndata: 2,\r\ndata: 3]\r\n", string(AppendFrame(nil, "x", []byte("[1,\r\n2,\n3]"))))
	r := &bridge.Record{Offset: bridge.Offset{MS: 17, N: 3}, Event: "e", Data: []byte("1")}
	require.Equal(t, "event: e\r\ndata: 1\r\nid: 17-3\r\n\r\n", string(AppendRecord(nil, r, true)))
	require.Equal(t, "event: e\r\ndata: 1\r\n\r\n", string(AppendRecord(nil, r, false)))
	r.Ephemeral = true
	require.Equal(t, "event: e\r\ndata: 1\r\n\r\n", string(AppendRecord(nil, r, true)))
	require.Equal(t, "event: e\r\ndata: 1\r\n\r\n", string(AppendRecord(nil, &bridge.Record{Event: "e", Data: []byte("1")}, true)), "it has no place")
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	at := func(ms, n int64) *bridge.Offset { return &bridge.Offset{MS: ms, N: n} }
	for _, c := range []struct {
		id     string
		run    *bridge.Offset
		thread *bridge.Offset
		bad    bool
	}{
		{"", nil, nil, false},
		{"-1", at(0, 0), nil, true},
		{"-", nil, at(0, 0), false},
		{"0-0", at(0, 0), at(0, 0), false},
		{"12", at(12, 0), at(12, 0), false},
		{"12-3", at(12, 3), at(12, 3), false},
		{"abc", nil, nil, true},
		{"12-", nil, nil, true},
		{"12-3-4", nil, nil, true},
		{"+1-1", nil, nil, true},
		{"99999999999999999999999-1", at(1<<63-1, 1), at(1<<63-1, 1), false},
		{"1\r\n2", nil, nil, true},
	} {
		require.Equal(t, c.run, RunOffset(c.id), c.id)
		got, err := ThreadOffset(c.id)
		require.Equal(t, c.bad, err != nil, c.id)
		require.Equal(t, c.thread, got, c.id)
	}
}

func TestAppendTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("", 3600))
	require.Equal(t, `"2026-01-02T02:04:05.678901+00:00"`, string(AppendTime(nil, at)))
	require.Equal(t, `"2026-01-02T02:04:05+00:00"`, string(AppendTime(nil, at.Truncate(time.Second))))
}

func TestQueries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ values, want []string }{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{"[]"}, nil},
		{[]string{"a", ""}, nil},
		{[]string{`["a", "b"]`}, []string{"a", "b"}},
		{[]string{"a", "b"}, []string{"a", "b"}},
		{[]string{`["a"]`, "b", `["c","d"]`}, []string{"a", "b", "c", "d"}},
		{[]string{"a,b"}, []string{"a,b"}},
		{[]string{"[oops"}, []string{"[oops"}},
	} {
		require.Equal(t, c.want, JoinModes(c.values), c.values)
	}
	modes, err := ThreadModes([]string{"run_modes,lifecycle", "state_update"})
	require.NoError(t, err)
	require.Equal(t, []string{"run_modes", "lifecycle", "state_update"}, modes)
	_, err = ThreadModes([]string{"nope"})
	require.EqualError(t, err, "Invalid stream mode: nope")
	_, err = RunColumns([]string{"run_id", "nope"})
	require.ErrorContains(t, err, "Invalid select columns: ['nope']. Expected: {'run_id', ")
	_, err = Limit("-1", "limit")
	require.EqualError(t, err, "Invalid limit -1")
	_, err = Limit("", "limit")
	require.EqualError(t, err, "invalid literal for int() with base 10: ''")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	_, err = HistoryFrom("t", new(string), "")
	require.EqualError(t, err, "Invalid limit ")
	require.Equal(t, fault.Unprocessable, fault.KindOf(err))
	minus := "-1"
	q, err := HistoryFrom("t", &minus, "")
	require.NoError(t, err)
	require.Zero(t, q.Limit)
	for s, want := range map[string]int{"": 0, "false": 0, "true": -1, "2": 2, " +2_0 ": 20} {
		n, err := XRay(s)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

// Numbers of queries are read as by Python's int. The expectations are its answers.
func TestNumbersOfQueries(t *testing.T) {
	t.Parallel()
	const none = 1 << 40
	for s, want := range map[string]int{
		"": none, " ": none, "-": none, "+": none, "_": none, "x": none, "1.5": none, "1e3": none, "0x10": none, "--1": none, "+-1": none, "- 1": none, "1 0": none,
		"1_": none, "_1": none, "1__0": none, "-_1": none, "null": none, "true": none, "[]": none,
		"0": 0, "-0": 0, "01": 1, "-1": -1, "+1": 1, " 1 ": 1, "\t1\n": 1, "1_0": 10, "-1_000": -1000, "1_0_0": 100,
		"2147483647": maxNumber, "2147483648": maxNumber, "99999999999999999999": maxNumber, "-99999999999999999999": -maxNumber,
	} {
		n, ok := number(s)
		if !ok {
			n = none
		}
		require.Equal(t, want, n, "%q", s)
	}
}

// The id in `checkpoint` wins, as it stands; `checkpoint_id` has to be a UUID and is spelled canonically.
func TestCheckpointsThatRunsBeginFrom(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`"checkpoint_id":"00000000-0000-4000-8000-00000000ABCD"`:                                    "00000000-0000-4000-8000-00000000abcd",
		`"checkpoint":{"checkpoint_id":"x"}`:                                                        "x",
		`"checkpoint":{"checkpoint_id":"x"},"checkpoint_id":"00000000-0000-4000-8000-000000000000"`: "x",
		`"checkpoint":{"checkpoint_id":""},"checkpoint_id":"00000000-0000-4000-8000-000000000000"`:  "",
		`"checkpoint":{"checkpoint_ns":""},"checkpoint_id":"00000000-0000-4000-8000-000000000000"`:  "00000000-0000-4000-8000-000000000000",
		`"checkpoint":{"checkpoint_id":"x","checkpoint_map":{"":"y"}},"checkpoint_id":null`:         "x",
		`"checkpoint":{"checkpoint_id":"y"},"checkpoint_id":""`:                                     "y",
		`"checkpoint_id":""`: "",
	} {
		req, err := NewRun([]byte(`{"assistant_id":"a",`+body+`}`), RunForm{})
		require.NoError(t, err, body)
		require.Equal(t, want, string(req.CheckpointID), body)
	}
}

func TestSchemasAreJSON(t *testing.T) {
	t.Parallel()
	for _, s := range Schemas {
		require.True(t, json.Valid(s.AppendJSON(nil, true)), s.Name)
		require.NotEmpty(t, s.Name)
	}
}

func FuzzBodies(f *testing.F) {
	for _, e := range recordings(f) {
		if len(e.body) > 0 {
			f.Add(e.body)
		}
	}
	f.Add([]byte("{\"metadata\":{\"a\":\"\xff\"}}"))
	f.Add([]byte(`{"a":"\ud800\u0000\\u0000"}`))
	decoders := []func([]byte) error{
		func(b []byte) error { _, err := NewAssistant(b); return err },
		func(b []byte) error { _, err := PatchAssistant(b); return err },
		func(b []byte) error { _, _, err := SearchAssistants(b); return err },
		func(b []byte) error { _, err := NewThread(b); return err },
		func(b []byte) error { _, err := PatchThread(b); return err },
		func(b []byte) error { _, _, err := SearchThreads(b); return err },
		func(b []byte) error { _, _, err := UpdateState("t", b); return err },
		func(b []byte) error { _, err := History("t", b); return err },
		func(b []byte) error { _, _, _, err := StateAt("t", b); return err },
		func(b []byte) error { _, err := NewRun(b, RunForm{}); return err },
		func(b []byte) error { _, err := NewRun(b, RunForm{Stateless: true, Followed: true}); return err },
		func(b []byte) error { _, err := NewRuns(b); return err },
		func(b []byte) error { _, err := CancelRuns(b); return err },
		func(b []byte) error { _, err := NewCron(b, ""); return err },
		func(b []byte) error { _, err := PatchCron(b); return err },
		func(b []byte) error { _, _, err := SearchCrons(b); return err },
		func(b []byte) error { _, err := PutItem(b); return err },
		func(b []byte) error { _, _, err := SearchItems(b); return err },
		func(b []byte) error { _, err := SearchNamespaces(b); return err },
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		prepared, err := Prepare(append([]byte{}, body...))
		if err == nil {
			require.True(t, json.Valid(prepared), "%q", prepared)
			again, err := Prepare(append([]byte{}, prepared...))
			require.NoError(t, err)
			require.Equal(t, string(prepared), string(again))
		}
		for _, d := range decoders {
			if err := d(append([]byte{}, body...)); err != nil {
				k := fault.KindOf(err)
				require.True(t, k == fault.Unprocessable || k == fault.Invalid, "%v", err)
				require.True(t, json.Valid(AppendDetail(nil, err.Error())))
			}
		}
	})
}

func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"", "-1", "0-0", "17-3", "x", "1-1-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if o := RunOffset(s); o != nil {
			require.True(t, o.MS >= 0 && o.N >= 0)
			again := RunOffset(string(AppendOffset(nil, *o)))
			require.Equal(t, o, again)
		}
		_, _ = ThreadOffset(s)
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("values", "10")
	f.Add(`["a","b"]`, "-1")
	f.Fuzz(func(t *testing.T, a, b string) {
		_ = JoinModes([]string{a, b})
		_, _ = ThreadModes([]string{a, b})
		_, _ = RunColumns([]string{a, b})
		_, _ = XRay(a)
		if n, err := Limit(b, "limit"); err == nil {
			require.GreaterOrEqual(t, n, 0)
		}
		if q, err := HistoryFrom("t", &b, a); err == nil {
			require.GreaterOrEqual(t, q.Limit, 0)
		}
		_, _ = ThreadID(a)
	})
}

func FuzzFrame(f *testing.F) {
	f.Add("values", []byte(`{"n":1}`))
	f.Add("a\r\nb", []byte("1\n2"))
	f.Fuzz(func(t *testing.T, event string, data []byte) {
		frame := string(AppendFrame(nil, event, data))
		lines := strings.Split(strings.TrimSuffix(frame, "\r\n"), "\r\n")
		require.True(t, strings.HasPrefix(lines[0], "event: "))
		for _, l := range lines[1:] {
			require.True(t, strings.HasPrefix(l, "data: "), "%q", frame)
			require.NotContains(t, l, "\n")
			require.NotContains(t, l, "\r")
		}
		require.NotContains(t, lines[0], "\n")
	})
}

// IM channels name the thread in configurable in addition to a context. The server knows it anyway.
func TestConfigurableThatOnlyPlacesARunGoesWithAContext(t *testing.T) {
	t.Parallel()
	req, err := NewRun([]byte(`{"assistant_id":"a","context":{"a":1},"config":{"tags":["t"],"configurable":{"thread_id":"t","checkpoint_ns":""}}}`), RunForm{Followed: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(req.Context))
	require.JSONEq(t, `{"tags":["t"],"configurable":{}}`, string(req.Config))
}
