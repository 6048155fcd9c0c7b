package storagetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

func blob(channel, version, data string) checkpointer.Blob {
	return checkpointer.Blob{Channel: channel, Version: version, Type: "msgpack", Data: []byte(data)}
}

// put is a checkpoint whose channels are at the versions of the blobs given; nil blobs data stands
// for a channel that did not change.
func put(k checkpointer.Key, parent id.Checkpoint, metadata json.RawMessage, blobs ...checkpointer.Blob) *checkpointer.Put {
	versions := map[string]string{"no_blob": "1"}
	var stored []checkpointer.Blob
	for _, b := range blobs {
		versions[b.Channel] = b.Version
		if b.Type != "" {
			stored = append(stored, b)
		}
	}
	v, _ := json.Marshal(versions) // a map of text
	if metadata == nil {
		metadata = raw(`{}`)
	}
	return &checkpointer.Put{
		Checkpoint: checkpointer.Checkpoint{
			Key: k, Parent: parent, Data: raw(`{"v":4, "id":"` + string(k.ID) + `","channel_versions":` + string(v) + `}`), Metadata: metadata,
		},
		Blobs: stored,
	}
}

// unchanged names a blob that an earlier checkpoint stored.
func unchanged(channel, version string) checkpointer.Blob {
	return checkpointer.Blob{Channel: channel, Version: version}
}

func key(th int, ns, checkpoint string) checkpointer.Key {
	return checkpointer.Key{Thread: threadID(th), NS: ns, ID: id.Checkpoint(checkpoint)}
}

