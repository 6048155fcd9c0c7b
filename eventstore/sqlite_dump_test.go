package eventstore_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonplus"
	"understudy/run"
)

// dump is a database of langgraph-checkpoint-sqlite, as gen_sqlite.py wrote it, and what a person saw in the end.
type dump struct {
	Checkpoints []struct {
		ID, Parent, Type string
		Checkpoint       []byte
		Metadata         json.RawMessage
	}
	Writes []struct {
		ID, Task, Channel, Type string
		Idx                     int
		Value                   []byte
	}
	Want []string
}

// Databases that langgraph wrote with its own SqliteSaver, copied in, show what a person saw.
func TestDumps(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/sqlite.json.gz")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	var dumps map[string]dump
	require.NoError(t, json.NewDecoder(unzipped).Decode(&dumps))
	require.NotEmpty(t, dumps)
	d := open(t)
	for name, from := range dumps {
		thread := id.Thread(name)
		var last id.Checkpoint
		require.NoError(t, d.Runs().Write(context.Background(), func(tx run.Tx) error {
			for _, c := range from.Checkpoints {
				require.Equal(t, "msgpack", c.Type)
				p := split(t, c.Checkpoint)
				p.Thread, p.ID, p.Parent, p.Metadata = thread, id.Checkpoint(c.ID), id.Checkpoint(c.Parent), c.Metadata
				if err := tx.PutCheckpoint(p); err != nil {
					return err
				}
				last = p.ID
			}
			for _, w := range from.Writes {
				if err := tx.PutWrites(checkpointer.Key{Thread: thread, ID: id.Checkpoint(w.ID)}, []checkpointer.Write{
					{TaskID: w.Task, Index: w.Idx, Channel: w.Channel, Type: w.Type, Data: w.Value},
				}); err != nil {
					return err
				}
			}
			return nil
		}))
		b := eventstore.NewBackfiller(d)
		require.NoError(t, b.Ensure(context.Background(), thread, last))
		if diff := cmp.Diff(from.Want, d.shown(thread, last)); diff != "" {
			t.Errorf("%s (-seen +backfilled)\n%s", name, diff)
		}
		for _, e := range d.log(thread) {
			require.False(t, e.CreatedAt.IsZero())
		}
	}
}

// split takes a checkpoint with its values apart into rows as langgraph-checkpoint-postgres keeps them.
func split(t *testing.T, packed []byte) *checkpointer.Put {
	t.Helper()
	p := &checkpointer.Put{}
	versions, values, inline := map[string]string{}, map[string][]byte{}, map[string]json.RawMessage{}
	data := map[string]any{"channel_versions": versions, "channel_values": inline}
	members(t, packed, func(key string, value []byte) {
		switch key {
		case "channel_values":
			members(t, value, func(channel string, v []byte) { values[channel] = v })
		case "channel_versions":
			members(t, value, func(channel string, v []byte) {
				text, _, err := msgp.ReadStringBytes(v)
				require.NoError(t, err)
				versions[channel] = text
			})
		case "id", "ts":
			data[key] = toJSON(t, value)
		}
	})
	for channel, version := range versions {
		v, ok := values[channel]
		switch {
		case !ok:
		case bytes.ContainsRune([]byte{'"', 't', 'f', 'n'}, rune(toJSON(t, v)[0])): // text, bools and null stay inline
			inline[channel] = toJSON(t, v)
		default:
			p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: channel, Version: version, Type: "msgpack", Data: v})
		}
	}
	p.Data = marshal(data)
	return p
}

func toJSON(t *testing.T, packed []byte) json.RawMessage {
	t.Helper()
	text, err := jsonplus.AppendJSON(nil, "msgpack", packed)
	require.NoError(t, err)
	return text
}

// members calls fn with the members of a msgpack map.
func members(t *testing.T, packed []byte, fn func(key string, value []byte)) {
	t.Helper()
	n, rest, err := msgp.ReadMapHeaderBytes(packed)
	require.NoError(t, err)
	for range n {
		var key string
		key, rest, err = msgp.ReadStringBytes(rest)
		require.NoError(t, err)
		after, err := msgp.Skip(rest)
		require.NoError(t, err)
		fn(key, rest[:len(rest)-len(after)])
		rest = after
	}
}
