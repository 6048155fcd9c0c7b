package checkpointer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/id"
)

// fixed is a storage that costs nothing.
type fixed struct {
	checkpointer.Reader
	tuples []*checkpointer.Tuple // newest first
	shape  json.RawMessage
}

func (f *fixed) LoadCheckpoint(context.Context, checkpointer.Key) (*checkpointer.Tuple, error) {
	return f.tuples[0], nil
}

func (f *fixed) ListCheckpoints(context.Context, checkpointer.List) ([]*checkpointer.Tuple, error) {
	return f.tuples, nil
}

func (f *fixed) LoadShape(context.Context, string) (checkpointer.Shape, error) { return f.shape, nil }

// message packs a message of about 700 bytes as JsonPlus does.
func message(n int) []byte {
	kind, class := "human", "HumanMessage"
	if n%2 == 1 {
		kind, class = "ai", "AIMessage"
	}
	arg := msgp.AppendMapHeader(nil, 9)
	arg = msgp.AppendString(msgp.AppendString(arg, "content"), strings.Repeat(fmt.Sprintf("sentence %d of it, with \"quotes\". ", n), 12))
	arg = msgp.AppendMapHeader(msgp.AppendString(arg, "additional_kwargs"), 0)
	arg = msgp.AppendMapHeader(msgp.AppendString(arg, "response_metadata"), 2)
	arg = msgp.AppendString(msgp.AppendString(arg, "finish_reason"), "stop")
	arg = msgp.AppendString(msgp.AppendString(arg, "model_name"), "a-model")
	arg = msgp.AppendString(msgp.AppendString(arg, "type"), kind)
	arg = msgp.AppendNil(msgp.AppendString(arg, "name"))
	arg = msgp.AppendString(msgp.AppendString(arg, "id"), fmt.Sprintf("message-%d", n))
	arg = msgp.AppendArrayHeader(msgp.AppendString(arg, "tool_calls"), 0)
	arg = msgp.AppendArrayHeader(msgp.AppendString(arg, "invalid_tool_calls"), 0)
	arg = msgp.AppendMapHeader(msgp.AppendString(arg, "usage_metadata"), 2)
	arg = msgp.AppendInt(msgp.AppendString(arg, "input_tokens"), 100+n)
	arg = msgp.AppendInt(msgp.AppendString(arg, "output_tokens"), n)
	body := msgp.AppendArrayHeader(nil, 4)
	body = msgp.AppendString(msgp.AppendString(body, "langchain_core.messages."+kind), class)
	body = msgp.AppendString(append(body, arg...), "model_validate_json")
	return append([]byte{0xc8, byte(len(body) >> 8), byte(len(body)), 5}, body...)
}

// conversation is the end of a thread: rows checkpoints, the newest with that many messages, each older one with one less.
func conversation(tb testing.TB, rows, messages int) *fixed {
	tb.Helper()
	f := &fixed{shape: json.RawMessage(`{"out":["messages"],"channels":{"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}}},"stateful":[]}`)}
	all := make([][]byte, messages)
	for i := range all {
		all[i] = message(i)
	}
	for r := range rows {
		n := messages - r
		list := msgp.AppendArrayHeader(nil, uint32(n))
		for _, m := range all[:n] {
			list = append(list, m...)
		}
		version := fmt.Sprintf("%032d.0.5", n)
		data := fmt.Sprintf(`{"v":4,"ts":"2026-01-02T03:04:05.678901+00:00","id":"%06d","channel_values":{},"channel_versions":{"__start__":"1","messages":"%s","branch:to:model":"2"},"versions_seen":{"__input__":{},"__start__":{"__start__":"1"},"model":{"branch:to:model":"1"}},"updated_channels":["messages"]}`, n, version)
		f.tuples = append(f.tuples, &checkpointer.Tuple{
			Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: thread, ID: id.Checkpoint(fmt.Sprintf("%06d", n))}, Parent: id.Checkpoint(fmt.Sprintf("%06d", n-1)), Data: json.RawMessage(data),
				Metadata: json.RawMessage(`{"source":"loop","step":3,"parents":{},"run_id":"r","thread_id":"t","graph_id":"agent"}`), Shape: "s",
				Tasks: json.RawMessage(`[{"id":"5b8a","name":"model","path":["__pregel_pull","model"],"subgraph":false}]`),
			},
			Blobs:  []checkpointer.Blob{{Channel: "messages", Version: version, Type: "msgpack", Data: list}},
			Writes: []checkpointer.Write{{TaskID: "5b8a", Channel: "messages", Type: "msgpack", Data: append([]byte{0x91}, message(n)...)}},
		})
	}
	f.tuples[0].Writes, f.tuples[0].Tasks = nil, json.RawMessage(`[]`)
	return f
}

func BenchmarkState(b *testing.B) {
	for _, n := range []int{10, 100, 400, 1000} {
		f := conversation(b, 1, n)
		bytes := int64(len(f.tuples[0].Blobs[0].Data))
		b.Run(fmt.Sprintf("%d messages", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(bytes)
			s := checkpointer.NewSnapshots(f, nil)
			for b.Loop() {
				if _, err := s.State(b.Context(), checkpointer.Key{Thread: thread}, false); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d messages/first read", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(bytes)
			for b.Loop() {
				if _, err := checkpointer.NewSnapshots(f, nil).State(b.Context(), checkpointer.Key{Thread: thread}, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHistory(b *testing.B) {
	f := conversation(b, 100, 400)
	for _, first := range []bool{false, true} {
		name := "100x400"
		if first {
			name += "/first read"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s := checkpointer.NewSnapshots(f, nil)
			for b.Loop() {
				if first {
					s = checkpointer.NewSnapshots(f, nil)
				}
				got, err := s.History(b.Context(), checkpointer.List{Thread: thread})
				if err != nil {
					b.Fatal(err)
				}
				size := 0
				for _, h := range got {
					size += len(h.Values)
				}
				b.SetBytes(int64(size))
			}
		})
	}
}

func BenchmarkHead(b *testing.B) {
	f := conversation(b, 2, 400)
	f.tuples = f.tuples[1:] // with a task
	s := checkpointer.NewSnapshots(f, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Head(b.Context(), thread); err != nil {
			b.Fatal(err)
		}
	}
}

// What the benchmarks read is shown as a real thread would be.
func TestBenchmarkThreadIsShown(t *testing.T) {
	t.Parallel()
	f := conversation(t, 3, 5)
	s := checkpointer.NewSnapshots(f, nil)
	for range 2 {
		got, err := s.History(t.Context(), checkpointer.List{Thread: thread})
		require.NoError(t, err)
		for i, h := range got {
			var values struct {
				Messages []struct{ ID string }
			}
			require.NoError(t, json.Unmarshal(h.Values, &values))
			require.Len(t, values.Messages, 5-i)
		}
		require.Contains(t, string(got[1].Tasks[0].Result), `"id":"message-4"`)
	}
}
