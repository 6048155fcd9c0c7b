package protocol_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/protocol"
)

const someRun = id.Run("00000000-0000-4000-8000-000000000001")

// oneRun returns the records of a run: pairs of event and data.
func oneRun(pairs ...string) (rows, []*bridge.Record) {
	row := &run.Run{ID: someRun, Graph: "g", Status: run.Success, StartedAt: time.UnixMilli(1_700_000_000_000)}
	row.Kwargs.Resumable = true
	var records []*bridge.Record
	add := func(kind bridge.Kind, event, data string) {
		records = append(records, &bridge.Record{Offset: bridge.Offset{MS: 1_700_000_000_000, N: int64(len(records))}, Run: someRun, Kind: kind, Event: event, Data: []byte(data), Kept: true})
	}
	add(bridge.Data, "metadata", `{"attempt":1}`)
	for i := 0; i < len(pairs); i += 2 {
		add(bridge.Data, pairs[i], pairs[i+1])
	}
	add(bridge.Terminal, "metadata", `{}`)
	return rows{someRun: row}, records
}

func chunkOf(id, node, fields string) string {
	return fmt.Sprintf(`[{"type":"AIMessageChunk","id":%q,%s},{"langgraph_node":%q,"langgraph_checkpoint_ns":"%s:t"}]`, id, fields, node, node)
}

// said returns the data of the events of messages, a line each.
func said(t *testing.T, pairs ...string) []string {
	t.Helper()
	source, records := oneRun(pairs...)
	var lines []string
	for _, e := range project(t, source, protocol.Filter{Channels: []string{"messages"}}, records) {
		line, err := json.Marshal(e.Params.Data)
		require.NoError(t, err)
		lines = append(lines, e.Params.Node+" "+string(line))
	}
	return lines
}

