package remote

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
)

// FuzzMirror: whatever an upstream calls a checkpoint is either refused or kept so that it can be read.
func FuzzMirror(f *testing.F) {
	f.Add([]byte(state("c1", "c0", `{"n":1.0,"messages":[{"type":"human","id":"a","content":"x"}]}`, `[{"id":"t","name":"n","interrupts":[{"id":"i","value":{"a":[1]}}],"error":"E()","result":{}}]`)))
	f.Add([]byte(checkpointEvent("c1", "", `[1,2]`, "node")))
	f.Add([]byte(state("c1", "", `"bare"`, `[{"interrupts":[null]}]`)))
	g, err := New(Options{ID: "here", URL: "http://127.0.0.1:1"})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		var shown snapshot
		found := []*snapshot{}
		if json.Unmarshal(data, &shown) == nil {
			found = append(found, &shown)
		}
		if s, err := fromEvent(data); err == nil {
			found = append(found, s)
		}
		for _, s := range found {
			r := newRows()
			inv := invocation(r)
			m := g.newMirror(&inv.Config, "R")
			saves, err := m.put(t.Context(), nil, s)
			if err == nil {
				saves, err = m.writes(saves, s)
			}
			if err != nil {
				continue
			}
			require.NoError(t, m.save(t.Context(), saves))
			got, err := checkpointer.NewSnapshots(r.Memory, nil).State(t.Context(), s.key("T"), false)
			require.NoError(t, err)
			require.True(t, json.Valid(got.Values), "%s", got.Values)
		}
	})
}
