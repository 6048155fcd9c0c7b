package overlay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/internal/seedtest"
	"understudy/thread"
)

// wideShape describes a graph with channels of all kinds.
const wideShape = `{"out":["messages","title","files","notes","topic","after","hidden","barrier","nothing","summary"],"channels":{
	"messages":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}},"title":{"kind":"LastValue"},"files":{"kind":"LastValue"},
	"notes":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}},"topic":{"kind":"Topic"},"after":{"kind":"LastValueAfterFinish"},
	"hidden":{"kind":"UntrackedValue"},"barrier":{"kind":"NamedBarrierValue"},"nothing":{"kind":"BinaryOperatorAggregate","empty":{"type":"msgpack","data":"kA=="}},"summary":{"kind":"LastValue"}}}`

// wide adds random values of other channels to a checkpoint.
func (w *world) wide(rnd *rand.Rand, p *checkpointer.Put) {
	p.Shape, p.ShapeJSON = "wide", json.RawMessage(wideShape)
	list := func(n, length int) []byte {
		b := msgp.AppendArrayHeader(nil, uint32(n))
		for i := range n {
			switch rnd.IntN(6) {
			case 0:
				b = msgp.AppendNil(b)
			case 1:
				b = msgp.AppendArrayHeader(b, 2)
				b = msgp.AppendInt(msgp.AppendInt(b, i), n)
			default:
				b = msgp.AppendMapHeader(b, 2)
				b = msgp.AppendString(msgp.AppendString(b, "text"), fmt.Sprintf("%0*d", 1+rnd.IntN(length), i))
				b = msgp.AppendNil(msgp.AppendString(b, "a"))
			}
		}
		return b
	}
	values := map[string][]byte{"notes": list(rnd.IntN(60), 300), "topic": list(rnd.IntN(3), 900)}
	files := msgp.AppendMapHeader(nil, 2)
	files = append(msgp.AppendString(files, "a"), list(3, 900)...)
	values["files"] = msgp.AppendString(msgp.AppendString(files, "b[0]"), "x")
	after := append(msgp.AppendArrayHeader(nil, 2), list(9, 400)...)
	values["after"] = msgp.AppendBool(after, rnd.IntN(2) == 0)
	values["hidden"], values["barrier"] = list(3, 900), list(3, 900)
	if rnd.IntN(2) == 0 {
		values["summary"] = msgp.AppendString(nil, fmt.Sprintf("summary %d", rnd.IntN(3)))
	}
	for channel, data := range values {
		if rnd.IntN(5) == 0 {
			continue
		}
		version := fmt.Sprintf("%032d.1", w.n)
		p.Blobs = append(p.Blobs, checkpointer.Blob{Channel: channel, Version: version, Type: "msgpack", Data: data})
		p.Data = bytes.Replace(p.Data, []byte(`"channel_versions":{`), fmt.Appendf(nil, `"channel_versions":{%q:%q,`, channel, version), 1)
	}
}

// counted counts how often all values are composed.
type counted struct {
	*checkpointer.Snapshots
	n int
}

func (c *counted) Values(ctx context.Context, k checkpointer.Key) (json.RawMessage, error) {
	c.n++
	return c.Snapshots.Values(ctx, k)
}

// What a search extracts without showing values is what is at these paths of the values that it would show.
func TestExtractsAreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	paths := []string{
		"values.messages", "values.messages[0]", "values.messages[0].content", "values.messages[-1].content", "values.messages[-1].id", "values.messages[1]", "values.messages[-2].additional_kwargs",
		"values.messages[30].id", "values.messages[900]", "values.messages[-900]", "values.messages.content", "values.messages[x]", "values.messages[0", "values.messages[0][0]",
		"values.title", "values.title.x", "values.title[0]", "values.files", "values.files.a", "values.files.a[-1].text", "values.files.b", "values.files.b[0]", "values.notes", "values.notes[0]",
		"values.notes[-1].text", "values.notes[7]", "values.notes[3][1]", "values.notes[]", "values.topic", "values.topic[0]", "values.topic[-1]", "values.after", "values.after[0]", "values.after[1].text",
		"values.hidden", "values.hidden[0]", "values.barrier", "values.barrier[0]", "values.nothing", "values.nothing[0]", "values.none", "values.none[0]", "values.summary", "values.summary[0]", "values..title",
		"metadata.graph_id", "metadata", "config.x", "interrupts", "interrupts[0]",
	}
	composed, shows := &counted{}, 0
	for seed := range seedtest.Seeds(40) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		w := setup(t)
		var list []msg
		if rnd.IntN(3) == 0 {
			w.grow(rnd, 1+rnd.IntN(40)) // with its last state of two channels
		} else {
			odd, last := rnd.IntN(6), rnd.IntN(30) // one kind of oddity, so that the others do not hide it
			for n := range last + 1 {
				if odd == 0 && rnd.IntN(9) == 0 && len(list) > 6 {
					list = append(ms(fmt.Sprintf("S%d", n)), list[len(list)-1-rnd.IntN(3):]...)
				}
				m := msg{[]string{"human", "ai", "tool"}[rnd.IntN(3)], fmt.Sprintf("m%d", n), fmt.Sprintf("%0*d", 1+rnd.IntN(2000), n)}
				switch {
				case odd == 1 && rnd.IntN(4) == 0:
					m[1] = "" // without ID
				case odd == 2 && rnd.IntN(2) == 0:
					m[0], m[2] = "tool", fmt.Sprintf(`Command(update={'messages': [ToolMessage(content='said %d', name='x')]})`, n) // as an old writer left it
				}
				list = append(list[:len(list):len(list)], m)
				p := w.next("loop", "run", list)
				w.wide(rnd, p)
				switch data := &p.Blobs[0].Data; {
				case odd == 3 && n >= last-1: // a message that cannot be read
					*data = append(msgp.AppendArrayHeader(nil, uint32(len(list))+1), (*data)[len(msgp.AppendArrayHeader(nil, uint32(len(list)))):]...)
					*data = append(*data, 0xd4, 9, 1)
				case odd == 4 && n == last: // all of them
					p.Blobs[0].Type, *data = "msgpack+aes", []byte("secret")
				}
				w.put(p)
			}
		}
		for _, full := range []bool{false, true} {
			for _, ctx := range []context.Context{t.Context(), choose(t.Context(), false)} {
				s := w.with(func(s *overlay.Settings) { s.FullThreads = full })
				composed.Snapshots = s.Snapshots.(*checkpointer.Snapshots)
				o := s.Options
				o.Snapshots = composed
				for range 12 {
					q := thread.Search{Query: thread.Query{Limit: 1}, Extract: map[string]string{}}
					for range 1 + rnd.IntN(3) {
						path := paths[rnd.IntN(len(paths))]
						q.Extract[fmt.Sprintf("x%d", len(q.Extract))] = path
					}
					show := func(s *thread.Service, q thread.Search) string {
						page, _, err := s.Search(ctx, q)
						require.NoError(t, err)
						require.NoError(t, s.Show(ctx, q, page[0]))
						return string(page[0].Extracted)
					}
					want := show(s, q)
					q.NoValues = true
					shows++
					require.Equal(t, want, show(thread.NewService(o), q), "seed %d, full %t: %v", seed, full, q.Extract)
				}
			}
		}
	}
	require.Less(t, composed.n, shows/15, "values are not composed for that, except for paths that are no channel")
}
