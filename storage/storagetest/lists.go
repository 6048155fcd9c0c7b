package storagetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

// items are texts of some length, numbered.
func items(from, to, length int) (list [][]byte) {
	for n := from; n < to; n++ {
		list = append(list, msgp.AppendString(nil, fmt.Sprintf("%d %s", n, strings.Repeat("x", length))))
	}
	return list
}

// packed is a list as LangGraph's serialiser writes it.
func packed(parts ...[][]byte) []byte {
	var all [][]byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return append(msgp.AppendArrayHeader(nil, uint32(len(all))), bytes.Join(all, nil)...)
}

func list(channel, version string, data []byte) checkpointer.Blob {
	return checkpointer.Blob{Channel: channel, Version: version, Type: "msgpack", Data: data}
}

// holds requires that a checkpoint has exactly these values, whether it is loaded or listed.
func holds(t *testing.T, b Backend, k checkpointer.Key, want ...checkpointer.Blob) {
	t.Helper()
	tuples, err := b.Threads.ListCheckpoints(ctx, checkpointer.List{Thread: k.Thread})
	require.NoError(t, err)
	for i, tuple := range append(tuples, load(t, b, k)) {
		if tuple.ID != k.ID || tuple.NS != k.NS {
			require.Less(t, i, len(tuples))
			continue
		}
		require.Len(t, tuple.Blobs, len(want))
		for j := range want {
			got := &tuple.Blobs[j]
			require.Equal(t, want[j].Channel+" "+want[j].Version+" "+want[j].Type, got.Channel+" "+got.Version+" "+got.Type)
			require.True(t, bytes.Equal(want[j].Data, got.Bytes()), "channel %s of checkpoint %s", got.Channel, k.ID)
			require.Equal(t, len(want[j].Data), got.Size())
		}
	}
}

