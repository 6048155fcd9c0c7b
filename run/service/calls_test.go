package service_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

// caller makes model calls at random: nested and not, by middleware and not, with and without usage, some of whose messages come to the
// thread, as they are or copied, between saves of any kind. It counts what the completion data of the run have to say.
type caller struct {
	t     *testing.T
	rng   *rand.Rand
	w     **world
	n     int
	want  map[string]run.Usage
	saved []graph.ModelCall
	died  int
}

func (c *caller) expect(key string, used *graph.Usage) {
	for _, k := range []string{key, "all"} {
		u := c.want[k]
		u.Calls++
		if used != nil {
			if u.Input == nil {
				u.Input, u.Output, u.Total = to[int64](0), to[int64](0), to[int64](0)
			}
			*u.Input += used.Input
			*u.Output += used.Output
			*u.Total += used.Total
		}
		c.want[k] = u
	}
}

// usage is one that no other call has.
func (c *caller) usage() *graph.Usage {
	return &graph.Usage{Input: int64(c.n), Output: int64(c.n) * 1000, Total: int64(c.n) * 1001}
}

func (c *caller) call(inv graph.Invocation) *eventstore.Event {
	c.n++
	m := graph.ModelCall{ID: fmt.Sprintf("call-%d", c.n), Message: fmt.Sprintf("m%d", c.n)}
	callers := []struct {
		node   string
		nested bool
		source string
		tags   []string
		want   string
	}{
		{"model", false, "", nil, "lead"},
		{"model", false, "", []string{"seq:step:1", "lead_agent"}, "lead"},
		{"tools", true, "", nil, "subagent"},
		{"model", false, "", []string{"subagent:search"}, "subagent"},
		{"Title.after_agent", false, "", nil, "middleware"},
		{"Summary.before_model", true, "", nil, "middleware"},
		{"model", true, "summarization", nil, "middleware"},
		{"model", true, "", []string{"subagent:search", "middleware:title"}, "middleware"},
	}
	by := callers[c.rng.IntN(len(callers))]
	m.Caller = graph.CallerOf(by.node, by.nested, by.source, by.tags...)
	require.Equal(c.t, by.want, string(m.Caller))
	if c.rng.IntN(4) > 0 {
		m.Usage = c.usage()
	}
	if c.rng.IntN(8) == 0 {
		m.Message = ""
	}
	c.expect(by.want, m.Usage)
	inv.Called(m)
	m.Number = len(c.saved) + 1
	c.saved = append(c.saved, m)
	usage := ""
	if m.Usage != nil {
		usage = fmt.Sprintf(`,"usage_metadata":{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d}`, m.Usage.Input, m.Usage.Output, m.Usage.Total)
	}
	switch c.rng.IntN(4) {
	case 0: // it comes to the thread
		return says(eventstore.TypeAI, `{"type":"ai","content":"a","id":"`+m.Message+`"`+usage+`}`)
	case 1: // as a copy
		return says(eventstore.TypeAI, fmt.Sprintf(`{"type":"ai","content":"a","id":"copy-%d"%s}`, c.n, usage))
	case 2: // next to an answer of a model that nothing reports
		c.n++
		own := c.usage()
		c.expect("lead", own)
		return says(eventstore.TypeAI, fmt.Sprintf(`{"type":"ai","content":"a","id":"own-%d","usage_metadata":{"input_tokens":%d,"output_tokens":%d}}`, c.n, own.Input, own.Output))
	}
	return nil
}

func (c *caller) stream(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
	for range c.rng.IntN(6) + 1 {
		for range c.rng.IntN(4) {
			e := c.call(inv)
			if e == nil {
				continue
			}
			e.Run, e.CreatedAt = inv.Run, time.Now()
			if err := (*c.w).rows.Threads().Write(ctx, func(tx thread.Tx) error { return tx.AppendEvents(inv.Thread, []*eventstore.Event{e}) }); err != nil {
				return err
			}
		}
		at := checkpointer.Key{Thread: inv.Thread, ID: id.Checkpoint(fmt.Sprintf("1f000000-0000-6000-8000-%012d", c.n))}
		switch c.rng.IntN(4) {
		case 0:
			if err := inv.Saver.Save(ctx, graph.Save{At: at, Writes: []checkpointer.Write{{TaskID: "t", Channel: "c", Type: "null"}}}); err != nil {
				return err
			}
			require.ElementsMatch(c.t, c.saved, c.stored(ctx, inv.Run), "calls are stored with what is saved after them")
		case 1:
			if c.died < 2 {
				c.died++
				return graph.ErrWorkerDied
			}
		}
	}
	return nil
}

