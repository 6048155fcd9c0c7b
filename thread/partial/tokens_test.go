package partial

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/message"
)

// spoken is an answer as a model means to give it, and the chunks it comes in.
type spoken struct {
	id     string
	step   int
	blocks bool
	chunks []message.Message
}

func randomAnswer(rng *rand.Rand, n int) spoken {
	s := spoken{id: "lc_run--" + strconv.Itoa(n), step: 1 + n/2, blocks: rng.IntN(3) == 0}
	chunk := func() message.Message { return message.Message{Type: message.TypeAIChunk, ID: s.id} }
	for range rng.IntN(30) {
		m, word := chunk(), []string{"word ", "é", "\"q\"", "\n", "", "😀"}[rng.IntN(6)]
		if s.blocks {
			m.Content.Blocks = []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"type":"text","text":%q,"index":0}`, word))}
		} else {
			m.Content.Text = word
		}
		s.chunks = append(s.chunks, m)
	}
	for i := range rng.IntN(3) {
		args := fmt.Sprintf(`{"query":"what is %d?","deep":{"n":[1,%d]}}`, rng.IntN(100), i)
		if rng.IntN(6) == 0 {
			args = ""
		}
		parts := []message.ToolCallChunk{{Name: "search", ID: fmt.Sprintf("call_%d_%d", n, i)}}
		for len(args) > 0 {
			k := 1 + rng.IntN(len(args))
			parts = append(parts, message.ToolCallChunk{Args: args[:k]})
			args = args[k:]
		}
		for _, p := range parts {
			p.Index = &i
			s.chunks = append(s.chunks, chunk().WithCallChunks(p))
		}
	}
	last := chunk()
	last.Last = true
	s.chunks = append(s.chunks, last)
	return s
}

// stream returns the events of answers that are given at the same time, as the mode has them, and what a reader has of each answer after each.
func stream(rng *rand.Rand, tuples bool, answers []spoken) (events []event, seen []map[string]message.Message) {
	at := make([]int, len(answers))
	now := map[string]message.Message{}
	known := map[string]bool{}
	for {
		var open []int
		for i, a := range answers {
			if at[i] < len(a.chunks) {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return events, seen
		}
		i := open[rng.IntN(len(open))]
		a, m := answers[i], answers[i].chunks[at[i]]
		at[i]++
		metadata := fmt.Sprintf(`{"langgraph_step":%d,"langgraph_checkpoint_ns":"model:1"}`, a.step)
		show := func(name string, data []byte) {
			events = append(events, event{name: name, data: data})
			copied := map[string]message.Message{}
			for k, v := range now {
				copied[k] = v
			}
			seen = append(seen, copied)
		}
		if !tuples && !known[a.id] {
			known[a.id] = true
			show("messages/metadata", []byte(fmt.Sprintf(`{%q:{"metadata":%s}}`, a.id, metadata)))
		}
		if before, ok := now[a.id]; ok {
			sum, err := message.Add(before, m)
			if err != nil {
				panic(err)
			}
			now[a.id] = sum
		} else {
			now[a.id] = m
		}
		if tuples {
			show("messages", []byte("["+string(m.AppendJSON(nil))+","+metadata+"]"))
			continue
		}
		show("messages/partial", []byte("["+string(now[a.id].Whole().AppendJSON(nil))+"]"))
	}
}

// What is kept at any moment is what a reader has: the same ids, the same text, and of tool calls those that are whole.
func TestKeepsWhatAReaderSaw(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		answers := make([]spoken, 1+rng.IntN(4))
		for i := range answers {
			answers[i] = randomAnswer(rng, i)
		}
		tuples := seed%2 == 0
		events, seen := stream(rng, tuples, answers)
		kept := newTokens(Limit, []int{0, 700, 1 << 20}[rng.IntN(3)])
		for i, e := range events {
			kept.Add(e.name, e.data)
			if rng.IntN(8) > 0 && i < len(events)-1 {
				continue
			}
			have := map[string]message.Message{}
			for _, m := range kept.Messages(0) {
				require.True(t, gjson.ValidBytes(m.JSON), "seed %d event %d", seed, i)
				got, ok := message.Read(m.JSON)
				require.True(t, ok)
				require.Equal(t, message.TypeAI, got.Type)
				require.Equal(t, m.ID, got.ID)
				require.False(t, m.Truncated)
				have[m.ID] = got
			}
			for mid, saw := range seen[i] {
				got := have[mid]
				require.Equal(t, saw.Text(), got.Text(), "seed %d event %d", seed, i)
				for _, c := range got.ToolCalls {
					j := slices.IndexFunc(saw.ToolCalls, func(d message.ToolCall) bool { return d.ID == c.ID })
					require.GreaterOrEqual(t, j, 0)
					require.Equal(t, c.Name, saw.ToolCalls[j].Name)
					require.Equal(t, string(c.Args), string(saw.ToolCalls[j].Args))
				}
				require.Empty(t, got.InvalidToolCalls)
				require.NotContains(t, string(got.AppendJSON(nil)), "tool_call_chunks")
				for j, c := range saw.ToolCallChunks { // whole ones are all there
					last := j == len(saw.ToolCallChunks)-1
					if !tuples && last {
						continue // cannot be known
					}
					whole := gjson.Valid(c.Args) && c.Args != "" || c.Args == "" && (!last || saw.Last)
					require.Equal(t, whole, contains(got.ToolCalls, c.ID), "seed %d event %d call %s args %q", seed, i, c.ID, c.Args)
				}
			}
		}
	}
}

func contains(calls []message.ToolCall, id string) bool {
	for _, c := range calls {
		if c.ID == id {
			return true
		}
	}
	return false
}

func tuple(m message.Message, step int) []byte {
	return fmt.Appendf(nil, `[%s,{"langgraph_step":%d,"langgraph_checkpoint_ns":"model:1"}]`, m.AppendJSON(nil), step)
}

func texts(list []Message) string {
	var out []string
	for _, m := range list {
		out = append(out, m.ID+"="+gjson.GetBytes(m.JSON, "content").String())
	}
	return strings.Join(out, " ")
}

func TestOnlyWhatIsNotSaved(t *testing.T) {
	for _, at := range []int{0, 1 << 20} {
		kept := newTokens(Limit, at)
		add := func(id, text string, step int) {
			kept.Add("messages", tuple(message.AIChunk(text).WithID(id), step))
		}
		add("a", "one", 1)
		add("b", "two", 2)
		require.Equal(t, "a=one b=two", texts(kept.Messages(0)))
		require.Equal(t, "b=two", texts(kept.Messages(1)))
		kept.Saved(1)
		add("a", "late", 1)
		add("b", "!", 2)
		require.Equal(t, "b=two!", texts(kept.Messages(0)))
		kept.Saved(2)
		require.Empty(t, kept.Messages(0))
		kept.Reset()
		add("b", "again", 3)
		require.Equal(t, "b=again", texts(kept.Messages(2)))
	}
}

func TestOnlyAnswersAtTheRoot(t *testing.T) {
	kept := NewTokens()
	kept.Add("messages|child:1", tuple(message.AIChunk("nested").WithID("n"), 1))
	kept.Add("messages", tuple(message.Tool("result", "c").WithID("t"), 1))
	kept.Add("messages", tuple(message.Human("question").WithID("h"), 1))
	kept.Add("messages", []byte(`[{"type":"AIMessageChunk","content":"deep","id":"d"},{"langgraph_step":1,"langgraph_checkpoint_ns":"child:1|model:2"}]`))
	kept.Add("messages/metadata", []byte(`{"e":{"metadata":{"langgraph_step":1,"langgraph_checkpoint_ns":"child:1|model:2"}}}`))
	kept.Add("messages/partial", []byte(`[{"type":"ai","content":"deep","id":"e"}]`))
	kept.Add("messages/complete", []byte(`[{"type":"tool","content":"result","id":"u","tool_call_id":"c"}]`))
	kept.Add("messages/partial", []byte(`[{"type":"ai","content":"","id":"empty"}]`))
	kept.Add("values", []byte(`{"messages":[]}`))
	for _, odd := range []string{`null`, `[]`, `[1,2]`, `{"a":1}`, `[{"type":"ai"},{}]`, `[{"type":"AIMessageChunk","content":"x"},{}]`, `{`} {
		kept.Add("messages", []byte(odd))
		kept.Add("messages/partial", []byte(odd))
		kept.Add("messages/metadata", []byte(odd))
	}
	require.Empty(t, kept.Messages(unknown))
	kept.Add("messages", tuple(message.AI("whole").WithID("w"), 1))
	require.Equal(t, "w=whole", texts(kept.Messages(0)))
	var none *Tokens
	none.Add("messages", tuple(message.AI("whole").WithID("w"), 1))
	none.Saved(1)
	none.Reset()
	require.Empty(t, none.Messages(0))
}

func TestToolCallsThatAreNotWhole(t *testing.T) {
	one := 1
	kept := NewTokens()
	m := message.AIChunk("").WithID("a")
	m.Content = message.Content{Blocks: []json.RawMessage{json.RawMessage(`{"type":"text","text":"Let me look","index":0}`)}}
	kept.Add("messages", tuple(m, 1))
	m.Content.Blocks = []json.RawMessage{json.RawMessage(`{"type":"tool_use","id":"c","name":"search","input":{},"index":1}`)}
	kept.Add("messages", tuple(m.WithCallChunks(message.ToolCallChunk{ID: "c", Name: "search", Index: &one}), 1))
	m.Content.Blocks = []json.RawMessage{json.RawMessage(`{"type":"input_json_delta","partial_json":"{\"q\": \"x","index":1}`)}
	kept.Add("messages", tuple(m.WithCallChunks(message.ToolCallChunk{Args: `{"q": "x`, Index: &one}), 1))
	require.JSONEq(t, `[{"type":"text","text":"Let me look","index":0}]`, gjson.GetBytes(kept.Messages(0)[0].JSON, "content").Raw)
	require.Equal(t, `[]`, gjson.GetBytes(kept.Messages(0)[0].JSON, "tool_calls").Raw)
	m.Content.Blocks = []json.RawMessage{json.RawMessage(`{"type":"input_json_delta","partial_json":"\"}","index":1}`)}
	kept.Add("messages", tuple(m.WithCallChunks(message.ToolCallChunk{Args: `"}`, Index: &one}), 1))
	whole := kept.Messages(0)[0].JSON
	require.JSONEq(t, `[{"name":"search","args":{"q":"x"},"id":"c","type":"tool_call"}]`, gjson.GetBytes(whole, "tool_calls").Raw)
	require.Equal(t, "c", gjson.GetBytes(whole, "content.1.id").String())
}

func TestBounded(t *testing.T) {
	kept := newTokens(100, 500)
	said := ""
	for i := range 200 {
		word := fmt.Sprintf("wörd %d ", i)
		said += word
		kept.Add("messages", tuple(message.AIChunk(word).WithID("a"), 1))
		require.LessOrEqual(t, kept.size, 100)
		require.LessOrEqual(t, kept.bytes, 1000)
	}
	out := kept.Messages(0)
	require.Len(t, out, 1)
	require.True(t, out[0].Truncated)
	text := gjson.GetBytes(out[0].JSON, "content").String()
	require.True(t, strings.HasPrefix(said, text))
	require.Greater(t, len(text), 80)

	kept = newTokens(100, 500)
	for i := 1; i < 60; i++ {
		kept.Add("messages/partial", []byte("["+string(message.AI(strings.Repeat("é", i)).WithID("a").AppendJSON(nil))+"]"))
	}
	out = kept.Messages(0)
	require.True(t, out[0].Truncated)
	require.Equal(t, strings.Repeat("é", 50), gjson.GetBytes(out[0].JSON, "content").String())

	for _, mode := range []string{"messages", "messages/partial", "messages/complete"} { // many messages that come as a whole
		kept = newTokens(100, 500)
		for i := range 50 {
			m := message.AI(strings.Repeat("x", 90)).WithID(strconv.Itoa(i))
			data := []byte("[" + string(m.AppendJSON(nil)) + "]")
			if mode == "messages" {
				data = tuple(m, 1)
			}
			kept.Add(mode, data)
			require.Less(t, kept.size, 300, "the limit and one message")
		}
		total := 0
		for _, m := range kept.Messages(0) {
			total += len(gjson.GetBytes(m.JSON, "content").String())
		}
		require.LessOrEqual(t, total, 100, mode)
		require.GreaterOrEqual(t, total, 90, mode)
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, mode := range []string{"referred", "folded"} {
		b.Run(mode, func(b *testing.B) {
			at := foldAt
			if mode == "folded" {
				at = 64 << 10
			}
			data := tuple(message.AIChunk("word ").WithID("lc_run--0198c2a4-7d3e-7f00-8000-000000000000"), 1)
			kept := newTokens(1<<30, at)
			b.ReportAllocs()
			for b.Loop() {
				if kept.Add("messages", data); len(kept.pending) > 5000 {
					kept = newTokens(1<<30, at)
				}
			}
		})
	}
}
