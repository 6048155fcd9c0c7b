package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
)

// chatMessage packs a message as JsonPlus does: 420 bytes for a person's, 800 for a model's.
func chatMessage(n int) []byte {
	kind, class, words := "human", "HumanMessage", 4
	if n%2 == 1 {
		kind, class, words = "ai", "AIMessage", 9
	}
	field := func(b []byte, name string) []byte { return msgp.AppendString(b, name) }
	arg := msgp.AppendMapHeader(nil, 7)
	arg = msgp.AppendString(field(arg, "content"), strings.Repeat(fmt.Sprintf("sentence %d of the conversation, and its words. ", n), words))
	arg = msgp.AppendMapHeader(field(arg, "additional_kwargs"), 0)
	arg = msgp.AppendMapHeader(field(arg, "response_metadata"), 0)
	arg = msgp.AppendString(field(arg, "type"), kind)
	arg = msgp.AppendNil(field(arg, "name"))
	arg = msgp.AppendString(field(arg, "id"), fmt.Sprintf("%08x-0000-4000-8000-%012d", n*2654435761, n))
	arg = msgp.AppendMapHeader(field(arg, "usage_metadata"), 2)
	arg = msgp.AppendInt(field(arg, "input_tokens"), 100+n)
	arg = msgp.AppendInt(field(arg, "output_tokens"), n)
	body := msgp.AppendArrayHeader(nil, 4)
	body = msgp.AppendString(msgp.AppendString(body, "langchain_core.messages."+kind), class)
	body = msgp.AppendString(append(body, arg...), "model_validate_json")
	return append([]byte{0xc8, byte(len(body) >> 8), byte(len(body)), 5}, body...)
}

// chat writes turns of a conversation as a graph with one model node does: three checkpoints each,
// of which two have new messages, and two writes.
type chat struct {
	s        *Store
	messages [][]byte
	step     int
	versions map[string]string
	took     time.Duration // by writes
}

func (c *chat) put(b *testing.B, source string, changed map[string][]byte) {
	c.step++
	version := fmt.Sprintf("%032d.0.%016d", c.step, c.step*7919)
	p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
		Key: checkpointer.Key{Thread: "0197e1f0-0000-7000-8000-000000000001", ID: id.Checkpoint(fmt.Sprintf("1f0aaaaa-%04d-6000-8000-%012d", c.step%10000, c.step))},
		Run: "0197e1f0-0000-7000-8000-000000000002", Shape: "0123456789abcdef0123456789abcdef",
		Tasks:    json.RawMessage(`[{"id":"5b8ae1f0-0000-5000-8000-000000000001","name":"model","path":["__pregel_pull","model"],"subgraph":false}]`),
		Metadata: json.RawMessage(`{"source":"` + source + `","step":` + strconv.Itoa(c.step) + `,"parents":{},"thread_id":"0197e1f0-0000-7000-8000-000000000001","graph_id":"agent"}`),
	}}
	if c.step > 1 {
		p.Parent = id.Checkpoint(fmt.Sprintf("1f0aaaaa-%04d-6000-8000-%012d", (c.step-1)%10000, c.step-1))
	}
	for channel, data := range changed {
		c.versions[channel] = version
		blob := checkpointer.Blob{Channel: channel, Version: version, Type: "msgpack", Data: data}
		if data == nil {
			blob.Type = "empty"
		}
		p.Blobs = append(p.Blobs, blob)
	}
	data, err := json.Marshal(map[string]any{
		"v": 4, "ts": "2026-01-02T03:04:05.678901+00:00", "id": p.ID, "channel_values": map[string]any{}, "channel_versions": c.versions,
		"versions_seen": map[string]any{"__input__": map[string]any{}, "__start__": map[string]string{"__start__": version}, "model": map[string]string{"branch:to:model": version}},
	})
	require.NoError(b, err)
	p.Data = data
	var writes []checkpointer.Write
	if source == "loop" {
		writes = []checkpointer.Write{{TaskID: "5b8ae1f0-0000-5000-8000-" + fmt.Sprintf("%012d", c.step), Channel: "messages", Type: "msgpack", Data: c.messages[len(c.messages)-1]}}
	}
	started := time.Now()
	require.NoError(b, c.s.write(context.Background(), func(tx *Tx) error {
		return errorOf(tx.PutCheckpoint(p), eventstore.Record(tx, eventstore.FactsOf(p)), tx.PutWrites(p.Key, writes))
	}))
	c.took += time.Since(started)
}

func (c *chat) turn(b *testing.B) {
	n := len(c.messages)
	c.put(b, "input", map[string][]byte{"__start__": chatMessage(n)})
	c.messages = append(c.messages, chatMessage(n))
	c.put(b, "loop", map[string][]byte{"messages": joined(c.messages), "__start__": nil, "branch:to:model": msgp.AppendNil(nil)})
	c.messages = append(c.messages, chatMessage(n+1))
	c.put(b, "loop", map[string][]byte{"messages": joined(c.messages), "branch:to:model": nil})
}

// What a thread takes on disk, whole: docs/performance.md has the table. Run it with -benchtime
// 1x; LARGE=1 adds the thousand turns of layout langgraph, which are 1.3 GB.
func BenchmarkGrowth(b *testing.B) {
	for _, layout := range []string{layoutCompact, layoutLangGraph} {
		for _, turns := range []int{100, 300, 1000} {
			b.Run(fmt.Sprintf("%s/%d", layout, turns), func(b *testing.B) {
				if layout == layoutLangGraph && turns == 1000 && os.Getenv("LARGE") == "" {
					b.Skip("LARGE is not set")
				}
				for b.Loop() {
					dir := b.TempDir()
					s, err := Open(context.Background(), Options{Dir: dir, Synchronous: "normal", Layout: layout})
					require.NoError(b, err)
					empty := closedSize(b, s, dir)
					s, err = Open(context.Background(), Options{Dir: dir, Synchronous: "normal"})
					require.NoError(b, err)
					c := &chat{s: s, versions: map[string]string{}}
					for range turns {
						c.turn(b)
					}
					b.ReportMetric(float64(c.took.Microseconds())/float64(3*turns), "µs/checkpoint")
					size := closedSize(b, s, dir) - empty
					b.ReportMetric(float64(size), "bytes")
					b.ReportMetric(float64(size)/float64(turns), "bytes/turn")
				}
			})
		}
	}
}

func closedSize(b *testing.B, s *Store, dir string) int64 {
	b.Helper()
	require.NoError(b, s.Close())
	info, err := os.Stat(filepath.Join(dir, fileName))
	require.NoError(b, err)
	return info.Size()
}