func puts(t *testing.T, b Backend, list ...*checkpointer.Put) {
	t.Helper()
	write(t, b, func(tx run.Tx) error {
		for _, p := range list {
			if err := tx.PutCheckpoint(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func load(t *testing.T, b Backend, k checkpointer.Key) *checkpointer.Tuple {
	t.Helper()
	got, err := b.Runs.LoadCheckpoint(ctx, k)
	require.NoError(t, err)
	return got
}

func listed(t *testing.T, b Backend, q checkpointer.List) []string {
	t.Helper()
	got, err := b.Threads.ListCheckpoints(ctx, q)
	require.NoError(t, err)
	out := []string{}
	for _, c := range got {
		out = append(out, c.NS+"@"+string(c.ID))
	}
	return out
}

// asKept compares JSON of checkpoints by what it says where the storage keeps it so; numbers keep
// their digits.
func asKept(b Backend) cmp.Option {
	if !b.JSONB {
		return nil
	}
	return cmp.FilterPath(func(p cmp.Path) bool {
		last := p.Last().String()
		return p.Index(-2).Type() == reflect.TypeFor[checkpointer.Checkpoint]() && (last == ".Data" || last == ".Metadata")
	}, cmp.Transformer("JSON", func(text json.RawMessage) (v any) {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			return err.Error()
		}
		return v
	}))
}

func blobText(t *checkpointer.Tuple) map[string]string {
	out := map[string]string{}
	for _, b := range t.Blobs {
		out[b.Channel] = string(b.Data)
	}
	return out
}

var checkpointCases = map[string]func(*testing.T, Backend){
	"everything comes back as it was": func(t *testing.T, b Backend) {
		p := put(key(1, "n:1", "c2"), "c1", raw(`{"step": 1, "big":12345678901234567890}`), blob("a", "1", "va"),
			checkpointer.Blob{Channel: "e", Version: "2", Type: "empty"})
		p.Run, p.Tasks, p.Shape, p.ShapeJSON = runID(1), raw(`[ {"id":"t"} ]`), "digest", raw(`{"out": "x"}`)
		puts(t, b, p)
		want := &checkpointer.Tuple{Checkpoint: p.Checkpoint, Blobs: p.Blobs}
		same(t, want, load(t, b, p.Key), cmpopts.EquateEmpty(), asKept(b))

		require.Nil(t, load(t, b, key(1, "n:1", "c1")))
		require.Nil(t, load(t, b, key(1, "", "")))
		require.Nil(t, load(t, b, key(2, "n:1", "c2")))

		shape, err := b.Runs.LoadShape(ctx, "digest")
		require.NoError(t, err)
		require.Equal(t, `{"out": "x"}`, string(shape))
		shape, err = b.Runs.LoadShape(ctx, "other")
		require.NoError(t, err)
		require.Nil(t, shape)
	},
	"which checkpoint a key names": func(t *testing.T, b Backend) {
		puts(t, b, put(key(1, "", "c2"), "", nil), put(key(1, "", "c3"), "", nil), put(key(1, "n", "c9"), "", nil))
		require.NoError(t, b.Threads.Write(ctx, func(tx thread.Tx) error {
			finds := func(k checkpointer.Key, want id.Checkpoint) {
				t.Helper()
				found, err := tx.Find(k)
				require.NoError(t, err)
				require.Equal(t, want, found)
			}
			finds(key(1, "", ""), "c3")
			finds(key(1, "n", ""), "c9")
			finds(key(1, "", "c2"), "c2")
			finds(key(1, "", "c9"), "")
			finds(key(1, "m", ""), "")
			finds(key(2, "", ""), "")
			require.NoError(t, tx.PutCheckpoint(put(key(1, "", "c4"), "c3", nil)))
			finds(key(1, "", ""), "c4") // a transaction sees what it has done itself
			return nil
		}))
	},
	"the newest of a namespace": func(t *testing.T, b Backend) {
		puts(t, b, put(key(1, "", "c2"), "", nil), put(key(1, "", "c3"), "", nil), put(key(1, "", "c1"), "", nil), put(key(1, "n", "c9"), "", nil))
		require.Equal(t, id.Checkpoint("c3"), load(t, b, key(1, "", "")).ID)
		require.Equal(t, id.Checkpoint("c9"), load(t, b, key(1, "n", "")).ID)
		write(t, b, func(tx run.Tx) error {
			head, err := tx.Head(threadID(1))
			if err != nil || head.ID != "c3" || head.Blobs != nil {
				return fmt.Errorf("head is %+v: %w", head, err)
			}
			// A transaction sees what it has done itself.
			if err := tx.PutCheckpoint(put(key(1, "", "c4"), "c3", nil)); err != nil {
				return err
			}
			if head, err = tx.Head(threadID(1)); err != nil || head.ID != "c4" {
				return fmt.Errorf("head is %+v: %w", head, err)
			}
			if head, err = tx.Head(threadID(2)); head != nil {
				return fmt.Errorf("head of nothing is %+v", head)
			}
			return err
		})
	},
	"blobs by the versions of the checkpoint": func(t *testing.T, b Backend) {
		puts(
			t, b, put(key(1, "", "c1"), "", nil, blob("a", "1", "a1"), blob("b", "1", "b1")),
			put(key(1, "", "c2"), "c1", nil, blob("a", "2", "a2"), unchanged("b", "1")),
			put(key(1, "n", "c2"), "", nil, blob("a", "1", "other namespace")),
			put(key(1, "", "c3"), "c2", nil, blob("a", "2", "too late: it exists"), blob("b", "0003.5", "b3")),
		)
		require.Equal(t, map[string]string{"a": "a1", "b": "b1"}, blobText(load(t, b, key(1, "", "c1"))))
		require.Equal(t, map[string]string{"a": "a2", "b": "b1"}, blobText(load(t, b, key(1, "", "c2"))))
		require.Equal(t, map[string]string{"a": "a2", "b": "b3"}, blobText(load(t, b, key(1, "", ""))))
		require.Equal(t, map[string]string{"a": "other namespace"}, blobText(load(t, b, key(1, "n", ""))))

		// Versions are numbers in some writers.
		p := put(key(2, "", "c1"), "", nil, blob("i", "7", "int"), blob("f", "1.5", "float"))
		p.Data = raw(`{"channel_versions":{"i":7,"f":1.5,"gone":3}}`)
		puts(t, b, p)
		require.Equal(t, map[string]string{"i": "int", "f": "float"}, blobText(load(t, b, p.Key)))

		list, err := b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: threadID(1)})
		require.NoError(t, err)
		for _, c := range list {
			same(t, load(t, b, c.Key), c)
		}
	},
	"putting again replaces": func(t *testing.T, b Backend) {
		p := put(key(1, "", "c1"), "", nil, blob("a", "1", "a1"))
		p.Run, p.Tasks = runID(1), raw(`[]`)
		puts(t, b, p)
		require.NoError(t, b.Runs.KeepAnswer(ctx, p.Key, "k", raw(`1`)))
		again := put(p.Key, "c0", raw(`{"again":true}`), blob("a", "2", "a2"))
		puts(t, b, again)
		same(t, &checkpointer.Tuple{Checkpoint: again.Checkpoint, Blobs: again.Blobs}, load(t, b, p.Key), cmpopts.EquateEmpty(), asKept(b))
		answer, err := b.Runs.LoadAnswer(ctx, p.Key, "k")
		require.NoError(t, err)
		require.Nil(t, answer)
	},
	"writes": func(t *testing.T, b Backend) {
		k := key(1, "", "c1")
		puts(t, b, put(k, "", nil))
		w := func(task string, index int, data string) checkpointer.Write {
			return checkpointer.Write{TaskID: task, Index: index, Channel: "ch", Type: "msgpack", Data: []byte(data), Path: "p"}
		}
		write(t, b, func(tx run.Tx) error {
			return firstError(
				tx.PutWrites(k, []checkpointer.Write{w("t2", 1, "b"), w("t2", 0, "a"), w("t1", 0, "c"), w("t1", -1, "error")}),
				tx.PutWrites(k, []checkpointer.Write{w("t2", 0, "kept out"), w("t1", -1, "newer error"), w("t1", -4, "resume")}),
				tx.PutWrites(key(1, "", "c0"), []checkpointer.Write{w("t1", 0, "of a checkpoint that comes later")}),
			)
		})
		got := load(t, b, k)
		same(t, []checkpointer.Write{w("t1", -4, "resume"), w("t1", -1, "newer error"), w("t1", 0, "c"), w("t2", 0, "a"), w("t2", 1, "b")}, got.Writes)

		none := checkpointer.Write{TaskID: "t", Index: 0, Channel: "__no_writes__", Type: "null"}
		write(t, b, func(tx run.Tx) error { return tx.PutWrites(key(1, "", "c1"), []checkpointer.Write{none}) })
		same(t, none, load(t, b, k).Writes[0], cmpopts.EquateEmpty())
	},
	"lists": func(t *testing.T, b Backend) {
		for n := 1; n <= 5; n++ {
			puts(t, b, put(key(1, "", fmt.Sprintf("c%d", n)), "", raw(fmt.Sprintf(`{"step":%d,"odd":{"is":%v}}`, n, n%2 == 1))))
		}
		puts(t, b, put(key(1, "n", "c3"), "", raw(`{"step":3}`)), put(key(2, "", "c9"), "", nil))
		root, nested := "", "n"
		for _, tt := range []struct {
			name string
			q    checkpointer.List
			want []string
		}{
			{"all namespaces", checkpointer.List{}, []string{"@c5", "@c4", "@c3", "n@c3", "@c2", "@c1"}},
			{"root", checkpointer.List{NS: &root}, []string{"@c5", "@c4", "@c3", "@c2", "@c1"}},
			{"nested", checkpointer.List{NS: &nested}, []string{"n@c3"}},
			{"limit", checkpointer.List{NS: &root, Limit: 2}, []string{"@c5", "@c4"}},
			{"before", checkpointer.List{NS: &root, Before: "c3"}, []string{"@c2", "@c1"}},
			{"before, all namespaces", checkpointer.List{Before: "c4", Limit: 2}, []string{"@c3", "n@c3"}},
			{"one", checkpointer.List{NS: &root, ID: "c3"}, []string{"@c3"}},
			{"one, all namespaces", checkpointer.List{ID: "c3"}, []string{"@c3", "n@c3"}},
			{"one, but before it", checkpointer.List{ID: "c3", Before: "c3"}, []string{}},
			{"metadata", checkpointer.List{NS: &root, Metadata: raw(`{"odd":{"is":true}}`), Limit: 2}, []string{"@c5", "@c3"}},
			{"metadata, all namespaces", checkpointer.List{Metadata: raw(`{"step":3.0}`)}, []string{"@c3", "n@c3"}},
			{"nothing", checkpointer.List{Metadata: raw(`{"step":"3"}`)}, []string{}},
		} {
			tt.q.Thread = threadID(1)
			require.Equal(t, tt.want, listed(t, b, tt.q), tt.name)
		}
	},
	"deleting a run's checkpoints": func(t *testing.T, b Backend) {
		first := put(key(1, "", "c1"), "", nil, blob("a", "1", "a1"), blob("b", "1", "b1"))
		second := put(key(1, "", "c2"), "c1", nil, blob("a", "2", "a2"), unchanged("b", "1"))
		nested := put(key(1, "n", "c3"), "", nil, blob("a", "2", "nested"))
		first.Run, second.Run, nested.Run = runID(1), runID(2), runID(2)
		other := put(key(2, "", "c2"), "", nil, blob("a", "2", "other thread"))
		other.Run = runID(2)
		puts(t, b, first, second, nested, other)
		w := []checkpointer.Write{{TaskID: "t", Channel: "ch", Type: "msgpack", Data: []byte("w")}}
		write(t, b, func(tx run.Tx) error { return firstError(tx.PutWrites(first.Key, w), tx.PutWrites(second.Key, w)) })
		write(t, b, func(tx run.Tx) error { return tx.DeleteRunCheckpoints(threadID(1), runID(2), false) })

		require.Equal(t, []string{"@c1"}, listed(t, b, checkpointer.List{Thread: threadID(1)}))
		require.Len(t, load(t, b, first.Key).Writes, 1) // also those that the deleted run left on it
		require.Equal(t, map[string]string{"a": "a1", "b": "b1"}, blobText(load(t, b, first.Key)))
		require.NotNil(t, load(t, b, other.Key))

		// The next run may use the same ids and versions for something else.
		puts(t, b, put(second.Key, "c1", nil, blob("a", "2", "another a2"), unchanged("b", "1")))
		again := load(t, b, second.Key)
		require.Equal(t, map[string]string{"a": "another a2", "b": "b1"}, blobText(again))
		require.Empty(t, again.Writes)
		write(t, b, func(tx run.Tx) error { return tx.DeleteRunCheckpoints(threadID(1), runID(7), false) }) // none
	},
	"deleting a run's checkpoints under another run": func(t *testing.T, b Backend) {
		first := put(key(1, "", "c1"), "", nil, blob("a", "1", "a1"), list("items", "1", packed(items(0, 40, 300))))
		first.Run = runID(1)
		puts(t, b, first)
		// Run 2 has loaded c1 and saved nothing yet.
		write(t, b, func(tx run.Tx) error { return tx.DeleteRunCheckpoints(threadID(1), runID(1), true) })
		require.Empty(t, listed(t, b, checkpointer.List{Thread: threadID(1)}))
		second := put(key(1, "", "c2"), "c1", nil, blob("b", "2", "b2"), unchanged("a", "1"), unchanged("items", "1"))
		second.Run = runID(2)
		puts(t, b, second)
		holds(t, b, second.Key, blob("a", "1", "a1"), blob("b", "2", "b2"), list("items", "1", packed(items(0, 40, 300))))
	},
	"copying": func(t *testing.T, b Backend) {
		from := string(threadID(1))
		p := put(key(1, "", "c1"), "c0", raw(`{"z" : 1.0, "thread_id": "`+from+`", "nested":{"thread_id":"`+from+`"}, "é":"<"}`), blob("a", "1", "a1"))
		p.Run, p.Tasks, p.Shape = runID(1), raw(`[]`), "s"
		nested := put(key(1, "n", "c2"), "", raw(`{"step":1}`))
		puts(t, b, p, nested)
		w := []checkpointer.Write{{TaskID: "t", Index: -3, Channel: "ch", Type: "msgpack", Data: []byte("w"), Path: "p"}}
		write(t, b, func(tx run.Tx) error {
			return tx.PutWrites(p.Key, w)
		})
		copyThread(t, b, 1, 2)
		want := &checkpointer.Tuple{Checkpoint: p.Checkpoint, Blobs: p.Blobs, Writes: w}
		same(t, want, load(t, b, p.Key), asKept(b)) // untouched
		want.Thread = threadID(2)
		want.Metadata = raw(`{"z" : 1.0, "thread_id": "` + string(threadID(2)) + `", "nested":{"thread_id":"` + from + `"}, "é":"<"}`)
		same(t, want, load(t, b, key(2, "", "c1")), asKept(b))
		require.Equal(t, []string{"n@c2", "@c1"}, listed(t, b, checkpointer.List{Thread: threadID(2)}))
		require.JSONEq(t, `{"step":1}`, string(load(t, b, key(2, "n", "c2")).Metadata))
	},
	"pruning": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		puts(
			t, b, put(key(1, "", "c1"), "", nil, blob("a", "1", "a1"), blob("b", "1", "b1")),
			put(key(1, "", "c2"), "c1", nil, blob("a", "2", "a2"), unchanged("b", "1")),
			put(key(1, "", "c3"), "c2", nil, blob("a", "3", "a3"), unchanged("b", "1")),
			put(key(1, "n", "c2"), "", nil, blob("a", "1", "n1")),
			put(key(2, "", "c1"), "", nil),
		)
		w := []checkpointer.Write{{TaskID: "t", Channel: "ch", Type: "msgpack", Data: []byte("w")}}
		write(t, b, func(tx run.Tx) error {
			return firstError(tx.PutWrites(key(1, "", "c2"), w), tx.PutWrites(key(1, "", "c3"), w))
		})
		require.Equal(t, 2, prune(t, b, 1))
		require.Equal(t, []string{"@c3", "n@c2"}, listed(t, b, checkpointer.List{Thread: threadID(1)}))
		head := load(t, b, key(1, "", ""))
		require.Equal(t, map[string]string{"a": "a3", "b": "b1"}, blobText(head))
		require.Len(t, head.Writes, 1)
		require.Empty(t, head.Parent) // it is gone
		require.Equal(t, map[string]string{"a": "n1"}, blobText(load(t, b, key(1, "n", ""))))
		require.Equal(t, 0, prune(t, b, 1))
	},
	"answers": func(t *testing.T, b Backend) {
		k := key(1, "n", "c1")
		puts(t, b, put(k, "", nil))
		get := func(k checkpointer.Key, name string) string {
			got, err := b.Threads.LoadAnswer(ctx, k, name)
			require.NoError(t, err)
			return string(got)
		}
		require.Empty(t, get(k, "live"))
		require.NoError(t, b.Threads.KeepAnswer(ctx, k, "live", raw(`{"a": 1.0}`)))
		require.NoError(t, b.Threads.KeepAnswer(ctx, k, "record", raw(`2`)))
		require.Equal(t, `{"a": 1.0}`, get(k, "live"))
		require.NoError(t, b.Threads.KeepAnswer(ctx, k, "live", raw(`3`)))
		require.Equal(t, `3`, get(k, "live"))
		require.Equal(t, `2`, get(k, "record"))
		// Of a checkpoint that is gone: nothing happens.
		require.NoError(t, b.Threads.KeepAnswer(ctx, key(1, "n", "c2"), "live", raw(`1`)))
		require.Empty(t, get(key(1, "n", "c2"), "live"))
	},
}
