package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent/llm"
	messages "understudy/graph/message"
)

// response is a stream of reasoning, a text and two calls, as events.
func response() []string {
	const thought = `{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"I think"}],"encrypted_content":"SEALED"}`
	const said = `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello","annotations":[{"type":"url_citation","url":"https://x.test"}]}]}`
	events := []string{
		`{"type":"response.created","response":{"id":"resp_1","object":"response","model":"m-1","status":"in_progress","output":[]}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`,
		`{"type":"response.reasoning_summary_part.added","output_index":0,"item_id":"rs_1","summary_index":0,"part":{"type":"summary_text","text":""}}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"I think"}`,
		`{"type":"response.output_item.done","output_index":0,"item":` + thought + `}`,
		`{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}`,
		`{"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","content_index":0,"delta":"Hello"}`,
		`{"type":"response.output_text.annotation.added","output_index":1,"item_id":"msg_1","content_index":0,"annotation":{"type":"url_citation","url":"https://x.test"}}`,
		`{"type":"response.output_text.done","output_index":1,"item_id":"msg_1","content_index":0,"text":"Hello"}`,
		`{"type":"response.output_item.done","output_index":1,"item":` + said + `}`,
	}
	items := []string{thought, said}
	for i := 1; i <= 2; i++ {
		call := fmt.Sprintf(`{"id":"fc_%d","type":"function_call","call_id":"call_%d","name":"weather","arguments":"{\"n\":%d}"}`, i, i, i)
		items = append(items, call)
		events = append(events,
			fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"id":"fc_%d","type":"function_call","call_id":"call_%d","name":"weather","arguments":""}}`, i+1, i, i),
			fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":%d,"item_id":"fc_%d","delta":"{\"n\":%d}"}`, i+1, i, i),
			fmt.Sprintf(`{"type":"response.function_call_arguments.done","output_index":%d,"item_id":"fc_%d","arguments":"{\"n\":%d}"}`, i+1, i, i),
			fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i+1, call))
	}
	return append(events, `{"type":"response.completed","response":{"id":"resp_1","object":"response","model":"m-1","status":"completed","output":[`+strings.Join(items, ",")+`],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}}`)
}

// answerOf adds up the chunks of an answer: its blocks, and its calls.
func answerOf(t *testing.T, chunks []llm.Chunk) string {
	t.Helper()
	var sum messages.Sum
	var a llm.Answer
	for _, c := range chunks {
		m := messages.AIChunk("")
		m.Content = messages.Content{Blocks: append([]json.RawMessage{}, c.Blocks...)}
		sum.Add(m)
		a.Add(c)
	}
	out := []string{a.Content.String(), a.Reasoning.String(), a.FinishReason}
	for _, c := range a.ToolCalls {
		out = append(out, c.ID+" "+c.Name+" "+c.Arguments.String())
	}
	for _, b := range gjson.ParseBytes(sum.Message().AppendJSON(nil)).Get("content").Array() {
		v := b.Map()
		keys := []string{}
		for name := range v {
			if name != "index" { // what comes late is last
				keys = append(keys, name+"="+strings.ReplaceAll(v[name].Raw, `"index":0,`, ""))
			}
		}
		slices.Sort(keys)
		out = append(out, strings.Join(keys, " "))
	}
	return strings.Join(out, "\n")
}

// Servers leave events out: any of them may be missing, except the last, which has everything.
func TestResponseWithoutSomeEvents(t *testing.T) {
	t.Parallel()
	events := response()
	read := func(events []string) string {
		d := newResponseDecoder()
		var chunks []llm.Chunk
		for _, e := range events {
			c, ok, err := d.Event("", []byte(e))
			if err != nil {
				require.Contains(t, err.Error(), "arguments without a call")
			}
			if ok {
				chunks = append(chunks, c)
			}
		}
		require.True(t, d.Ended())
		return answerOf(t, chunks)
	}
	whole := read(events)
	require.Contains(t, whole, "Hello\nI think\ntool_calls\ncall_1 weather {\"n\":1}\ncall_2 weather {\"n\":2}\n")
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		some := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return r.IntN(3) == 0 && !strings.Contains(e, "response.completed") })
		require.ElementsMatch(t, strings.Split(whole, "\n"), strings.Split(read(some), "\n"), "seed %d: %v", seed, some)
	}
}

// inOnePiece is an answer with reasoning of so many parts, each of a kilobyte.
func inOnePiece(parts int) []byte {
	list := func(kind string) string {
		return strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"type":%q,"text":%q},`, kind, strings.Repeat("t", 1000)), parts), ",")
	}
	return fmt.Appendf(nil, `{"id":"resp_1","object":"response","model":"m","status":"completed","output":[{"id":"rs_1","type":"reasoning","content":[%s],"summary":[%s],"encrypted_content":"SEALED"}]}`,
		list("reasoning_text"), list("summary_text"))
}

// The parts of reasoning have one order, each time.
func TestOrderOfReasoning(t *testing.T) {
	t.Parallel()
	for range 50 {
		c, err := newResponseDecoder().Whole(inOnePiece(2))
		require.NoError(t, err)
		require.Len(t, c.Blocks, 1)
		block := gjson.ParseBytes(c.Blocks[0])
		require.Less(t, block.Get("summary").Index, block.Get("content").Index)
		require.Len(t, block.Get("summary").Array(), 2)
		require.Equal(t, int64(1), block.Get("content.1.index").Int())
		require.Equal(t, "SEALED", block.Get("encrypted_content").Str)
	}
}

func TestReasoningOfManyPartsIsLinear(t *testing.T) { //nolint:paralleltest // it measures memory
	cost := func(parts int) uint64 {
		data := inOnePiece(parts)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := newResponseDecoder().Whole(data)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		return after.TotalAlloc - before.TotalAlloc
	}
	cost(10)
	require.Less(t, cost(400), 3*cost(200))
}
