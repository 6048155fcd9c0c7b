package service_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/idempotency"
	"understudy/run"
)

// keyed returns a request with a key for an input.
func keyed(t *testing.T, key, input string) run.Request {
	req := request("g")
	req.Input, req.Resumable = json.RawMessage(input), true // its records are kept for all who follow it
	var err error
	req.Key, err = idempotency.New(key, "", []byte(input))
	require.NoError(t, err)
	return req
}

// However many requests with one key come at once, on whichever server, they create one run, and each is answered with it. It is executed once.
func TestRepeatedRequests(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	began := map[string]int{}
	release := make(chan struct{})
	graphs := map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		mu.Lock()
		began[string(inv.Thread)+string(inv.Input)]++
		mu.Unlock()
		select {
		case <-release:
		case <-ctx.Done():
		}
		emit("values", `{"done":true}`)
		return nil
	}}}
	onTwo(t, graphs, nil, func(t *testing.T, w two) {
		th := w.thread()
		const requests = 12
		ids := make([]id.Run, requests)
		followers := make([]run.Follower, requests)
		var wg sync.WaitGroup
		for n := range requests {
			wg.Go(func() {
				service, req := []*world{w.a, w.b}[n%2].runs, keyed(t, "k", `{"n":1}`)
				var r *run.Run
				var err error
				switch n % 3 {
				case 0:
					r, err = service.Create(t.Context(), th, req)
				case 1:
					r, followers[n], err = service.Begin(t.Context(), th, req)
				case 2:
					r, followers[n], err = service.BeginWait(t.Context(), th, req)
				}
				if err != nil {
					t.Error(err)
					return
				}
				ids[n] = r.ID
			})
		}
		wg.Wait()
		require.False(t, t.Failed())
		for _, r := range ids {
			require.Equal(t, ids[0], r)
		}
		list, err := w.b.runs.List(t.Context(), th, run.Query{})
		require.NoError(t, err)
		require.Len(t, list, 1)

		_, err = w.b.runs.Create(t.Context(), th, keyed(t, "k", `{"n":2}`))
		require.ErrorIs(t, err, idempotency.ErrReused)
		other, err := w.b.runs.Create(t.Context(), th, keyed(t, "other", `{"n":1}`))
		require.NoError(t, err)
		require.NotEqual(t, ids[0], other.ID)

		select {
		case <-release:
		default:
			close(release)
		}
		for n, f := range followers {
			if f == nil {
				continue
			}
			if n%3 == 2 {
				require.Empty(t, w.a.result(f).Error) // its values are those of the thread, and this graph saves none
			} else {
				require.Contains(t, w.a.events(f), `values {"done":true}`)
			}
			f.Close(false)
		}

		// A run that is over is returned as it is, one that was deleted not executed again.
		w.a.wait(th, other.ID)
		mu.Lock()
		require.Equal(t, 2, began[string(th)+`{"n":1}`], "once for each key")
		mu.Unlock()
		req := keyed(t, "k", `{"n":1}`)
		again, err := w.b.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		require.Equal(t, [2]any{ids[0], run.Success}, [2]any{again.ID, again.Status})
		require.True(t, req.Key.Repeated)
		require.NoError(t, w.a.runs.Delete(t.Context(), th, ids[0]))
		_, err = w.b.runs.Create(t.Context(), th, keyed(t, "k", `{"n":1}`))
		require.ErrorIs(t, err, idempotency.ErrGone)

		// A stateless run leaves nothing, but is not executed again either.
		_, f, err := w.a.runs.BeginWait(t.Context(), "", keyed(t, "stateless", `{"n":3}`))
		require.NoError(t, err)
		require.JSONEq(t, `{"done":true}`, string(w.a.result(f).Values))
		f.Close(false)
		_, _, err = w.b.runs.BeginWait(t.Context(), "", keyed(t, "stateless", `{"n":3}`))
		require.ErrorIs(t, err, idempotency.ErrGone)

		// All runs of a batch, or none.
		batch := func() []run.Request { return []run.Request{keyed(t, "batch", `[1,2]`), request("g")} }
		one, err := w.a.runs.CreateBatch(t.Context(), batch())
		require.NoError(t, err)
		two, err := w.b.runs.CreateBatch(t.Context(), batch())
		if err == nil { // they may be over, and gone
			require.Equal(t, [2]id.Run{one[0].ID, one[1].ID}, [2]id.Run{two[0].ID, two[1].ID})
		} else {
			require.ErrorIs(t, err, idempotency.ErrGone)
		}
	})
}

// A request that is refused uses no key.
func TestRefusedRequestsKeepNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]script{"g": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
		emit("values", `{}`)
		return nil
	}}}, nil)
	_, err := w.runs.Create(t.Context(), id.NewThread(), keyed(t, "k", `1`))
	require.Error(t, err, "there is no such thread")
	_, err = w.runs.Create(t.Context(), w.thread(), keyed(t, "k", `2`))
	require.NoError(t, err)
}
