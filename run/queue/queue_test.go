package queue

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
	"understudy/run"
	"understudy/run/clock"
	"understudy/run/slots"
)

// due is a storage in which a run of a graph has been due since a time.
type due struct {
	run.Store
	graph string
	since time.Time
}

func (d *due) NextDue(_ context.Context, exclude ...string) (time.Time, error) {
	if slices.Contains(exclude, d.graph) {
		return time.Time{}, nil
	}
	return d.since, nil
}

// A server that executes nothing warns, once, of runs that no other server executes, and again after one did.
func TestRunsThatNoServerExecutes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := &due{graph: "g", since: now}
	var log logtest.Buffer
	var graphs []string
	known := false
	q := New(Options{
		Store: store, Slots: slots.New(0, nil, func() {}), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Clock:  clock.New(func() time.Time { return now }, nil, 0, slog.New(slog.DiscardHandler)),
		Others: func() ([]string, bool) { return graphs, known },
	})
	for _, c := range []struct {
		name  string
		set   func()
		warns int // so far
	}{
		{"the others are not known", func() { now = now.Add(time.Hour) }, 0},
		{"none executes", func() { known = true }, 1},
		{"it is in the log", func() {}, 1},
		{"one executes another graph", func() { graphs = []string{"h"} }, 1},
		{"one executes it", func() { graphs = []string{"g", "h"} }, 1},
		{"that has gone", func() { graphs = nil }, 2},
		{"nothing is due", func() { store.since = time.Time{} }, 2},
		{"a run is due just now", func() { store.since = now.Add(-time.Second) }, 2},
		{"it still is", func() { now = now.Add(crowdedAfter) }, 3},
	} {
		c.set()
		again, err := q.claimDue(t.Context())
		require.NoError(t, err)
		require.Equal(t, now.Add(crowdedAfter), again, c.name)
		require.Equal(t, c.warns, strings.Count(log.String(), "no server executes them"), c.name)
	}
}
