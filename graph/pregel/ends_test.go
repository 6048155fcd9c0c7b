package pregel_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
)

// watched is a context that counts the contexts derived from it that have not ended.
type watched struct {
	context.Context
	open  atomic.Int32
	ended chan struct{} // closed when the first one has ended
}

func watch(ctx context.Context) *watched { return &watched{Context: ctx, ended: make(chan struct{})} }

// Value hides the context within, which would know the derived ones itself.
func (*watched) Value(any) any { return nil }

// AfterFunc is what package context calls for a derived context.
func (w *watched) AfterFunc(f func()) func() bool {
	w.open.Add(1)
	stop := context.AfterFunc(w.Context, f)
	return func() bool {
		if w.open.Add(-1) == 0 {
			close(w.ended)
		}
		return stop()
	}
}

// A run in process whose context ends after any of its events has an error or has yielded all: also when it was over by then.
func TestStreamHidesNoLostEvents(t *testing.T) {
	t.Parallel()
	g := single(t, func(ctx context.Context, s counted) (any, error) {
		for n := range 3 {
			if err := pregel.Emit(ctx, n); err != nil {
				return nil, err
			}
		}
		return counted{N: s.N + 1}, nil
	})
	modes := pregel.WithModes("custom", "updates")
	all, err := streamed(t.Context(), g, counted{N: 1}, modes)
	require.NoError(t, err)
	require.Len(t, all, 4)
	for after := range all {
		ctx, cancel := context.WithCancel(t.Context())
		w := watch(ctx)
		var events []string
		var last error
		for e, err := range pregel.Stream(w, g, counted{N: 1}, modes) {
			if last = err; err != nil {
				break
			}
			events = append(events, e.Name+" "+string(e.Data))
			if len(events) == after+1 {
				<-w.ended // the run is over
				cancel()
			}
		}
		cancel()
		require.Equal(t, all[:after+1], events)
		if after+1 == len(all) {
			require.NoError(t, last)
		} else {
			require.ErrorIs(t, last, context.Canceled, after)
		}
	}
}

// No call leaves a context behind, however it ends.
func TestCallsReleaseTheirContexts(t *testing.T) {
	t.Parallel()
	g := single(t, func(_ context.Context, s counted) (any, error) {
		if s.N < 0 {
			return nil, errors.New("below zero")
		}
		return s, nil
	})
	bad := pregel.Values{"n": func() {}} // not JSON
	for name, input := range map[string]any{"works": counted{N: 1}, "fails": counted{N: -1}, "no input": nil, "unusable input": bad, "no node": &pregel.Command{Goto: []any{"nowhere"}}} {
		for _, options := range [][]pregel.RunOption{
			nil,
			{pregel.WithModes("values")},
			{pregel.WithModes("tokens")},
			{pregel.WithSubgraphs()},
			{pregel.WithConfig(json.RawMessage(`{"recursion_limit":0}`))},
		} {
			w := watch(t.Context())
			_, _ = pregel.Invoke[counted](w, g, input, options...)
			require.Zero(t, w.open.Load(), "Invoke: %s", name)
			w = watch(t.Context())
			_, _ = streamed(w, g, input, options...)
			require.Zero(t, w.open.Load(), "Stream: %s", name)
		}
	}
	for _, change := range []func(*graph.Invocation){
		func(*graph.Invocation) {},
		func(inv *graph.Invocation) { inv.Input = json.RawMessage("{") },
		func(inv *graph.Invocation) { inv.InterruptBefore = json.RawMessage("7") },
		func(inv *graph.Invocation) { inv.InterruptAfter = json.RawMessage("7") },
		func(inv *graph.Invocation) { inv.Config.Config = json.RawMessage(`{"recursion_limit":0}`) },
	} {
		inv := invocation(nil, `{"n":1}`, "values")
		change(&inv)
		w := watch(t.Context())
		for range g.Stream(w, inv) { // to its end
		}
		require.Zero(t, w.open.Load())
	}
}

// unread is a saver whose reads fail.
type unread struct{ memory }

func (*unread) Load(context.Context, checkpointer.Key) (*checkpointer.Tuple, error) {
	return nil, fs.ErrPermission
}

// The text of a failed read or save names the thread, and a read of one checkpoint the checkpoint; what clients of a server see does not.
func TestStorageErrorsSayWhere(t *testing.T) {
	t.Parallel()
	g := single(t, func(_ context.Context, s counted) (any, error) { return s, nil })
	const at = id.Checkpoint("1f000000-0000-6000-8000-000000000001")
	invoke := func(s graph.Saver) error {
		_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, pregel.WithThread(testThread, s))
		return err
	}
	require.ErrorContains(t, invoke(&unread{}), "read the last checkpoint of thread "+string(testThread)+": ")
	require.ErrorContains(t, invoke(&memory{fail: func(graph.Save) error { return fs.ErrPermission }}), "save checkpoints of thread "+string(testThread)+": ")
	inv := invocation(nil, `{"n":1}`, "values")
	inv.Saver, inv.At.ID = &unread{}, at
	var last error
	for _, err := range g.Stream(t.Context(), inv) {
		last = err
	}
	var shown *graph.Failure
	require.ErrorAs(t, last, &shown)
	require.Contains(t, shown.Detail, "read checkpoint "+string(at)+" of thread "+string(testThread)+": ") // for the log
	require.Equal(t, graph.Masked, shown.Message)
}
