package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run/service"
	"understudy/run/spans"
)

// The spans of a run are there while it runs, after its worker died, and after its end, and go with it.
func TestSpans(t *testing.T) {
	t.Parallel()
	for _, level := range []spans.Level{spans.Content, spans.Timings, spans.Off} {
		var w *world
		attempt := 0
		running, release := make(chan struct{}), make(chan struct{})
		g := script{stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
			if attempt++; (inv.Tracing != nil) != (level != spans.Off) {
				return errors.New("wrong")
			}
			if tr := inv.Tracing; tr != nil {
				tr.Begin(graph.SpanBegin{ID: 1, Kind: graph.NodeSpan, Name: "n", At: time.Now(), Input: &graph.SpanContent{JSON: []byte("1")}})
				tr.Begin(graph.SpanBegin{ID: 2, Parent: 1, Kind: graph.ToolSpan, Name: "t", At: time.Now()})
				tr.End(graph.SpanEnd{ID: 2, At: time.Now(), Status: graph.SpanSuccess})
			}
			at := checkpointer.Key{Thread: inv.Thread, ID: id.Checkpoint(fmt.Sprintf("1f000000-0000-6000-8000-%012d", attempt))}
			if err := inv.Saver.Save(ctx, graph.Save{At: at, Writes: []checkpointer.Write{{TaskID: "t", Channel: "c", Type: "null"}}}); err != nil {
				return err
			}
			if attempt == 1 {
				return graph.ErrWorkerDied
			}
			close(running)
			<-release
			if tr := inv.Tracing; tr != nil {
				tr.End(graph.SpanEnd{ID: 1, At: time.Now(), Status: graph.SpanError, Error: &graph.Failure{Type: "E"}})
			}
			return &graph.Failure{Type: "E", Message: "why"}
		}}
		w = newWorld(t, map[string]script{"g": g}, func(o *service.Options) { o.Spans.Level = level })
		shown := func(r id.Run) string {
			of, list, err := w.runs.Spans(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, r, of.ID)
			var out []string
			for _, s := range list {
				if s.Kind == graph.QueueSpan {
					continue // there may be no time between two
				}
				line := fmt.Sprintf("%s<%s %s %s", s.ID, s.Parent, s.Name, s.Status)
				if s.Error != nil {
					line += " " + s.Error.Type + s.Error.Message
				}
				require.Equal(t, s.Status == graph.SpanRunning, s.End.IsZero(), line)
				out = append(out, line)
			}
			return strings.Join(out, ", ")
		}
		th := w.thread()
		made, err := w.runs.Create(t.Context(), th, request("g"))
		require.NoError(t, err)
		<-running
		first := "1< g lost, 1.1<1 n lost, 1.2<1.1 t success, 1.s1<1 save success, "
		second := "2< g running, 2.1<2 n running, 2.2<2.1 t success, 2.s1<2 save success"
		if level == spans.Off {
			require.Equal(t, "1< g lost", shown(made.ID))
		} else {
			require.Equal(t, first+second, shown(made.ID))
		}
		close(release)
		w.wait(th, made.ID)
		switch level {
		case spans.Content:
			require.Equal(t, first+"2< g error Ewhy, 2.1<2 n error E, 2.2<2.1 t success, 2.s1<2 save success", shown(made.ID))
		case spans.Timings:
			require.Equal(t, first+"2< g error E, 2.1<2 n error E, 2.2<2.1 t success, 2.s1<2 save success", shown(made.ID))
		}
		_, _, err = w.runs.Spans(t.Context(), id.NewRun())
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		require.NoError(t, w.runs.Delete(t.Context(), th, made.ID))
		bodies, err := w.rows.Runs().SpanBatches(t.Context(), th, made.ID)
		require.NoError(t, err)
		require.Empty(t, bodies)
	}
}
