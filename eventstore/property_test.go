package eventstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/seedtest"
)

// tree makes a random tree of checkpoints, each after its parent: turns, summaries, edits, deletions, resets, null ids.
func tree(r *rand.Rand, n int) []checkpoint {
	script := []checkpoint{{id: "0", messages: list(human("h0", "hello"))}}
	for i := 1; i < n; i++ {
		p := script[max(0, len(script)-1-r.IntN(3)*r.IntN(2))] // mostly the newest
		ms := append([]message{}, p.messages...)
		c := checkpoint{id: fmt.Sprint(i), parent: p.id, run: fmt.Sprint("r", i)}
		switch k := r.IntN(12); {
		case k == 0 && len(ms) > 3:
			cut := 1 + r.IntN(len(ms)-2)
			ms = append(list(summary(fmt.Sprint("s", i), fmt.Sprint("sum", i))), ms[cut:]...)
		case k == 1 && len(ms) > 3:
			ms = ms[1+r.IntN(len(ms)-2):]
			c.summary = fmt.Sprint("channel", i)
		case k == 2 && len(ms) > 1:
			c.source = "update"
			at := r.IntN(len(ms))
			ms = append(append([]message{}, ms[:at]...), ms[at+1:]...)
		case k == 3 && len(ms) > 0:
			ms[r.IntN(len(ms))].content = fmt.Sprint("edited", i)
		case k == 4 && r.IntN(3) == 0:
			ms = list()
		case k == 5:
			ms = append(ms, human("", "ok"))
		case k == 6 && len(ms) > 0:
			at := r.IntN(len(ms))
			ms = append(append(append([]message{}, ms[:at]...), tool(fmt.Sprint("t", i), fmt.Sprint("found", i))), ms[at:]...)
		default:
			ms = append(ms, human(fmt.Sprint("h", i), fmt.Sprint("say", i)), ai(fmt.Sprint("a", i), fmt.Sprint("said", i)))
		}
		c.messages = ms
		script = append(script, c)
	}
	return script
}

// shuffled puts a tree in another order that has each checkpoint after its parent.
func shuffled(r *rand.Rand, script []checkpoint) []checkpoint {
	children := map[string][]checkpoint{}
	for _, c := range script {
		children[c.parent] = append(children[c.parent], c)
	}
	ready, out := children[""], []checkpoint{}
	for len(ready) > 0 {
		i := r.IntN(len(ready))
		c := ready[i]
		ready = append(append([]checkpoint{}, ready[:i]...), ready[i+1:]...)
		out = append(out, c)
		ready = append(ready, children[c.id]...)
	}
	return out
}

// What a checkpoint shows depends on its lineage alone: not on the order in which branches were recorded, nor on what is in memory.
func TestOrderOfBranchesDoesNotMatter(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		script := tree(r, 60)
		want := newMemory()
		play(t, want, script)
		consistent(t, want)
		for range 2 {
			got := newMemory()
			for _, c := range shuffled(r, script) {
				if r.IntN(4) == 0 {
					got.cache = eventstore.NewCache()
				}
				play(t, got, []checkpoint{c})
			}
			consistent(t, got)
			for _, c := range script {
				at := id.Checkpoint(c.id)
				if diff := cmp.Diff(shown(t, want, at), shown(t, got, at)); diff != "" {
					t.Fatalf("seed %d, checkpoint %s (-in order +shuffled)\n%s", seed, at, diff)
				}
			}
		}
	}
}

// The list of a checkpoint names its messages one by one, whatever happened to them.
func TestListNamesEveryMessage(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(30) {
		script := tree(rand.New(rand.NewPCG(seed, 2)), 60)
		m := newMemory()
		play(t, m, script)
		for _, c := range script {
			tr := transcript(t, m, id.Checkpoint(c.id))
			require.Len(t, tr.List, len(c.messages), "seed %d, checkpoint %s", seed, c.id)
			for i, e := range tr.List {
				if mid := c.messages[i].id; mid != "" {
					require.Equal(t, mid, m.events[e.Seq-1].MessageID)
				}
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(pack(m1, m2), pack(summary("s", "sum"), m2, m3))
	f.Add(pack(human("", "ok"), human("", "ok")), pack(human("", "ok")))
	f.Add([]byte{0x90}, []byte{0xc0})
	for _, c := range conversations(f) {
		for _, e := range c.Log {
			if e.Put != nil && e.Put.Blobs["messages"].Data != nil {
				f.Add(pack(m1), e.Put.Blobs["messages"].Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		m := newMemory()
		for _, c := range []checkpoint{{id: "a", raw: first}, {id: "b", parent: "a", raw: second}, {id: "c", parent: "b", raw: first}} {
			if c.raw == nil {
				return
			}
			require.NoError(t, eventstore.Record(m, c.facts(m)), "a graph can save what it likes")
			m.cache = eventstore.NewCache()
		}
		for _, r := range m.rows {
			if !r.Opaque {
				transcript(t, m, r.Checkpoint)
			}
		}
	})
}

func FuzzFold(f *testing.F) {
	m := newMemory()
	play(f, m, tree(rand.New(rand.NewPCG(1, 1)), 40))
	for i := 1; i < len(m.nodes); i++ {
		f.Add(m.nodes[i-1].Data, m.nodes[i].Data)
	}
	f.Fuzz(func(_ *testing.T, whole, more []byte) {
		_, _ = eventstore.Fold(&eventstore.Row{Node: 2}, []eventstore.Node{{ID: 1, Data: whole}, {ID: 2, Base: 1, Data: more}})
	})
}

func BenchmarkRecord(b *testing.B) {
	const text = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. "
	for _, n := range []int{20, 2000} {
		before := make([]message, n)
		for i := range before {
			before[i] = human(fmt.Sprint("m", i), text+fmt.Sprint(i))
		}
		packed := pack(before...)
		appended := pack(append(before[:n:n], human("x", text), ai("y", text))...)
		condensed := pack(append(list(summary("s", "sum")), before[n-10:]...)...)
		for _, bench := range []struct {
			name string
			raw  []byte
			cold bool
		}{{"append", appended, false}, {"condense", condensed, false}, {"append/cold", appended, true}} {
			b.Run(fmt.Sprintf("%s/messages=%d", bench.name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(bench.raw)))
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					m := newMemory()
					play(b, m, []checkpoint{{id: "a", raw: packed}})
					if bench.cold {
						m.cache = eventstore.NewCache()
					}
					f := checkpoint{id: "b", parent: "a", raw: bench.raw}.facts(m)
					b.StartTimer()
					if err := eventstore.Record(m, f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// FuzzFacts: what a checkpoint says of itself is a graph's word, and is read whatever it is.
func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"ts":"2026-01-02T03:04:05+00:00","channel_versions":{"messages":"1","summary":"2"},"channel_values":{"summary":"s"}}`), []byte(`{"source":"loop","step":1,"graph_id":"g"}`), pack(m1))
	f.Add([]byte(`{"channel_versions":[],"channel_values":1}`), []byte(`{"step":1e400,"source":{}}`), []byte{0xc1})
	f.Fuzz(func(t *testing.T, data, metadata, messages []byte) {
		p := &checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{Key: checkpointer.Key{Thread: "t", ID: "c"}, Data: data, Metadata: metadata},
			Blobs:      []checkpointer.Blob{{Channel: "messages", Version: "1", Type: "msgpack", Data: messages}, {Channel: "summary", Version: "2", Type: "msgpack", Data: messages}},
		}
		require.NoError(t, eventstore.Record(newMemory(), eventstore.FactsOf(p)))
	})
}
