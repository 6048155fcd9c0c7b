package pregel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/message"
	"understudy/graph/pregel"
)

type said struct {
	Messages []message.Message `json:"messages" graph:"messages,reducer=add_messages"`
}

// shownPartial is a messages/partial event.
type shownPartial struct {
	at   time.Duration
	id   string
	text string
	data string
}

// partialsOf runs a node in the stream mode messages and returns the partials, the bytes of all of them, and the names of all events in their order.
func partialsOf(t *testing.T, node func(ctx context.Context, s said) (any, error)) (all []shownPartial, bytes int, names []string, err error) {
	t.Helper()
	g := pregel.NewStateGraph[said]()
	g.AddNode("model", node)
	g.AddEdge(pregel.START, "model")
	began := time.Now()
	for e, failure := range g.MustCompile().Stream(t.Context(), invocation(nil, `{}`, "messages", "updates")) {
		if failure != nil {
			return all, bytes, names, failure
		}
		names = append(names, e.Name)
		if e.Name == "messages/partial" {
			m := gjson.ParseBytes(e.Data).Get("0")
			all = append(all, shownPartial{time.Since(began), m.Get("id").Str, m.Get("content").Str, string(e.Data)})
			bytes += len(e.Data)
		}
	}
	return all, bytes, names, nil
}

// An answer of twice the length takes about twice the bytes: not four times, although each event repeats the message.
func TestPartialsTakeLinearSpace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes: only the length counts
		run := func(chunks int) int {
			all, bytes, _, err := partialsOf(t, func(ctx context.Context, _ said) (any, error) {
				call, text := pregel.StartModel(ctx, pregel.ModelInfo{}), ""
				for i := range chunks {
					word := fmt.Sprintf("word%04d ", i)
					call.Chunk(message.AIChunk(word))
					text += word
				}
				return said{[]message.Message{call.End(message.AI(text))}}, nil
			})
			require.NoError(t, err)
			require.Len(t, all[len(all)-1].text, 9*chunks, "the last one is complete")
			return bytes
		}
		run(10)
		small, twice := run(4_000), run(8_000)
		require.Less(t, float64(twice), 2.2*float64(small), "%d and %d bytes", small, twice)
	})
}

// However slowly a model writes, a reader gets a bounded number of bytes a second, and sees each chunk soon, also before a long silence.
func TestPartialsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type chunk struct {
			at  time.Duration
			len int
		}
		var came []chunk
		began := time.Now()
		all, bytes, _, err := partialsOf(t, func(ctx context.Context, _ said) (any, error) {
			call, text := pregel.StartModel(ctx, pregel.ModelInfo{}), ""
			for i := range 10_000 {
				if i%3_000 == 2_999 {
					time.Sleep(time.Minute) // of the bubble
				}
				time.Sleep(10 * time.Millisecond)
				call.Chunk(message.AIChunk("words "))
				text += "words "
				came = append(came, chunk{time.Since(began), len(text)})
			}
			return said{[]message.Message{call.End(message.AI(text))}}, nil
		})
		require.NoError(t, err)
		require.Less(t, bytes, 100*(256<<10)+40*60_000+(4<<20), "in 100 s of writing")
		at := 0
		for _, c := range came {
			for len(all[at].text) < c.len {
				at++
			}
			require.LessOrEqual(t, all[at].at-c.at, 250*time.Millisecond, "%d bytes", c.len)
		}
	})
}

// Whatever comes in whatever pace, what is shown of a message only grows, its last event has all of it, and none comes after the node has ended.
func TestPartialsAreComplete(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				fails, last := r.IntN(3) == 0, r.IntN(2) == 0
				wants := map[string]*strings.Builder{}
				sums := map[string]*message.Sum{}
				all, _, names, err := partialsOf(t, func(ctx context.Context, _ said) (any, error) {
					calls := []*pregel.ModelCall{pregel.StartModel(ctx, pregel.ModelInfo{}), pregel.StartModel(ctx, pregel.ModelInfo{})}
					for _, c := range calls {
						wants[c.ID()], sums[c.ID()] = &strings.Builder{}, &message.Sum{}
					}
					add := func(c *pregel.ModelCall, m message.Message) {
						c.Chunk(m)
						wants[c.ID()].WriteString(m.Text())
						sums[c.ID()].Add(m)
					}
					for range 20 + r.IntN(400) {
						c := calls[r.IntN(2)]
						m := message.AIChunk(strings.Repeat("x", r.IntN(200)))
						if r.IntN(20) == 0 {
							index := 0
							m = m.WithCallChunks(message.ToolCallChunk{Index: &index, Name: "f", ID: "i", Args: `{"a":"` + strings.Repeat("y", r.IntN(300))})
						}
						add(c, m)
						if r.IntN(4) == 0 {
							time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond) // of the bubble
						}
					}
					if fails && r.IntN(2) == 0 {
						return nil, fmt.Errorf("the call failed without a call of Fail")
					}
					for _, c := range calls {
						if fails {
							c.Fail(errors.New("cut off"))
							continue
						}
						if last {
							m := message.AIChunk("")
							m.Last = true
							add(c, m)
						}
						c.End(message.AI(wants[c.ID()].String()))
					}
					if fails {
						return nil, fmt.Errorf("it failed")
					}
					return said{}, nil
				})
				require.Equal(t, fails, err != nil)
				shown, data := map[string]string{}, map[string]string{}
				for _, p := range all {
					require.True(t, strings.HasPrefix(p.text, shown[p.id]))
					shown[p.id], data[p.id] = p.text, p.data
				}
				for id, want := range wants {
					require.Equal(t, want.String(), shown[id])
					if last && !fails {
						m := sums[id].Message().Whole()
						m.ID = id
						require.JSONEq(t, "["+string(m.AppendJSON(nil))+"]", data[id])
					}
				}
				if !fails {
					require.Equal(t, "updates", names[len(names)-1])
				}
			})
		})
	}
}
