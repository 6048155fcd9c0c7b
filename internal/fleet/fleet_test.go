package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logs"
)

// elsewhere is a store whose other server writes a line a second.
type elsewhere struct {
	now   func() time.Time
	began time.Time
	reads atomic.Int64
}

func (*elsewhere) Beat(context.Context, *Report, int, time.Time) error { return nil }
func (*elsewhere) Servers(context.Context) ([]Report, error)           { return nil, nil }
func (*elsewhere) Leave(context.Context, string, time.Time) error      { return nil }

func (s *elsewhere) Lines(context.Context, time.Time, int) (list []Report, err error) {
	s.reads.Add(1)
	var lines []logs.Line
	for n := range int(s.now().Sub(s.began) / time.Second) {
		lines = append(lines, logs.Line{Seq: uint64(n) + 1, Time: s.began.Add(time.Duration(n) * time.Second), Level: "INFO", Message: "there " + strconv.Itoa(n)})
	}
	return []Report{{Server: "there", Lines: logs.Encode(lines)}}, nil
}

// Who follows the logs sees each line of each server once, in the order of its server. However many lines this server writes, the database is asked as
// often as others report: its own log of these questions could else wake the follower forever.
func TestFollowAsksTheDatabaseSeldom(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	began := time.Unix(1_000_000, 0)
	now := func() time.Time { return began.Add(time.Duration(clock.Load())) }
	store := &elsewhere{now: now, began: began}
	ring := logs.NewRing()
	log := slog.New(ring.Handler(slog.NewTextHandler(io.Discard, nil)))
	k := &Keeper{Self: Server{ID: "here"}, Load: func(*Server) {}, Store: store, Ring: ring, Now: now, Log: log}
	f, first, err := k.Follow(t.Context(), LogQuery{Limit: 1 << 20})
	require.NoError(t, err)
	require.Empty(t, first)
	const lines, step = 1000, 50 * time.Millisecond
	var here, there []string
	for n := range lines {
		clock.Add(int64(step))
		log.Info("here " + strconv.Itoa(n))
		for len(here) <= n {
			list, err := f.Next(t.Context())
			require.NoError(t, err)
			for _, l := range list {
				if l.Server == "here" {
					here = append(here, l.Message)
				} else {
					there = append(there, l.Message)
				}
			}
		}
	}
	for n, message := range here {
		require.Equal(t, "here "+strconv.Itoa(n), message)
	}
	for n, message := range there {
		require.Equal(t, "there "+strconv.Itoa(n), message)
	}
	took := lines * step
	require.GreaterOrEqual(t, len(there), int((took-othersEvery)/time.Second))
	require.LessOrEqual(t, store.reads.Load(), int64(took/othersEvery)+1)
}

// mixed is a store with the reports of other servers.
type mixed struct {
	elsewhere
	reports []Report
}

func (m *mixed) Servers(context.Context) ([]Report, error) { return m.reports, nil }

