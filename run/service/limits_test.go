package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/logtest"
	"understudy/run"
	"understudy/run/service"
)

// narrowed is a graph whose runs wait until the test lets one of them end.
type narrowed struct {
	began chan id.Run
	end   chan struct{}
}

func newNarrowed() *narrowed {
	return &narrowed{began: make(chan id.Run, 100), end: make(chan struct{})}
}

func (g *narrowed) script() script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		g.began <- inv.Run
		select {
		case <-g.end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
}

// none fails when a run has begun that nobody waited for.
func (g *narrowed) none(t *testing.T) {
	t.Helper()
	select {
	case r := <-g.began:
		t.Fatalf("run %s began beyond the limit", r)
	default:
	}
}

func create(t *testing.T, w *world, th id.Thread, graph string) id.Run {
	t.Helper()
	r, err := w.runs.Create(t.Context(), th, request(graph))
	require.NoError(t, err)
	return r.ID
}

// A graph has as many runs at once as it may, those that wait for it hold up no other, and they go on in order.
func TestGraphsHaveLimits(t *testing.T) {
	t.Parallel()
	narrow, wide := newNarrowed(), newNarrowed()
	w := newWorld(t, map[string]script{"narrow": narrow.script(), "wide": wide.script(), "closed": echo}, func(o *service.Options) {
		o.Jobs, o.Limits = 4, map[string]int{"narrow": 2, "closed": 0}
	})
	closed := w.thread()
	never := create(t, w, closed, "closed")
	const n = 20
	want := make([]id.Run, n)
	for i := range n {
		want[i] = create(t, w, w.thread(), "narrow")
	}
	require.ElementsMatch(t, want[:2], []id.Run{next(t, narrow.began), next(t, narrow.began)})

	// There are two jobs left. Runs of the other graph take them, though older ones wait.
	first, second, third := create(t, w, w.thread(), "wide"), create(t, w, w.thread(), "wide"), create(t, w, w.thread(), "wide")
	require.ElementsMatch(t, []id.Run{first, second}, []id.Run{next(t, wide.began), next(t, wide.began)})
	narrow.none(t)
	// A place that becomes free goes to the oldest of the graph, and only to one.
	for i := 2; i < n; i++ {
		narrow.end <- struct{}{}
		require.Equal(t, want[i], next(t, narrow.began))
		narrow.none(t)
		wide.none(t)
	}
	narrow.end <- struct{}{}
	require.Equal(t, third, next(t, wide.began), "none of the first graph waits any more")
	require.Equal(t, run.Pending, w.status(closed, never))
	close(narrow.end)
	close(wide.end)
}

// What was claimed in a transaction that failed takes no place.
func TestPlacesAreGivenBack(t *testing.T) {
	t.Parallel()
	g := newNarrowed()
	w := newWorld(t, map[string]script{"g": g.script()}, func(o *service.Options) { o.Limits = map[string]int{"g": 1} })
	reqs := []run.Request{request("g"), request("g")}
	reqs[1].AssistantID = string(id.NewAssistant())
	_, err := w.runs.CreateBatch(t.Context(), reqs)
	require.Error(t, err, "the second has no assistant, so neither is made")
	bad := request("g")
	bad.Config, bad.Context = json.RawMessage(`{"configurable":{"a":1}}`), json.RawMessage(`{"b":1}`)
	_, _, err = w.runs.Start(t.Context(), "", bad)
	require.Error(t, err)
	r := create(t, w, w.thread(), "g")
	require.Equal(t, r, next(t, g.began))
	// The only place is taken, for runs that are not written at once too.
	second, f, err := w.runs.Start(t.Context(), "", request("g"))
	require.NoError(t, err)
	defer f.Close(false)
	g.none(t)
	require.Equal(t, run.Pending, w.status(second.Thread, second.ID))
	g.end <- struct{}{}
	require.Equal(t, second.ID, next(t, g.began))
	close(g.end)
}

// Limits are those of an instance: others have places of their own. One without jobs leaves all to them.
func TestLimitsAreThoseOfAnInstance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	graphs := make([]*narrowed, 3)
	instances := make([]*instance, 3)
	for i := range instances {
		graphs[i] = newNarrowed()
		instances[i] = c.start(map[string]script{"g": graphs[i].script()}, func(o *service.Options) {
			o.Limits = map[string]int{"g": i}
			if i == 0 {
				o.Jobs, o.Limits = -1, nil
			}
		})
	}
	const n = 5
	for range n {
		create(t, instances[0].world, instances[0].newThread(), "g")
	}
	next(t, graphs[1].began)
	next(t, graphs[2].began)
	next(t, graphs[2].began)
	q, err := instances[0].runs.Queue(t.Context())
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(2, 3), fmt.Sprint(q.Pending, q.Running))
	graphs[1].end <- struct{}{}
	next(t, graphs[1].began)
	graphs[0].none(t)
	for _, g := range graphs {
		close(g.end)
	}
}

// That runs wait because all places are taken is logged once a minute, with the graph that takes most of them.
func TestCrowdedServersSayIt(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	log := &logtest.Buffer{}
	began := make(chan id.Run, 8)
	w := newWorld(t, map[string]script{"slow": hang(began), "other": hang(began)}, func(o *service.Options) {
		o.Jobs, o.Logger = 3, slog.New(slog.NewTextHandler(log, nil))
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	for _, g := range []string{"slow", "other", "slow"} {
		create(t, w, w.thread(), g)
		next(t, began)
	}
	create(t, w, w.thread(), "other")
	const said = "runs wait: this server executes as many as it may"
	for times := range 3 {
		require.Equal(t, times, strings.Count(log.String(), said))
		ahead.Add(int64(time.Minute))
		create(t, w, w.thread(), "other") // the queue is looked at
		require.Eventually(t, func() bool { return strings.Count(log.String(), said) > times }, time.Minute, time.Millisecond)
	}
	require.Regexp(t, `concurrency=3 first_waits=1m\ds most_of_graph=slow of_it=2 oldest_runs_for=1m\ds`, log.String())
	require.Contains(t, log.String(), "raise --concurrency")
}
