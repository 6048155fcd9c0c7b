package record

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/jsonscan"
)

func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(`{"values":{"messages":[{"type":"human","content":"x","id":"1"}],"summary":"s"},"next":["a"],"tasks":[{"name":"__start__","result":{"messages":[]}}],` +
		`"metadata":{"graph_id":"g","run_id":"r","source":"loop","step":1},"created_at":"2026-11-21T12:39:07.813583+00:00",` +
		`"checkpoint":{"checkpoint_id":"1f","checkpoint_ns":""},"parent_checkpoint":{"checkpoint_id":"1e"}}`))
	f.Add([]byte(`{"values":{},"metadata":null,"checkpoint":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v := look(body)
		if !jsonscan.Valid(body) {
			return
		}
		out := v.with(json.RawMessage(`{"messages":[]}`), true)
		require.True(t, json.Valid(out) || !json.Valid(body) || v.values == span{}, "%s", out)
		if v.settled(); !v.root() {
			return
		}
		p := newPool()
		s := v.settle("messages", p)
		require.NotEqual(t, s.id, s.parent)
		for _, item := range s.items {
			require.True(t, jsonscan.Valid(item))
		}
		again := v.settle("messages", p)
		require.Equal(t, s, again)
	})
}