var listCases = map[string]func(*testing.T, Backend){
	"lists of all kinds come back byte for byte": func(t *testing.T, b Backend) {
		long := packed(items(0, 40, 300))
		p := put(
			key(1, "", "c1"), "", nil,
			list("a", "1", long), list("b", "1", packed(items(0, 400, 3))), list("c", "1", packed(items(0, 1, 10_000))),
			list("d", "1", append([]byte{0xdc, 0, 3}, bytes.Join(items(0, 3, 2000), nil)...)), // a longer header than is needed
			list("e", "1", long[:len(long)-1]), list("f", "1", append(bytes.Clone(long), 0xc0)),
			list("g", "1", packed(items(0, 3, 2), items(3, 5, 4000), items(5, 400, 1))), list("h", "1", packed()),
			list("i", "1", packed(items(0, 30, 200), items(0, 30, 200))),
			checkpointer.Blob{Channel: "j", Version: "1", Type: "bytes", Data: long},
		)
		puts(t, b, p)
		holds(t, b, p.Key, p.Blobs...)
		holds(t, b.reopen(t), p.Key, p.Blobs...)
	},
	"parts of values are those of the whole values": func(t *testing.T, b Backend) {
		random := rand.New(rand.NewPCG(7, 11))
		lengths := []int{1, 30, 150, 700}
		for n := range 12 {
			var parts [][][]byte
			for from := 0; from < 20+60*n; from += 20 {
				parts = append(parts, items(from, from+1+random.IntN(20), lengths[random.IntN(len(lengths))]))
			}
			k := key(1, "", fmt.Sprintf("c%02d", n))
			p := put(k, "", nil, list("a", fmt.Sprint(n), packed(parts...)), list("b", fmt.Sprint(n), packed(items(0, n, 3))), blob("text", fmt.Sprint(n), "x"))
			p.Metadata = json.RawMessage(`{"step":1}`)
			puts(t, b, p)
			write(t, b, func(tx run.Tx) error {
				return tx.PutWrites(k, []checkpointer.Write{{TaskID: "t", Channel: "text", Type: "msgpack", Data: []byte("123")}})
			})
			whole := load(t, b, k)
			of := func(channel string) *checkpointer.Blob {
				for i := range whole.Blobs {
					if whole.Blobs[i].Channel == channel {
						return &whole.Blobs[i]
					}
				}
				return nil
			}
			for range 30 {
				var picks []checkpointer.Pick
				for range random.IntN(4) {
					picks = append(picks, checkpointer.Pick{Channel: []string{"a", "b", "text", "none"}[random.IntN(4)], Whole: random.IntN(6) == 0, Item: []int{0, -1, 1, -2, random.IntN(900) - 450}[random.IntN(5)]})
				}
				got, err := b.Threads.(checkpointer.PartReader).LoadParts(ctx, k, picks)
				require.NoError(t, err)
				require.Equal(t, whole.Checkpoint, got.Checkpoint)
				require.Equal(t, whole.Writes, got.Writes)
				for i := range got.Blobs {
					g := &got.Blobs[i]
					want := of(g.Channel)
					all, wanted := checkpointer.Picked(picks, g.Channel)
					require.True(t, all || wanted != nil, "%s was not picked", g.Channel)
					require.Equal(t, want.Type, g.Type)
					if g.Some == nil {
						require.Equal(t, want.Bytes(), g.Bytes())
						continue
					}
					require.False(t, all)
					list, err := want.SplitList()
					require.NoError(t, err)
					require.Equal(t, len(list), g.Length)
					for _, p := range wanted {
						var item []byte
						if at := p.Position(len(list)); at >= 0 && at < len(list) {
							item = list[at]
						}
						require.Equal(t, item, g.Some[p.Position(len(list))], "item %d of %d", p.Item, len(list))
					}
				}
				for _, p := range picks {
					if p.Channel != "none" {
						require.True(t, slices.ContainsFunc(got.Blobs, func(g checkpointer.Blob) bool { return g.Channel == p.Channel }), "%+v", p)
					}
				}
			}
		}
		none, err := b.Threads.(checkpointer.PartReader).LoadParts(ctx, key(9, "", "c1"), nil)
		require.NoError(t, err)
		require.Nil(t, none)
	},
	"lists that grow, shrink and share": func(t *testing.T, b Backend) {
		type step struct {
			ns   string
			data [2][]byte
		}
		var steps []step
		for n := range 150 {
			s := step{"", [2][]byte{packed(items(0, n*3, 200)), packed(items(5000, 5000+n, 150))}}
			switch {
			case n%10 == 9: // a subgraph has the same messages
				s.ns = fmt.Sprintf("sub:%d", n)
			case n > 120: // the oldest were summarized
				s.data[0] = packed(items(9000, 9001, 500), items(200, n*3, 200))
			}
			steps = append(steps, s)
		}
		for n, s := range steps {
			v := fmt.Sprint(n)
			puts(t, b, put(key(1, s.ns, fmt.Sprintf("c%04d", n)), "", nil, list("messages", v, s.data[0]), list("other", v, s.data[1])))
			if n == 70 {
				b = b.reopen(t)
			}
		}
		for _, n := range []int{0, 1, 9, 70, 71, 119, 121, 139, 149} {
			v := fmt.Sprint(n)
			holds(t, b, key(1, steps[n].ns, fmt.Sprintf("c%04d", n)), list("messages", v, steps[n].data[0]), list("other", v, steps[n].data[1]))
		}
	},
	"the tree of a thread lists its root checkpoints without values": func(t *testing.T, b Backend) {
		tree := func(n int, before id.Checkpoint, limit int) []thread.Step {
			t.Helper()
			steps, err := b.Threads.Tree(ctx, threadID(n), before, limit)
			require.NoError(t, err)
			return steps
		}
		require.Empty(t, tree(1, "", 10))
		random := rand.New(rand.NewPCG(3, 5))
		var want []thread.Step // newest first
		for n := range 40 {
			s := thread.Step{ID: id.Checkpoint(fmt.Sprintf("c%04d", n)), Source: []string{"input", "loop", "update", "fork"}[random.IntN(4)], Number: n - 1}
			if n > 0 {
				s.Parent = want[random.IntN(len(want))].ID
			}
			about := map[string]any{"source": s.Source, "step": s.Number}
			if s.Source != "update" {
				s.Run = id.Run(fmt.Sprintf("r%d", n/4))
				about["run_id"] = s.Run
			}
			metadata, err := json.Marshal(about)
			require.NoError(t, err)
			puts(t, b, put(key(1, "", string(s.ID)), s.Parent, metadata, blob("text", "1", "x")), put(key(1, "sub:1", fmt.Sprintf("s%04d", n)), "", nil), put(key(2, "", string(s.ID)), "", nil))
			want = append([]thread.Step{s}, want...)
		}
		require.Equal(t, want, tree(1, "", 1000))
		for range 20 {
			from, limit := random.IntN(len(want)), 1+random.IntN(12)
			got := append([]thread.Step{}, tree(1, want[from].ID, limit)...)
			require.Equal(t, want[from+1:min(from+1+limit, len(want))], got)
		}
	},
	"usage counts what a thread takes": func(t *testing.T, b Backend) {
		usage := func(n int) thread.Usage {
			t.Helper()
			u, err := b.Threads.Usage(ctx, threadID(n))
			require.NoError(t, err)
			return u
		}
		none := thread.Usage{Channels: map[string]thread.Amount{}}
		require.Equal(t, none, usage(1))
		puts(t, b, put(key(1, "", "c1"), "", nil, blob("text", "1", "12345"), checkpointer.Blob{Channel: "gone", Version: "1", Type: "empty"}), put(key(2, "", "c1"), "", nil))
		write(t, b, func(tx run.Tx) error {
			return tx.PutWrites(key(1, "", "c1"), []checkpointer.Write{{TaskID: "t", Channel: "text", Type: "msgpack", Data: []byte("123")}, {TaskID: "t", Index: 1, Channel: "text", Type: "msgpack"}})
		})
		u := usage(1)
		require.Equal(t, map[string]thread.Amount{"text": {Rows: 1, Bytes: 5 + b.Overhead}, "gone": {Rows: 1}}, u.Channels)
		require.Equal(t, thread.Amount{Rows: 2, Bytes: 3 + 2*b.Overhead}, u.Writes)
		require.Equal(t, 1, u.Checkpoints.Rows)
		require.Positive(t, u.Checkpoints.Bytes)
		// Lists: at least the longest version, at most all of them. Parts that channels share count
		// once, whichever they count for.
		size, all := 0, 0
		for n := 2; n < 12; n++ {
			v := packed(items(0, 20*n, 200))
			size, all = len(v), all+2*(len(v)+int(b.Overhead))
			puts(t, b, put(key(1, "", fmt.Sprintf("d%02d", n)), "", nil, list("m", fmt.Sprint(n), v), list("same", fmt.Sprint(n), v)))
		}
		u = usage(1)
		m, same := u.Channels["m"], u.Channels["same"]
		require.Equal(t, 10, m.Rows)
		require.Equal(t, 10, same.Rows)
		require.GreaterOrEqual(t, int(m.Bytes), size)
		require.LessOrEqual(t, int(m.Bytes+same.Bytes), all)
		if same.Bytes < m.Bytes { // kept by parts
			require.Less(t, int(m.Bytes+same.Bytes), size+size/4+220*int(b.Overhead))
		}
		copyThread(t, b, 1, 3)
		require.Equal(t, u.Channels, usage(3).Channels)
		require.Equal(t, 1, usage(2).Checkpoints.Rows)
		require.Empty(t, usage(2).Channels)
	},
	"a list of a version that exists stays out": func(t *testing.T, b Backend) {
		first := list("a", "1", packed(items(0, 10, 300)))
		puts(t, b, put(key(1, "", "c1"), "", nil, first), put(key(1, "", "c2"), "c1", nil, list("a", "1", packed(items(5, 50, 300)))))
		holds(t, b, key(1, "", "c1"), first)
		holds(t, b, key(1, "", "c2"), first)
		next := list("a", "2", packed(items(5, 50, 300)))
		puts(t, b, put(key(1, "", "c3"), "c2", nil, next))
		holds(t, b, key(1, "", "c3"), next)
	},
	"a write that fails leaves nothing of its lists": func(t *testing.T, b Backend) {
		one, two, three := list("a", "1", packed(items(0, 10, 300))), list("a", "2", packed(items(0, 30, 300))), list("a", "2", packed(items(0, 20, 300)))
		puts(t, b, put(key(1, "", "c1"), "", nil, one))
		require.ErrorIs(t, b.Runs.Write(ctx, func(tx run.Tx) error {
			return firstError(tx.PutCheckpoint(put(key(1, "", "c2"), "c1", nil, two)), tx.PutCheckpoint(put(key(2, "", "c2"), "", nil, two)), errBoom)
		}), errBoom)
		puts(t, b, put(key(1, "", "c2"), "c1", nil, three), put(key(2, "", "c2"), "", nil, three))
		holds(t, b, key(1, "", "c1"), one)
		holds(t, b, key(1, "", "c2"), three)
		holds(t, b, key(2, "", "c2"), three)
	},
	"lists go with what has them, and only then": func(t *testing.T, b Backend) {
		insertThreads(t, b, newThread(1))
		value := func(n int) checkpointer.Blob { return list("a", fmt.Sprint(n), packed(items(0, 10*n, 300))) }
		for n := 1; n <= 6; n++ {
			p := put(key(1, "", fmt.Sprintf("c%d", n)), "", nil, value(n))
			p.Run = runID((n + 1) / 2)
			puts(t, b, p)
		}
		copyThread(t, b, 1, 2)
		write(t, b, func(tx run.Tx) error { return tx.DeleteRunCheckpoints(threadID(1), runID(3), false) })
		holds(t, b, key(1, "", "c4"), value(4))
		again := list("a", "5", packed(items(100, 160, 300)))
		puts(t, b, put(key(1, "", "c5"), "", nil, again))
		holds(t, b, key(1, "", "c5"), again)

		prune(t, b, 1)
		holds(t, b, key(1, "", "c5"), again)
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(threadID(1)) })
		for n := 1; n <= 6; n++ { // the copy has its own
			holds(t, b, key(2, "", fmt.Sprintf("c%d", n)), value(n))
		}
		puts(t, b, put(key(1, "", "c1"), "", nil, value(2)), put(key(2, "", "c7"), "c6", nil, value(7)))
		holds(t, b, key(1, "", "c1"), value(2))
		holds(t, b, key(2, "", "c7"), value(7))
	},
	"recording reads lists within the transaction": func(t *testing.T, b Backend) {
		data := packed(items(0, 20, 300))
		write(t, b, func(tx run.Tx) error {
			if err := tx.PutCheckpoint(put(key(1, "", "c1"), "", nil, list("messages", "1", data))); err != nil {
				return err
			}
			typ, got, err := tx.ChannelValue(threadID(1), "messages", "1")
			if typ != "msgpack" || !bytes.Equal(got, data) {
				return fmt.Errorf("the value is %s of %d bytes: %w", typ, len(got), err)
			}
			return err
		})
	},
}
