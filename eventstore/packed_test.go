package eventstore_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
)

// A graph may hand its messages over item by item; they are recorded as those of a whole list are.
func TestMessagesByItem(t *testing.T) {
	t.Parallel()
	items := [][]byte{msgp.AppendString(nil, "a"), msgp.AppendString(nil, "b")}
	put := &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Metadata: json.RawMessage(`{"source":"loop","step":1}`),
			Data:     json.RawMessage(`{"channel_versions":{"messages":"2"},"channel_values":{}}`),
		},
		Blobs: []checkpointer.Blob{{Channel: "messages", Version: "2", Type: "msgpack", Items: items}},
	}
	require.Equal(t, &eventstore.Value{Type: "msgpack", Packed: items}, eventstore.FactsOf(put).Messages)
	put.Blobs[0] = checkpointer.Blob{Channel: "messages", Version: "2", Type: "msgpack", Data: put.Blobs[0].Bytes()}
	require.Equal(t, &eventstore.Value{Type: "msgpack", Data: put.Blobs[0].Data}, eventstore.FactsOf(put).Messages)
}