// Servers of one database whose live streams are in different places warn of each other, once for each; those that are gone, end, or do not report it do not count.
func TestServersApart(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	report := func(id, live string, age time.Duration, draining bool) Report {
		body, err := json.Marshal(Server{ID: id, Host: "host-" + id, Live: live, Beat: now.Add(-age), Draining: draining})
		require.NoError(t, err)
		return Report{Server: id, At: now.Add(-age), Body: body}
	}
	one, other, none := Place(true, "one"), Place(true, "other"), Place(false, "one")
	reports := []Report{
		report("same", one, 0, false), report("prefix", other, 0, false), report("memory", none, 0, false), report("old", "", 0, false),
		report("gone", other, time.Minute, false), report("ends", other, 0, true),
	}
	for live, want := range map[string][]string{
		one:   {`other=memory`, `other=prefix`},
		other: {`other=memory`, `other=same`},
		none:  {`other=prefix`, `other=same`},
		"":    {},
	} {
		var log bytes.Buffer
		k := &Keeper{
			Self: Server{ID: "here", Live: live}, Load: func(*Server) {}, Store: &mixed{reports: reports}, Ring: logs.NewRing(),
			Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		for range 3 * compareEvery {
			require.NoError(t, k.beat(t.Context()))
		}
		require.Equal(t, len(want), strings.Count(log.String(), "has its live streams elsewhere"), log.String())
		for _, text := range want {
			require.Equal(t, 1, strings.Count(log.String(), text), log.String())
		}
	}
	require.Equal(t, `--redis-prefix is "one" here and "other" there`, Apart(&Server{Live: one}, &Server{Live: other}))
	require.Equal(t, "the other has no Redis", Apart(&Server{Live: one}, &Server{Live: none}))
	require.Equal(t, "the other has Redis, and this one has not", Apart(&Server{Live: none}, &Server{Live: one}))
}

// Servers of one database that execute runs of different graphs warn of each other, once for each; those without graphs, that are gone, or that end do not count.
func TestServersWithOtherGraphs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	report := func(id string, age time.Duration, draining bool, graphs ...string) Report {
		body, err := json.Marshal(Server{ID: id, Beat: now.Add(-age), Draining: draining, Graphs: graphs})
		require.NoError(t, err)
		return Report{Server: id, At: now.Add(-age), Body: body}
	}
	reports := []Report{
		report("same", 0, false, "b", "a"), report("more", 0, false, "a", "b", "c"), report("less", 0, false, "a"), report("none", 0, false),
		report("gone", time.Minute, false, "x"), report("ends", 0, true, "x"),
	}
	for name, c := range map[string]struct {
		graphs, want []string
	}{
		"two":  {[]string{"a", "b"}, []string{"other=more", "other=less"}},
		"one":  {[]string{"a"}, []string{"other=same", "other=more"}},
		"none": {},
	} {
		var log bytes.Buffer
		k := &Keeper{
			Self: Server{ID: "here"}, Load: func(s *Server) { s.Graphs = c.graphs }, Store: &mixed{reports: reports}, Ring: logs.NewRing(),
			Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		for range 3 * compareEvery {
			require.NoError(t, k.beat(t.Context()))
		}
		require.Equal(t, len(c.want), strings.Count(log.String(), "serves other graphs"), "%s: %s", name, &log)
		for _, text := range c.want {
			require.Equal(t, 1, strings.Count(log.String(), text), "%s: %s", name, &log)
		}
	}
}

// Another server serves a graph from its first report that says so until one that does not, or 30 seconds after its last one: also when it ends, has left or has
// died. Before the others have been read it is assumed, and a server alone has no others.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := &mixed{}
	k := &Keeper{Self: Server{ID: "here", Graphs: []string{"mine"}}, Load: func(*Server) {}, Store: store, Ring: logs.NewRing(), Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}
	require.True(t, k.Elsewhere("g"), "the others are not known")
	require.False(t, (&Keeper{}).Elsewhere("g"), "there are no others")
	beat := func(others ...Server) {
		store.reports = nil
		for _, s := range others {
			s.Beat = now
			body, err := json.Marshal(s)
			require.NoError(t, err)
			store.reports = append(store.reports, Report{Server: s.ID, At: now, Body: body})
		}
		require.NoError(t, k.beat(t.Context()))
	}
	one := Server{ID: "one", Graphs: []string{"g", "h"}}
	beat()
	require.False(t, k.Elsewhere("g"))
	require.False(t, k.Elsewhere("mine"))
	for _, last := range []func(){
		func() { beat() }, // it has left
		func() { beat(Server{ID: "one", Graphs: one.Graphs, Draining: true}) },
		func() { require.NoError(t, k.beat(t.Context())) }, // it has died: its report stays
	} {
		beat(one)
		require.True(t, k.Elsewhere("g"))
		require.False(t, k.Elsewhere("other"))
		now = now.Add(Lately)
		last()
		require.True(t, k.Elsewhere("g"))
		now = now.Add(time.Millisecond)
		require.False(t, k.Elsewhere("g"), "30 seconds are over")
		last()
		require.False(t, k.Elsewhere("g"))
	}
	beat(one)
	beat(Server{ID: "one", Graphs: []string{"h"}}) // it has found that it cannot load it
	require.False(t, k.Elsewhere("g"))
	require.True(t, k.Elsewhere("h"))
}

// Graphs of other servers that execute runs are known when all that live have reported them.
func TestExecuting(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := &mixed{}
	k := &Keeper{Self: Server{ID: "here", Jobs: 4, Graphs: []string{"mine"}}, Load: func(*Server) {}, Store: store, Ring: logs.NewRing(), Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}
	_, known := k.Executing()
	require.False(t, known, "the others are not known")
	graphs, known := (&Keeper{}).Executing()
	require.True(t, known, "there are none")
	require.Empty(t, graphs)
	for name, c := range map[string]struct {
		others []Server
		want   []string
		known  bool
	}{
		"none":        {nil, nil, true},
		"only serves": {[]Server{{ID: "a"}}, nil, true},
		"workers":     {[]Server{{ID: "a", Jobs: 1, Graphs: []string{"h", "g"}}, {ID: "b"}, {ID: "c", Jobs: 2, Graphs: []string{"g"}}}, []string{"g", "h"}, true},
		"an old one":  {[]Server{{ID: "a", Jobs: 1}}, nil, false},
	} {
		store.reports = nil
		now = now.Add(2 * Lately)
		for _, s := range c.others {
			s.Beat = now
			body, err := json.Marshal(s)
			require.NoError(t, err)
			store.reports = append(store.reports, Report{Server: s.ID, At: now, Body: body})
		}
		require.NoError(t, k.beat(t.Context()))
		graphs, known := k.Executing()
		require.Equal(t, c.known, known, name)
		require.Equal(t, c.want, graphs, name)
		now = now.Add(Lately + time.Millisecond)
		graphs, known = k.Executing()
		require.True(t, known, name)
		require.Empty(t, graphs, "%s: reports are old", name)
	}
}
