package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// emission is one event of a graph, and what a client of event streaming is to see of it: a method and its data.
type emission struct{ name, data, method, shown string }

// emissions are what a run emits that has a seed and streams some modes.
func emissions(seed uint64, modes []string) (out []emission) {
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range r.IntN(40) {
		var e emission
		switch mode := []string{"values", "updates", "messages-tuple", "messages-tuple", "custom", "tasks", "tools"}[r.IntN(7)]; mode {
		case "values":
			e = emission{data: fmt.Sprintf(`{"n":%d,"seed":%d}`, i, seed)}
			e.name, e.method, e.shown = mode, mode, e.data
		case "updates":
			e = emission{name: mode, data: fmt.Sprintf(`{"node":{"n":%d}}`, i), method: mode, shown: fmt.Sprintf(`{"n":%d}`, i)}
		case "messages-tuple":
			word := fmt.Sprintf("w%d-%d ", seed, i)
			e = emission{name: "messages", method: "delta", shown: word}
			e.data = fmt.Sprintf(`[{"type":"AIMessageChunk","id":"m%d","content":%q},{"langgraph_node":"n"}]`, r.IntN(2), word)
			if !slices.Contains(modes, mode) {
				continue
			}
		case "custom":
			e = emission{name: mode, data: fmt.Sprintf(`"c%d"`, i), method: mode, shown: fmt.Sprintf(`{"payload":"c%d"}`, i)}
		case "tasks":
			e = emission{data: fmt.Sprintf(`{"id":"t%d","name":"x","input":null}`, i)}
			e.name, e.method, e.shown = mode, mode, e.data
		case "tools":
			e = emission{data: fmt.Sprintf(`{"event":"tool-started","tool_call_id":"c%d","tool_name":"t","input":{}}`, i)}
			e.name, e.method, e.shown = mode, mode, e.data
		}
		if e.name == "messages" || slices.Contains(modes, e.name) {
			out = append(out, e)
		}
	}
	return out
}

// In whatever order clients of both wires make runs on a thread, each client sees what every run has emitted, in its own form, live and afterwards.
func TestBothWiresAgree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
				for _, e := range emissions(uint64(gjson.GetBytes(inv.Input, "seed").Int()), inv.Modes) {
					emit(e.name, e.data)
				}
				return nil
			}}}, nil)
			th := w.thread()
			events := w.follow(th, allEvents)
			v1, err := w.runs.StreamThread(t.Context(), th, nil, nil)
			require.NoError(t, err)
			defer v1.Close(false)

			var runs []*run.Run
			emitted := map[id.Run][]emission{}
			for n := range 2 + r.IntN(6) {
				req := started("g")
				if r.IntN(2) == 0 {
					req = request("g")
					req.Resumable = r.IntN(2) == 0
					req.Modes = nil
					for _, mode := range []string{"values", "updates", "messages-tuple", "custom", "tasks"} {
						if r.IntN(3) > 0 {
							req.Modes = append(req.Modes, mode)
						}
					}
				}
				own := seed*100 + uint64(n)
				req.Input = json.RawMessage(fmt.Sprintf(`{"seed":%d}`, own))
				made, err := w.runs.StartOrResume(t.Context(), th, req)
				require.NoError(t, err)
				runs = append(runs, made)
				emitted[made.ID] = emissions(own, req.Modes)
				if r.IntN(2) == 0 {
					w.wait(th, made.ID)
				}
			}
			for _, made := range runs {
				w.wait(th, made.ID)
			}

			live := framesUntil(t, events, len(runs))
			require.Equal(t, inEventStreaming(runs, emitted, func(*run.Run) bool { return true }), seenOf(t, live))
			kept := func(r *run.Run) bool { return r.Kwargs.Resumable }
			durable := len(slices.DeleteFunc(slices.Clone(runs), func(r *run.Run) bool { return !kept(r) }))
			if durable > 0 {
				later := framesUntil(t, w.follow(th, allEvents), durable)
				require.Equal(t, inEventStreaming(runs, emitted, kept), seenOf(t, later))
				require.Equal(t, later, slices.DeleteFunc(slices.Clone(live), func(frame string) bool { return !slices.Contains(later, frame) }), "the same events under the same ids")
			}

			// The older wire: all runs live, and each that is kept by itself.
			want := map[id.Run][]string{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got := map[id.Run][]string{}
			for ends := 0; ends < len(runs); {
				records, err := v1.Next(ctx)
				require.NoError(t, err)
				for _, rec := range records {
					if rec.Kind == bridge.Terminal {
						ends++
					} else if rec.Event != "metadata" {
						got[rec.Run] = append(got[rec.Run], rec.Event+" "+string(rec.Data))
					}
				}
			}
			for _, made := range runs {
				for _, e := range emitted[made.ID] {
					if e.name != "tools" {
						want[made.ID] = append(want[made.ID], e.name+" "+e.data)
					}
				}
				require.Equal(t, want[made.ID], got[made.ID])
				if kept(made) {
					joined, err := w.runs.JoinStream(t.Context(), th, made.ID, &bridge.Offset{}, nil, false)
					require.NoError(t, err)
					own := w.events(joined)
					require.Equal(t, want[made.ID], append([]string(nil), own[1:]...), "after the metadata")
				}
			}
		})
	}
}

// inEventStreaming is what clients of event streaming see of runs, except the beginnings and ends of messages.
func inEventStreaming(runs []*run.Run, emitted map[id.Run][]emission, which func(*run.Run) bool) (out []string) {
	for _, r := range runs {
		if !which(r) {
			continue
		}
		out = append(out, `lifecycle {"event":"running","graph_name":"g"}`)
		for _, e := range emitted[r.ID] {
			out = append(out, e.method+" "+e.shown)
		}
		out = append(out, `lifecycle {"event":"completed","graph_name":"g"}`)
	}
	return out
}

func seenOf(t *testing.T, frames []string) (out []string) {
	t.Helper()
	last := int64(0)
	for _, frame := range frames {
		_, data, ok := strings.Cut(frame, "data: ")
		require.True(t, ok)
		data, _, _ = strings.Cut(data, "\r\n")
		event := gjson.Parse(data)
		require.Greater(t, event.Get("seq").Int(), last)
		last = event.Get("seq").Int()
		method, shown := event.Get("method").String(), event.Get("params.data")
		if method == "messages" {
			if shown.Get("event").String() != "content-block-delta" {
				continue
			}
			method, shown = "delta", shown.Get("delta.text")
			out = append(out, method+" "+shown.String())
			continue
		}
		out = append(out, method+" "+shown.Raw)
	}
	return out
}
