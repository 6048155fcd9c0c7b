package eventstore_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
)

// conversation is what gen.py recorded of langgraph.
type conversation struct {
	Log []struct {
		Run *struct {
			ID    string
			Input json.RawMessage
		}
		Put *struct {
			ID, Parent, Run string
			Checkpoint      json.RawMessage
			Metadata        json.RawMessage
			Blobs           map[string]struct {
				Type, Version string
				Data          []byte
			}
		}
		Writes *struct {
			ID, Task, Path string
			Writes         []struct {
				Channel, Type string
				Data          []byte
			}
		}
	}
	Want []string
}

func conversations(t testing.TB) map[string]conversation {
	t.Helper()
	data, err := os.ReadFile("testdata/conversations.json")
	require.NoError(t, err)
	var all map[string]conversation
	require.NoError(t, json.Unmarshal(data, &all))
	require.NotEmpty(t, all)
	return all
}

// Checkpoints as LangGraph and LangChain's middleware really make them.
func TestConversations(t *testing.T) {
	t.Parallel()
	for name, c := range conversations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, forget := range []bool{false, true} {
				m := newMemory()
				last := replay(t, m, c, func() {
					if forget {
						m.cache = eventstore.NewCache()
					}
				})
				if diff := cmp.Diff(c.Want, shown(t, m, last)); diff != "" {
					t.Fatalf("forget=%v (-want +got)\n%s", forget, diff)
				}
				consistent(t, m)
			}
		})
	}
}

func replay(t testing.TB, m *memory, c conversation, after func()) (last id.Checkpoint) {
	t.Helper()
	for _, e := range c.Log {
		switch {
		case e.Run != nil:
			m.inputs[id.Run(e.Run.ID)] = [2]json.RawMessage{e.Run.Input}
		case e.Writes != nil:
			if e.Writes.Task != "00000000-0000-0000-0000-000000000000" && !strings.HasSuffix(e.Writes.Path, ", __start__") {
				continue
			}
			for _, w := range e.Writes.Writes {
				at := id.Checkpoint(e.Writes.ID)
				m.writes[at] = append(m.writes[at], eventstore.Value{Type: w.Type, Data: w.Data})
			}
		default:
			p := &checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: "t", ID: id.Checkpoint(e.Put.ID)}, Parent: id.Checkpoint(e.Put.Parent),
				Data: e.Put.Checkpoint, Metadata: e.Put.Metadata, Run: id.Run(e.Put.Run),
			}}
			for channel, b := range e.Put.Blobs {
				p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: channel, Version: b.Version, Type: b.Type, Data: b.Data})
				m.values[b.Version] = eventstore.Value{Type: b.Type, Data: b.Data}
			}
			require.NoError(t, eventstore.Record(m, eventstore.FactsOf(p)))
			after()
			last = p.ID
		}
	}
	return last
}
