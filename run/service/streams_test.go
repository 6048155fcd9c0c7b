package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/metricstest"
	"understudy/run"
	"understudy/run/service"
)

// flaky is a bridge that can be away, and lose what is published.
type flaky struct {
	bridge.Bridge
	away, mute atomic.Bool
}

func (f *flaky) Subscribe(ctx context.Context, t id.Thread, after *bridge.Offset) (bridge.Subscription, error) {
	if f.away.Load() {
		return nil, fmt.Errorf("%w: connection refused", bridge.ErrInterrupted)
	}
	return f.Bridge.Subscribe(ctx, t, after)
}

func (f *flaky) Publish(ctx context.Context, t id.Thread, records []*bridge.Record) error {
	if f.mute.Load() {
		t = "nobody reads this"
	}
	return f.Bridge.Publish(ctx, t, records)
}

// readSome gives n records of a follower.
func readSome(t *testing.T, f run.Follower, n int) (got []string, offsets []bridge.Offset) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for len(got) < n {
		records, err := f.Next(ctx)
		require.NoError(t, err, "after %d records", len(got))
		for _, r := range records {
			got, offsets = append(got, r.Event+" "+string(r.Data)), append(offsets, r.Offset)
		}
	}
	return got, offsets
}

// chatty says a lot, waits to be let go, and says one thing more.
func chatty(said chan<- struct{}, goOn <-chan struct{}) script {
	return script{stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
		for i := range 40 {
			emit("messages", fmt.Sprintf(`[{"content":"%d"},{}]`, i))
			emit("values", fmt.Sprintf(`{"n":%d}`, i))
		}
		said <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		emit("values", `{"n":"last"}`)
		return nil
	}}
}

// What the live stream had to drop comes from the database, in its place, on any instance: every record once, in order, also those that come then.
func TestReplaysAreCompleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	require.NoError(t, c.bridge.Close())
	c.bridge = bridge.NewMemory(bridge.Options{Records: 16})
	said, goOn := make(chan struct{}, 1), make(chan struct{})
	graphs := map[string]script{"g": chatty(said, goOn)}
	registry := prometheus.NewRegistry()
	counting := bridge.NewMetrics(registry)
	metrics := func(o *service.Options) { o.Streams.Metrics = counting }
	a, b := c.start(graphs, metrics), c.start(graphs, metrics)
	th := a.newThread()
	req := request("g")
	req.Resumable, req.Modes = true, []string{"values", "messages-tuple"}
	r, first, err := a.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	defer first.Close(false)
	want, offsets := readSome(t, first, 81)
	next(t, said)
	for name, in := range map[string]*instance{"where it goes on": a, "elsewhere": b} {
		for _, from := range []int{-1, 0, 7, 60, 79} {
			at := bridge.Offset{}
			if from >= 0 {
				at = offsets[from]
			}
			f, err := in.runs.JoinStream(t.Context(), th, r.ID, &at, nil, false)
			require.NoError(t, err)
			got, where := readSome(t, f, 80-from)
			require.Equal(t, want[from+1:], got, "%s, after %d", name, from)
			require.Equal(t, offsets[from+1:], where)
			f.Close(false)
		}
		// A thread's readers too.
		f, err := in.runs.StreamThread(t.Context(), th, &offsets[3], nil)
		require.NoError(t, err)
		got, _ := readSome(t, f, 77)
		require.Equal(t, want[4:], got)
		f.Close(false)
	}
	rest, err := b.runs.JoinStream(t.Context(), th, r.ID, &offsets[2], []string{"values"}, false)
	require.NoError(t, err)
	close(goOn)
	got := b.events(rest)
	require.Len(t, got, 40)
	require.Equal(t, `values {"n":"last"}`, got[39])
	a.reaches(th, r.ID, run.Success)
	over, err := b.runs.JoinStream(t.Context(), th, r.ID, &offsets[80], nil, false)
	require.NoError(t, err)
	require.Equal(t, []string{`values {"n":"last"}`}, b.events(over))
	require.Zero(t, metricstest.Value(t, registry, gaps), "no client missed a record")
}

const gaps = "understudy_replay_gaps_total"

