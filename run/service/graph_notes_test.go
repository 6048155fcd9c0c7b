package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// Each row that a graph adds to the log is there once, in order, however its attempts end.
func TestNotesOfGraphsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			deaths, ending, n := random.IntN(3), random.IntN(3), 0
			started := make(chan id.Run, 1)
			var want []string
			w := newWorld(t, map[string]script{"notes": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
				for range random.IntN(5) {
					n++
					inv.Noted(graph.Note{Type: "x.step", Category: "x", Content: json.RawMessage(fmt.Sprint(n)), Metadata: json.RawMessage(`{"a":1}`), At: time.Now()})
					want = append(want, fmt.Sprint(n))
				}
				if deaths > 0 {
					deaths--
					return graph.ErrWorkerDied
				}
				switch ending {
				case 0:
					return &graph.Failure{Type: "E", Message: "no"}
				case 1:
					started <- inv.Run
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return nil
			}}}, nil)
			th := w.thread()
			r, err := w.runs.Create(t.Context(), th, request("notes"))
			require.NoError(t, err)
			if ending == 1 {
				<-started
				require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
			}
			w.wait(th, r.ID)
			events, err := w.rows.Events(t.Context(), th, 0, 0)
			require.NoError(t, err)
			var got []string
			for _, e := range events {
				if e.Type == "x.step" {
					require.Equal(t, `x {"a":1}`, e.Category+" "+string(e.Metadata))
					require.Equal(t, r.ID, e.Run)
					got = append(got, string(e.Content))
				}
			}
			require.Equal(t, want, got)
			require.Contains(t, []string{"run.end", "run.error"}, events[len(events)-1].Type)
		})
	}
}