// Clients assign events to messages by namespace and node, or by id: each has both, so that models that run in parallel do not mix.
func TestParallelModels(t *testing.T) {
	t.Parallel()
	source, records := oneRun(
		"messages", chunkOf("a", "one", `"content":"A"`), "messages", chunkOf("b", "two", `"content":"B"`),
		"messages", chunkOf("a", "one", `"content":"a","chunk_position":"last"`), "messages", chunkOf("b", "two", `"content":"b","chunk_position":"last"`))
	texts, nodes := map[string]string{}, map[string]string{}
	for _, e := range project(t, source, everything, records) {
		if e.Method != "messages" {
			continue
		}
		name := e.Params.Data["id"].(string)
		nodes[name] += e.Params.Node + " "
		if delta, ok := e.Params.Data["delta"].(map[string]any); ok {
			texts[name] += delta["text"].(string)
		}
	}
	require.Equal(t, map[string]string{"a": "Aa", "b": "Bb"}, texts)
	require.Equal(t, map[string]string{"a": strings.Repeat("one ", 6), "b": strings.Repeat("two ", 6)}, nodes)
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		items []string
		want  []string
	}{
		{
			"reasoning, then text, with usage over several chunks",
			[]string{
				chunkOf("m", "n", `"content":[{"type":"thinking","thinking":"h","index":0}],"usage_metadata":{"input_tokens":2,"output_tokens":0,"total_tokens":2},"response_metadata":{"model_provider":"p"}`),
				chunkOf("m", "n", `"content":[{"type":"thinking","thinking":"m","signature":"s","index":0}]`),
				chunkOf("m", "n", `"content":[{"type":"text","text":"\u00fc\"","index":1}]`),
				chunkOf("m", "n", `"content":"","usage_metadata":{"input_tokens":0,"output_tokens":3,"total_tokens":3,"output_token_details":{"reasoning":1}},"response_metadata":{"stop":"end"},"chunk_position":"last"`),
				chunkOf("m", "n", `"content":"late"`),
			},
			[]string{
				`n {"event":"message-start","id":"m","metadata":{"provider":"p"},"role":"ai"}`,
				`n {"content":{"reasoning":"","type":"reasoning"},"event":"content-block-start","id":"m","index":0}`,
				`n {"delta":{"reasoning":"h","type":"reasoning-delta"},"event":"content-block-delta","id":"m","index":0}`,
				`n {"delta":{"reasoning":"m","type":"reasoning-delta"},"event":"content-block-delta","id":"m","index":0}`,
				`n {"content":{"text":"","type":"text"},"event":"content-block-start","id":"m","index":1}`,
				`n {"delta":{"text":"ü\"","type":"text-delta"},"event":"content-block-delta","id":"m","index":1}`,
				`n {"content":{"extras":{"signature":"s"},"index":0,"reasoning":"hm","type":"reasoning"},"event":"content-block-finish","id":"m","index":0}`,
				`n {"content":{"index":1,"text":"ü\"","type":"text"},"event":"content-block-finish","id":"m","index":1}`,
				`n {"event":"message-finish","id":"m","metadata":{"model_provider":"p","stop":"end"},"usage":{"input_tokens":2,"output_token_details":{"reasoning":1},"output_tokens":3,"total_tokens":5}}`,
			},
		},
		{
			"two calls of tools at once, one with arguments that are no JSON",
			[]string{
				chunkOf("m", "n", `"content":"","tool_call_chunks":[{"name":"f","args":"","id":"1","index":0,"type":"tool_call_chunk"},{"name":"g","args":"{\"x\"","id":"2","index":1,"type":"tool_call_chunk"}]`),
				chunkOf("m", "n", `"content":"","tool_call_chunks":[{"name":null,"args":"{\"a\": [1]}","id":null,"index":0,"type":"tool_call_chunk"}]`),
			},
			[]string{
				`n {"event":"message-start","id":"m","role":"ai"}`,
				`n {"content":{"args":"","id":"1","index":0,"name":"f","type":"tool_call_chunk"},"event":"content-block-start","id":"m","index":0}`,
				`n {"content":{"args":"","id":"2","index":1,"name":"g","type":"tool_call_chunk"},"event":"content-block-start","id":"m","index":1}`,
				`n {"delta":{"args":"{\"x\"","type":"tool-call-delta"},"event":"content-block-delta","id":"m","index":1}`,
				`n {"delta":{"args":"{\"a\": [1]}","type":"tool-call-delta"},"event":"content-block-delta","id":"m","index":0}`,
				`n {"content":{"args":{"a":[1]},"id":"1","name":"f","type":"tool_call"},"event":"content-block-finish","id":"m","index":0}`,
				`n {"content":{"args":"{\"x\"","error":"Failed to parse tool call arguments as JSON","id":"2","name":"g","type":"invalid_tool_call"},"event":"content-block-finish","id":"m","index":1}`,
				`n {"event":"message-finish","id":"m"}`,
			},
		},
		{
			"a whole message; messages of people and tools are part of the state only",
			[]string{
				`[{"type":"human","id":"h","content":"q"},{"langgraph_node":"n"}]`, `[{"type":"tool","id":"t","content":"r"},{"langgraph_node":"n"}]`,
				`[{"type":"ai","id":"m","content":"w","tool_calls":[{"name":"f","args":{"a":1},"id":"1","type":"tool_call"}],"usage_metadata":null},{"langgraph_node":"n"}]`,
			},
			[]string{
				`n {"event":"message-start","id":"m","role":"ai"}`,
				`n {"content":{"text":"","type":"text"},"event":"content-block-start","id":"m","index":0}`,
				`n {"delta":{"text":"w","type":"text-delta"},"event":"content-block-delta","id":"m","index":0}`,
				`n {"content":{"args":{},"id":"1","name":"f","type":"tool_call"},"event":"content-block-start","id":"m","index":1}`,
				`n {"content":{"text":"w","type":"text"},"event":"content-block-finish","id":"m","index":0}`,
				`n {"content":{"args":{"a":1},"id":"1","name":"f","type":"tool_call"},"event":"content-block-finish","id":"m","index":1}`,
				`n {"event":"message-finish","id":"m"}`,
			},
		},
		{
			"an image in OpenAI's form",
			[]string{chunkOf("m", "n", `"content":[{"type":"image_url","image_url":{"url":"u"},"index":2}],"chunk_position":"last"`)},
			[]string{
				`n {"event":"message-start","id":"m","role":"ai"}`,
				`n {"content":{"index":2,"type":"image","url":"u"},"event":"content-block-start","id":"m","index":0}`,
				`n {"content":{"index":2,"type":"image","url":"u"},"event":"content-block-finish","id":"m","index":0}`,
				`n {"event":"message-finish","id":"m"}`,
			},
		},
		{"what is malformed is left out", []string{`[]`, `[1,2]`, `{}`, `[{"type":"AIMessageChunk"}]`, `7`}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var pairs []string
			for _, item := range tt.items {
				pairs = append(pairs, "messages", item)
			}
			require.Equal(t, tt.want, said(t, pairs...))
		})
	}
}

