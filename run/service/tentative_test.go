package service_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/thread"
)

// However a tentative run ends that does not succeed, its thread is as it was, and its row says how it ended.
func TestTentativeRuns(t *testing.T) {
	t.Parallel()
	saved := make(chan id.Run, 1)
	stream := func(end func(ctx context.Context) error) script {
		return script{stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			(&talk{inv: inv, ctx: ctx}).save("h1 a1 h2")
			inv.Called(graph.ModelCall{ID: "call", Usage: &graph.Usage{Input: 3, Output: 4, Total: 7}})
			saved <- inv.Run
			return end(ctx)
		}}
	}
	for name, tt := range map[string]struct {
		end    func(ctx context.Context) error
		status run.Status
		kept   bool
	}{
		"success": {func(context.Context) error { return nil }, run.Success, true},
		"error":   {func(context.Context) error { return &graph.Failure{Type: "E", Message: "no"} }, run.Error, false},
		"cancel":  {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, run.Interrupted, false},
	} {
		w := newWorld(t, map[string]script{"first": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			(&talk{inv: inv, ctx: ctx}).save("h1 a1")
			return nil
		}}, "second": stream(tt.end)}, nil)
		th := w.thread()
		r, err := w.runs.Create(t.Context(), th, request("first"))
		require.NoError(t, err)
		w.wait(th, r.ID)
		before, err := w.rows.Runs().LoadCheckpoint(t.Context(), checkpointer.Key{Thread: th})
		require.NoError(t, err)

		req := request("second")
		req.Tentative = true
		r, err = w.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		<-saved
		if name == "cancel" {
			require.NoError(t, w.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelInterrupt, true))
		}
		w.wait(th, r.ID)
		row, err := w.runs.Get(t.Context(), th, r.ID)
		require.NoError(t, err)
		require.Equal(t, tt.status, row.Status, name)
		after, err := w.rows.Runs().LoadCheckpoint(t.Context(), checkpointer.Key{Thread: th})
		require.NoError(t, err)
		require.Equal(t, tt.kept, after.ID != before.ID, name)
		require.EqualValues(t, 7, *w.completion(th, r.ID).TotalTokens, "what it used counts however it ends")
		require.Contains(t, strings.Join(w.life(th, r.ID), "\n"), map[bool]string{true: "run.error", false: "run.end"}[tt.status == run.Error], name)
		v, err := w.rows.Threads().Thread(t.Context(), th)
		require.NoError(t, err)
		require.Equal(t, thread.Idle, v.Status, name)
	}
}
