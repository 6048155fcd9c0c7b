package eventstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
)

// A list may come as clients see it. Its messages are kept byte for byte, and judged as those of a stored list.
func TestItems(t *testing.T) {
	t.Parallel()
	const (
		odd = `{ "content":"\u00e9 1.0 12345678901234567890", "type":"human", "id":"1", "more":1e2}`
		two = `{"content":"two","type":"ai","id":"2"}`
		sum = `{"content":"sum","type":"human","id":"s","additional_kwargs":{"lc_source":"summarization"}}`
	)
	list := func(items ...string) *eventstore.Value {
		v := &eventstore.Value{Items: [][]byte{}}
		for _, i := range items {
			v.Items = append(v.Items, []byte(i))
		}
		return v
	}
	m := newMemory()
	step := func(c, parent id.Checkpoint, v *eventstore.Value) {
		require.NoError(t, eventstore.Record(m, eventstore.Facts{
			Thread: "t", Checkpoint: c, Parent: parent, Run: "r", Source: "loop", At: time.Unix(1, 0), Version: string(c), Messages: v,
		}))
	}
	step("a", "", list())
	step("b", "a", list(odd, two))
	for seq, want := range map[eventstore.Seq]string{1: odd, 2: two} {
		content, err := m.Content("t", seq)
		require.NoError(t, err)
		require.Equal(t, want, string(content))
	}
	step("c", "b", list(sum, two))
	require.Equal(t, []string{"é 1.0 12345678901234567890", "[1: sum]", "two"}, shown(t, m, "c"))
	// A value that is no list of messages leaves the transcript unchanged for later checkpoints.
	for i, v := range []*eventstore.Value{list(two, "null"), list(`{"role":"user","content":"x"}`), list(`7`), {Type: "bytes"}} {
		c := id.Checkpoint('d' + rune(i))
		step(c, "c", v)
		row, err := m.TranscriptRow("t", c)
		require.NoError(t, err)
		require.True(t, row.Opaque)
	}
	step("z", "d", list(sum, two, odd))
	require.Equal(t, []string{"é 1.0 12345678901234567890", "[1: sum]", "two"}, shown(t, m, "z"), "it came back, in its place")
}