// A tool call id may have any character; it is one level of the namespace.
func TestToolCallNamespace(t *testing.T) {
	t.Parallel()
	source, records := oneRun("tools|child:1", `{"event":"tool-finished","tool_call_id":"a|b\"","output":{"type":"tool","id":"x","content":[{"type":"text","text":"1"},"2"]}}`)
	seen := 0
	for _, e := range project(t, source, protocol.Filter{Channels: []string{"messages"}, Namespaces: [][]string{{"child", "tools"}}}, records) {
		require.Equal(t, []string{"child:1", `tools:a|b"`}, e.Params.Namespace)
		if content, ok := e.Params.Data["content"].(map[string]any); ok && e.Params.Data["event"] == "content-block-finish" {
			require.Equal(t, "12", content["text"])
		}
		seen++
	}
	require.Equal(t, 5, seen)
}

// The next attempt of a run begins its subgraphs anew, and the one before leaves nothing open.
func TestAttempts(t *testing.T) {
	t.Parallel()
	const task = `{"id":"1","name":"n","input":{}}`
	source, records := oneRun("tasks|child:1", task, "messages|child:1", chunkOf("m", "n", `"content":"a"`), "metadata", `{"attempt":2}`,
		"tasks|child:1", task, "messages|child:1", chunkOf("m2", "n", `"content":"b"`), "tasks", `{"id":"1","error":null,"result":{},"interrupts":[]}`)
	var got []string
	for _, e := range project(t, source, protocol.Filter{Channels: []string{"lifecycle", "messages"}}, records) {
		got = append(got, fmt.Sprintf("%s%v", e.Params.Data["event"], e.Params.Namespace))
	}
	require.Equal(t, strings.Fields(`running[] started[child:1] message-start[child:1] content-block-start[child:1] content-block-delta[child:1] content-block-finish[child:1]
		message-finish[child:1] interrupted[child:1] started[child:1] message-start[child:1] content-block-start[child:1] content-block-delta[child:1] content-block-finish[child:1]
		message-finish[child:1] completed[child:1] completed[]`), got)
}

// A run that is not kept is seen by those who are there. Who comes later has its events under the same ids. Numbers stay below those of the next run, however far
// the offsets of records are ahead of the time; and who resumes within the run misses none of what comes.
func TestNumbersOfRunsThatAreNotKept(t *testing.T) {
	t.Parallel()
	source, records := oneRun("values", `{"n":1}`, "values", `{"n":2}`, "custom", "1", "values", `{"n":3}`)
	source[someRun].Kwargs.Resumable = false
	for i, rec := range records {
		rec.Kept, rec.Offset = false, bridge.Offset{MS: 1_700_000_090_000 + int64(i)}
	}
	whole := project(t, source, everything, records)
	later := project(t, source, everything, records[3:])
	require.Equal(t, "running", later[0].Params.Data["event"])
	ids := func(events []event) (out []string) {
		for _, e := range events {
			out = append(out, e.EventID)
		}
		return out
	}
	require.Equal(t, ids(whole)[len(whole)-2:], ids(later)[len(later)-2:])
	began := source[someRun].StartedAt.UnixMicro()
	for i, e := range whole[:len(whole)-1] {
		require.Equal(t, began+int64(i)+1, e.Seq)
	}
	require.LessOrEqual(t, whole[len(whole)-1].Seq, max(source[someRun].EndedAt.UnixMicro(), began+int64(len(whole))))

	since := everything
	since.Since = whole[2].Seq
	p := protocol.New(source, since)
	p.Await(since.Since)
	n := 0
	for _, rec := range records[3:] {
		events, err := p.Add(t.Context(), rec)
		require.NoError(t, err)
		n += len(events)
	}
	require.Equal(t, len(later), n)
}

