package pregel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/pregel"
	"understudy/id"
)

// streamed collects what Stream yields: events as "name data", and the error.
func streamed(ctx context.Context, g pregel.Compiled, input any, options ...pregel.RunOption) (events []string, err error) {
	for e, err := range pregel.Stream(ctx, g, input, options...) {
		if err != nil {
			return events, err
		}
		events = append(events, e.Name+" "+string(e.Data))
	}
	return events, nil
}

// Stream yields the events of a run in process, whose input and end are those of Invoke.
func TestStreamInProcess(t *testing.T) {
	t.Parallel()
	g := single(t, func(ctx context.Context, s counted) (any, error) {
		if err := pregel.Emit(ctx, map[string]int{"from": s.N}); err != nil {
			return nil, err
		}
		return counted{N: s.N + 1}, nil
	})
	events, err := streamed(t.Context(), g, counted{N: 1})
	require.NoError(t, err)
	require.Equal(t, []string{`values {"n":1}`, `values {"n":2}`}, events)
	events, err = streamed(t.Context(), g, pregel.Values{"n": 4}, pregel.WithModes("custom", "updates"))
	require.NoError(t, err)
	require.Equal(t, []string{`custom {"from":4}`, `updates {"a":{"n":5}}`}, events)

	asking := single(t, func(ctx context.Context, _ counted) (any, error) {
		n, err := pregel.Interrupt[int](ctx, "how many?")
		if err != nil {
			return nil, err
		}
		return counted{N: n}, nil
	})
	thread := pregel.WithThread(id.NewThread(), checkpointer.NewMemory())
	events, err = streamed(t.Context(), asking, counted{N: 1}, thread, pregel.WithModes("updates"))
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.Regexp(t, `^updates \{"__interrupt__":\[\{"value":"how many\?"`, events[0])
	events, err = streamed(t.Context(), asking, &pregel.Command{Resume: 7}, thread, pregel.WithModes("updates"))
	require.NoError(t, err)
	require.Equal(t, []string{`updates {"a":{"n":7}}`}, events)

	var log bytes.Buffer // nothing could answer
	_, err = streamed(t.Context(), asking, counted{N: 1}, pregel.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	require.Contains(t, log.String(), "nothing can resume it")
}

// Errors of Stream are those of Invoke: with their chain, the node, and what to do.
func TestStreamKeepsErrors(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"node": fs.ErrPermission, "panic": fs.ErrClosed} {
		g := single(t, func(context.Context, counted) (any, error) {
			if name == "panic" {
				panic(err)
			}
			return nil, err
		})
		_, want := pregel.Invoke[counted](t.Context(), g, counted{N: 1})
		events, got := streamed(t.Context(), g, counted{N: 1})
		require.ErrorIs(t, got, err)
		require.EqualError(t, got, want.Error())
		require.Equal(t, []string{`values {"n":1}`}, events, name)
		var masked *graph.Failure
		require.False(t, errors.As(got, &masked))
	}
	g := single(t, func(context.Context, counted) (any, error) { return nil, nil })
	m := &memory{fail: func(graph.Save) error { return fs.ErrPermission }}
	_, err := streamed(t.Context(), g, counted{N: 1}, pregel.WithThread(testThread, m))
	require.ErrorIs(t, err, fs.ErrPermission)

	for want, f := range map[string]func() error{
		"there is no mode \"tokens\"": func() error {
			_, err := streamed(t.Context(), g, counted{N: 1}, pregel.WithModes("values", "tokens"))
			return err
		},
		"are for Stream": func() error {
			_, err := pregel.Invoke[counted](t.Context(), g, counted{N: 1}, pregel.WithModes("values"))
			return err
		},
		"check the error of Compile": func() error {
			var missing *pregel.Graph
			_, err := streamed(t.Context(), missing, nil)
			return err
		},
		"Received no input": func() error { _, err := streamed(t.Context(), g, nil); return err },
	} {
		require.ErrorContains(t, f(), want)
	}
}

// A caller that leaves the loop, or whose context ends, cancels the run; Stream returns after its nodes have.
func TestStreamEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for _, leave := range []bool{true, false} {
		ended := false
		g := single(t, func(ctx context.Context, _ counted) (any, error) {
			if err := pregel.Emit(ctx, "running"); err != nil {
				return nil, err
			}
			<-ctx.Done()
			ended = true
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := fmt.Errorf("enough")
		var last error
		for _, err := range pregel.Stream(ctx, g, counted{N: 1}, pregel.WithModes("custom")) {
			if last = err; err == nil && leave {
				break
			}
			cancel(cause)
		}
		require.True(t, ended)
		if !leave {
			require.ErrorIs(t, last, cause)
			require.ErrorContains(t, last, "node a: ")
		}
		cancel(nil)
	}
}