// stored reads the calls that are stored, and leaves them.
func (c *caller) stored(ctx context.Context, r id.Run) (calls []graph.ModelCall) {
	undo := errors.New("undo")
	require.ErrorIs(c.t, (*c.w).rows.Runs().Write(ctx, func(tx run.Tx) (err error) {
		if calls, err = tx.TakeModelCalls(r); err != nil {
			return err
		}
		return undo
	}), undo)
	return calls
}

func TestModelCallsAreCountedOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var w *world
			c := &caller{t: t, rng: rand.New(rand.NewPCG(seed, 1)), w: &w, want: map[string]run.Usage{}}
			w = newWorld(t, map[string]script{"calls": {stream: c.stream}}, nil)
			th := w.thread()
			r, err := w.runs.Create(t.Context(), th, request("calls"))
			require.NoError(t, err)
			w.wait(th, r.ID)

			got := w.completion(th, r.ID)
			all := c.want["all"]
			delete(c.want, "all")
			if len(c.want) == 0 {
				c.want = nil
			}
			require.Equal(t, c.want, got.ByCaller)
			if all.Calls == 0 {
				require.Nil(t, got.LLMCalls)
			} else {
				require.Equal(t, all, run.Usage{Input: got.InputTokens, Output: got.OutputTokens, Total: got.TotalTokens, Calls: *got.LLMCalls}, "the sums are the totals")
			}
			require.Empty(t, c.stored(t.Context(), r.ID), "they are folded into the completion data")
		})
	}
}

// The row of an answer has the number and the time of its model call, also if an earlier attempt made the call, or another call came between.
func TestAnswersHaveTheirModelCalls(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 2))
			n, deaths := 0, random.IntN(3)
			type called struct{ number, took int }
			want := map[string]called{}
			list := "h1"
			w := newWorld(t, map[string]script{"calls": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
				for range random.IntN(5) + 1 {
					message, took := fmt.Sprintf("a%d", n), random.IntN(3)*1500
					n++
					inv.Called(graph.ModelCall{ID: message, Message: message, Took: time.Duration(took) * time.Microsecond})
					want[message] = called{n, took / 1000}
					switch random.IntN(4) {
					case 0: // not the conversation's
						continue
					case 1: // stored before its message is: the call of a subgraph
						at := checkpointer.Key{Thread: inv.Thread, ID: id.Checkpoint(fmt.Sprintf("1f000000-0000-6000-8000-%012d", n))}
						if err := inv.Saver.Save(ctx, graph.Save{At: at, Writes: []checkpointer.Write{{TaskID: "t", Channel: "c", Type: "null"}}}); err != nil {
							return err
						}
						if deaths > 0 {
							deaths--
							list += " " + message
							return graph.ErrWorkerDied
						}
					}
					list += " " + message + " h" + message
					(&talk{inv: inv, ctx: ctx}).save(list)
				}
				if deaths > 0 {
					deaths--
					return graph.ErrWorkerDied
				}
				(&talk{inv: inv, ctx: ctx}).save(list + " aother")
				return nil
			}}}, nil)
			th := w.thread()
			r, err := w.runs.Create(t.Context(), th, request("calls"))
			require.NoError(t, err)
			w.wait(th, r.ID)
			events, err := w.rows.Events(t.Context(), th, 0, 0)
			require.NoError(t, err)
			shown := 0
			for _, e := range events {
				if e.Category != eventstore.CategoryMessage {
					continue
				}
				shown++
				number, took := gjson.GetBytes(e.Metadata, "llm_call_index"), gjson.GetBytes(e.Metadata, "latency_ms")
				c := want[e.MessageID]
				require.Equal(t, c, called{int(number.Int()), int(took.Int())}, e.MessageID)
				require.Equal(t, c.number > 0, number.Exists(), string(e.Metadata))
				require.Equal(t, c.took > 0, took.Exists())
				require.NotEmpty(t, gjson.GetBytes(e.Metadata, "checkpoint_id").String())
			}
			require.Equal(t, len(strings.Fields(list))+1, shown)
		})
	}
}