// A stateless run is nowhere but in the stream: what was dropped of it is announced, unless its reader is told the same by other records.
func TestGapsAreAnnounced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		modes   []string
		records int
		gap     bool
	}{
		{"records", []string{"values"}, 16, true},
		{"tokens alone", []string{"messages-tuple"}, 64, true},
		{"tokens beside values", []string{"values", "messages-tuple"}, 64, false},
		{"nothing", []string{"values"}, 1000, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			require.NoError(t, c.bridge.Close())
			c.bridge = bridge.NewMemory(bridge.Options{Records: tt.records})
			said, goOn := make(chan struct{}, 1), make(chan struct{})
			registry := prometheus.NewRegistry()
			counting := bridge.NewMetrics(registry)
			in := c.start(map[string]script{"g": chatty(said, goOn)}, func(o *service.Options) { o.Streams.Metrics = counting })
			req := request("g")
			req.Resumable, req.Modes = true, tt.modes
			r, first, err := in.runs.Start(t.Context(), "", req)
			require.NoError(t, err)
			defer first.Close(false)
			next(t, said)
			f, err := in.runs.JoinStream(t.Context(), r.Thread, r.ID, &bridge.Offset{MS: 7, N: 1}, nil, true)
			require.NoError(t, err)
			records, err := f.Next(t.Context())
			require.NoError(t, err)
			if !tt.gap {
				require.Zero(t, metricstest.Value(t, registry, gaps))
				require.NotEqual(t, "gap", records[0].Event)
				f.Close(false)
				close(goOn)
				return
			}
			require.Equal(t, 1.0, metricstest.Value(t, registry, gaps))
			require.Len(t, records, 1)
			require.Equal(t, "gap", records[0].Event)
			require.True(t, records[0].Ephemeral, "it has no id")
			var data map[string]string
			require.NoError(t, json.Unmarshal(records[0].Data, &data))
			require.NotEmpty(t, data["earliest_available_event_id"])
			require.NotEmpty(t, data["latest_available_event_id"])
			require.Equal(t, map[string]string{
				"code": "stream_replay_gap", "run_id": string(r.ID), "requested_event_id": "7-1", "recovery": "reload_durable_state",
				"earliest_available_event_id": data["earliest_available_event_id"], "latest_available_event_id": data["latest_available_event_id"],
			}, data)
			_, err = f.Next(t.Context())
			require.ErrorIs(t, err, io.EOF)
			f.Close(true)
			require.Equal(t, run.Running, in.status(r.Thread, r.ID), "whoever leaves after it cancels nothing")
			close(goOn)
		})
	}
}