// Messages of a state have the fields that clients read; all else is as it is.
func TestState(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"n":1.0,"__interrupt__":[]}`: `{"n":1.0}`,
		`"text"`:                       `"text"`,
		`{"list":[{"type":"ai","content":"no message"},{"type":"x","content":1,"additional_kwargs":{}}]}`: `{"list":[{"type":"ai","content":"no message"},{"type":"x","content":1,"additional_kwargs":{}}]}`,
		`{"messages":[{"content":"c","additional_kwargs":{"a":1},"response_metadata":{},"type":"AIMessageChunk","name":null,"id":"i","tool_calls":[{"name":"f","args":{},"id":"1","type":"tool_call"}],"invalid_tool_calls":[],"usage_metadata":{"x":1}}]}`: `{"messages":[{"type":"ai","content":"c","id":"i","tool_calls":[{"type":"tool_call","name":"f","args":{},"id":"1"}]}]}`,
		`{"last":{"content":"c","additional_kwargs":{},"response_metadata":{"m":1},"type":"tool","name":"f","id":"i","tool_call_id":"1","artifact":null,"status":"success"}}`:                                                                               `{"last":{"type":"tool","content":"c","id":"i","name":"f","response_metadata":{"m":1},"tool_call_id":"1","status":"success","artifact":null}}`,
		`{"messages":[{"content":"c","additional_kwargs":{"a":1,"summary_marker":{"n":5}},"response_metadata":{},"type":"human","id":"i"}]}`:                                                                                                                `{"messages":[{"type":"human","content":"c","id":"i","additional_kwargs":{"summary_marker":{"n":5}}}]}`,
	} {
		source, records := oneRun("values", in)
		p := protocol.New(source, protocol.Filter{Channels: []string{"values"}})
		var got []string
		for _, rec := range records {
			events, err := p.Add(t.Context(), rec)
			require.NoError(t, err)
			for _, e := range events {
				var params struct {
					Params struct{ Data json.RawMessage }
				}
				require.NoError(t, json.Unmarshal(e.Data, &params))
				got = append(got, string(params.Params.Data))
			}
		}
		require.Equal(t, []string{want}, got)
	}
	// Blocks, as LangGraph Server 0.16.7 sends them.
	for in, want := range map[string]string{
		`{"type":"text","text":"t","index":3}`:                                   "",
		`{"type":"image_url","image_url":"u"}`:                                   `{"type":"image","url":"u"}`,
		`{"type":"image_url","image_url":{"url":"u","detail":"low"}}`:            `{"type":"image","url":"u"}`,
		`{"type":"image_url"}`:                                                   "",
		`{"type":"image_url","image_url":{}}`:                                    "",
		`{"type":"image","source":{"data":"A"}}`:                                 "",
		`{"type":"input_audio","input_audio":{"data":"A","format":"wav"}}`:       `{"type":"audio","data":"A"}`,
		`{"type":"input_audio"}`:                                                 "",
		`{"type":"thinking","thinking":"t"}`:                                     `{"type":"non_standard","value":{"type":"thinking","thinking":"t"}}`,
		`{"type":"tool_use","id":"1"}`:                                           `{"type":"non_standard","value":{"type":"tool_use","id":"1"}}`,
		`{"type":"text-plain","text":"p"}`:                                       `{"type":"non_standard","value":{"type":"text-plain","text":"p"}}`,
		`{"type":"server_tool_result"}`:                                          `{"type":"non_standard","value":{"type":"server_tool_result"}}`,
		`{"type":"tool_call","id":"1"},{"type":"tool_call_chunk"}`:               "",
		`{"type":"server_tool_call"},{"type":"invalid_tool_call"}`:               "",
		`{"type":"reasoning"},{"type":"audio"},{"type":"video"},{"type":"file"}`: "",
		`{"type":"non_standard","value":{"a":1}}`:                                "",
		`{"notype":1},{"type":7},null,5,["x"]`:                                   "",
		`"bare"`:                                                                 `{"type":"text","text":"bare"}`,
		``:                                                                       "",
	} {
		if want == "" {
			want = in
		}
		message := `{"messages":[{"content":[%s],%s"type":"human","id":"i"}]}`
		source, records := oneRun("values", fmt.Sprintf(message, in, `"additional_kwargs":{},`), "updates", fmt.Sprintf(`{"n":{"messages":{"content":[%s],"additional_kwargs":{},"type":"human"}}}`, in))
		events := project(t, source, protocol.Filter{Channels: []string{"values", "updates"}}, records)
		got, err := json.Marshal(events[0].Params.Data["messages"].([]any)[0].(map[string]any)["content"])
		require.NoError(t, err)
		require.JSONEq(t, "["+want+"]", string(got))
		got, err = json.Marshal(events[1].Params.Data["messages"].(map[string]any)["content"])
		require.NoError(t, err)
		require.JSONEq(t, "["+want+"]", string(got))
	}
	source, records := oneRun("values", `{}`, "values", `{"__interrupt__":[]}`)
	require.Empty(t, project(t, source, protocol.Filter{Channels: []string{"values"}}, records))
}

func TestFilterNamespaces(t *testing.T) {
	t.Parallel()
	two := 2
	zero := 0
	source, records := oneRun("custom", "1", "custom|a:1", "2", "custom|a:1|b:2", "3", "custom|ab:1", "4")
	for _, tt := range []struct {
		name   string
		filter protocol.Filter
		want   []float64
	}{
		{"all; a depth alone means nothing", protocol.Filter{Depth: &zero}, []float64{1, 2, 3, 4}},
		{"below the root", protocol.Filter{Namespaces: [][]string{{}}, Depth: &two}, []float64{1, 2, 3, 4}},
		{"the root", protocol.Filter{Namespaces: [][]string{{}}, Depth: &zero}, []float64{1}},
		{"by name", protocol.Filter{Namespaces: [][]string{{"a"}}}, []float64{2, 3}},
		{"by task", protocol.Filter{Namespaces: [][]string{{"a:1"}}, Depth: &zero}, []float64{2}},
		{"by another task", protocol.Filter{Namespaces: [][]string{{"a:2"}}}, nil},
		{"either", protocol.Filter{Namespaces: [][]string{{"ab"}, {"a", "b"}}}, []float64{3, 4}},
	} {
		tt.filter.Channels = []string{"custom"}
		var got []float64
		for _, e := range project(t, source, tt.filter, records) {
			got = append(got, e.Params.Data["payload"].(float64))
		}
		require.Equal(t, tt.want, got, tt.name)
	}
}

// TestFilterCustom selects events of named channels, each once, whichever filters match it.
func TestFilterCustom(t *testing.T) {
	t.Parallel()
	source, records := oneRun("custom", "1", graph.ModeChannels, `{"name":"a","payload":2}`, graph.ModeChannels, `{"name":"","payload":3}`, graph.ModeChannels, `{"name":"a:b","payload":4}`)
	for channels, want := range map[string][]float64{
		"custom": {1, 2, 3, 4}, "custom:a": {2}, "custom:a:b": {4}, "custom:b": nil, "custom custom:a": {1, 2, 3, 4}, "values": nil,
	} {
		var got []float64
		for _, e := range project(t, source, protocol.Filter{Channels: strings.Fields(channels)}, records) {
			require.Equal(t, "custom", e.Method)
			got = append(got, e.Params.Data["payload"].(float64))
		}
		require.Equal(t, want, got, channels)
	}
}

func BenchmarkToken(b *testing.B) {
	source, records := oneRun("messages", chunkOf("lc_run--00000000-0000-4000-8000-000000000009", "model", `"content":" word","additional_kwargs":{},"response_metadata":{},"name":null,"tool_calls":[],"invalid_tool_calls":[],"usage_metadata":null,"tool_call_chunks":[],"chunk_position":null`))
	p := protocol.New(source, everything)
	for _, rec := range records[:2] {
		_, err := p.Add(b.Context(), rec)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Add(b.Context(), records[1]); err != nil {
			b.Fatal(err)
		}
	}
}