// While streams are interrupted, streams of runs that go on are refused, and so are runs that were to be streamed; what needs no stream works.
func TestInterruptedStreams(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	f := &flaky{}
	c.carry = func(b bridge.Bridge) bridge.Bridge {
		f.Bridge = b
		return f
	}
	started, goOn := make(chan id.Run, 4), make(chan struct{})
	wait := script{stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", `{"at":"begin"}`)
		started <- inv.Run
		select {
		case <-goOn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	}}
	in := c.start(map[string]script{"echo": echo, "wait": wait}, nil)
	th, done := in.newThread(), in.newThread()
	req := request("echo")
	req.Resumable = true
	over, err := in.runs.Create(t.Context(), done, req)
	require.NoError(t, err)
	in.reaches(done, over.ID, run.Success)
	r, err := in.runs.Create(t.Context(), th, request("wait"))
	require.NoError(t, err)
	next(t, started)

	f.away.Store(true)
	_, err = in.runs.JoinStream(t.Context(), th, r.ID, nil, nil, false)
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	_, err = in.runs.StreamThread(t.Context(), th, nil, nil)
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	_, _, err = in.runs.Start(t.Context(), done, request("echo"))
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	all, err := in.runs.List(t.Context(), done, run.Query{})
	require.NoError(t, err)
	require.Len(t, all, 1, "no run was made for a stream that is not there")
	_, err = in.runs.JoinStream(t.Context(), done, id.NewRun(), nil, nil, false)
	require.True(t, fault.Is(err, fault.NotFound))
	replay, err := in.runs.JoinStream(t.Context(), done, over.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	require.Len(t, in.events(replay), 3, "of a run that is over the database tells all")

	joined, err := in.runs.Join(t.Context(), th, r.ID)
	require.NoError(t, err)
	_, err = joined.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	close(goOn)
	res, err := joined.Result(t.Context())
	require.NoError(t, err)
	require.Nil(t, res.Error)
	joined.Close(false)
	require.Equal(t, run.Success, in.status(th, r.ID), "it was waited for all the same")
}

// Whoever executes a run may die after it has written its end and before it has told it. Followers find out: waits get their result, streams are
// told to come again.
func TestAnEndThatNobodyTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := &flaky{}, &flaky{}
	bridges := []*flaky{a, b}
	c.carry = func(m bridge.Bridge) bridge.Bridge {
		f := bridges[0]
		f.Bridge, bridges = m, bridges[1:]
		return f
	}
	started, goOn := make(chan id.Run, 1), make(chan struct{})
	short := func(o *service.Options) { o.Lease = time.Second }
	graphs := map[string]script{"g": {stream: func(_ context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", `{"n":1}`)
		started <- inv.Run
		<-goOn
		emit("values", `{"n":2}`)
		return nil
	}}}
	one, two := c.start(graphs, short), c.start(graphs, short)
	th := one.newThread()
	req := request("g")
	req.Resumable = true
	r, err := one.runs.Create(t.Context(), th, req)
	require.NoError(t, err)
	next(t, started)
	follower, err := two.runs.JoinStream(t.Context(), th, r.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	_, offsets := readSome(t, follower, 2)
	waiting, err := two.runs.Join(t.Context(), th, r.ID)
	require.NoError(t, err)
	a.mute.Store(true)
	close(goOn)
	one.reaches(th, r.ID, run.Success)

	_, err = follower.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	follower.Close(true)
	again, err := two.runs.JoinStream(t.Context(), th, r.ID, &offsets[1], nil, false)
	require.NoError(t, err)
	require.Equal(t, []string{`values {"n":2}`}, two.events(again))
	res, err := waiting.Result(t.Context())
	require.NoError(t, err)
	require.Nil(t, res.Error)
	waiting.Close(false)
}

// A reader who leaves cancels a run wherever it is executed.
func TestAReaderWhoLeavesCancelsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	started := make(chan id.Run, 4)
	a := c.start(map[string]script{"g": hang(started)}, nil)
	b := c.start(map[string]script{"g": hang(started)}, func(o *service.Options) { o.Jobs = -1 }) // it executes nothing
	th := a.newThread()
	req := request("g")
	req.OnDisconnect = "cancel"
	r, f, err := b.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	next(t, started)
	f.Close(true)
	a.reaches(th, r.ID, run.Interrupted)

	second, err := b.runs.Create(t.Context(), th, request("g"))
	require.NoError(t, err)
	next(t, started)
	f, err = b.runs.JoinStream(t.Context(), th, second.ID, nil, nil, true)
	require.NoError(t, err)
	f.Close(true)
	a.reaches(th, second.ID, run.Interrupted)
}

// Strategies reach runs that another instance executes.
func TestStrategiesAcrossInstances(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy run.Strategy
		first    run.Status // "": gone
	}{{run.Interrupt, run.Interrupted}, {run.Rollback, ""}, {run.Reject, run.Running}} {
		t.Run(string(tt.strategy), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			started := make(chan id.Run, 1)
			graphs := map[string]script{"hang": hang(started), "echo": echo}
			a, b := c.start(graphs, nil), c.start(graphs, nil)
			th := a.newThread()
			first, err := a.runs.Create(t.Context(), th, request("hang"))
			require.NoError(t, err)
			next(t, started)
			req := request("echo")
			req.Strategy = tt.strategy
			second, f, err := b.runs.Start(t.Context(), th, req)
			if tt.strategy == run.Reject {
				require.True(t, fault.Is(err, fault.Conflict))
				require.Equal(t, tt.first, b.status(th, first.ID))
				require.NoError(t, b.runs.Delete(t.Context(), th, first.ID))
				_, err = a.runs.Get(t.Context(), th, first.ID)
				require.True(t, fault.Is(err, fault.NotFound), "deleting it stops it first")
				return
			}
			require.NoError(t, err)
			require.Len(t, b.events(f), 3)
			b.reaches(th, second.ID, run.Success)
			got, err := a.runs.Get(t.Context(), th, first.ID)
			if tt.first == "" {
				require.True(t, fault.Is(err, fault.NotFound), "%v", err)
			} else {
				require.NoError(t, err)
				require.Equal(t, tt.first, got.Status)
			}
		})
	}
}
