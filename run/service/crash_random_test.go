package service_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/run/service"
)

// mortal is a store whose server can be killed: from then on nothing is written.
type mortal struct {
	run.Store
	dead *atomic.Bool
}

func (m mortal) Write(ctx context.Context, fn func(run.Tx) error) error {
	return m.Store.Write(ctx, func(tx run.Tx) error {
		if m.dead.Load() {
			return errors.New("the server was killed")
		}
		return fn(tx)
	})
}

// lasting is a graph that goes on until its server ends. It saves a checkpoint when it is asked to.
type lasting struct {
	graph.Graph
	began chan id.Run
	saves sync.Map // id.Run -> chan chan struct{}
}

// asked gives where a run hears that it is to save a checkpoint. It answers when it has.
func (g *lasting) asked(r id.Run) chan chan struct{} {
	c, _ := g.saves.LoadOrStore(r, make(chan chan struct{}))
	return c.(chan chan struct{})
}

// save has a run save a checkpoint as soon as it is executed.
func (g *lasting) save(r id.Run) {
	saved := make(chan struct{})
	g.asked(r) <- saved
	<-saved
}

func (g *lasting) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		g.began <- inv.Run
		for {
			select {
			case saved := <-g.asked(inv.Run):
				(&talk{inv: inv, ctx: ctx}).save("h1")
				close(saved)
			case <-ctx.Done():
				yield(graph.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// lives is a world whose server lives and dies again and again.
type lives struct {
	*world
	g    *lasting
	dead *atomic.Bool
}

func newLives(t *testing.T) *lives {
	w := newWorld(t, nil, func(o *service.Options) { o.Grace = time.Millisecond })
	l := &lives{world: w, g: &lasting{began: make(chan id.Run, 10)}}
	require.NoError(t, w.graphs.Add("g", "", l.g))
	w.wrap = func(s run.Store) run.Store {
		l.dead = &atomic.Bool{}
		return mortal{s, l.dead}
	}
	l.begin(service.Options{Jobs: 4, Lease: 20 * time.Millisecond})
	return l
}

// begin starts the next server.
func (l *lives) begin(o service.Options) {
	l.stop()
	for len(l.g.began) > 0 {
		<-l.g.began
	}
	l.options.Jobs, l.options.Lease = o.Jobs, o.Lease
	l.start()
}

func (l *lives) kill() {
	l.dead.Store(true)
	l.stop()
}

// until waits until a run is executed.
func (l *lives) until(r id.Run, why string) {
	l.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case began := <-l.g.began:
			if began == r {
				return
			}
		case <-late:
			require.Fail(l.t, "the run is not executed", why)
		}
	}
}

// eventually waits until the row of a run is as it is to be.
func (l *lives) eventually(th id.Thread, r id.Run, is func(*run.Run) bool, why string) *run.Run {
	l.t.Helper()
	var row *run.Run
	require.Eventually(l.t, func() bool {
		var err error
		row, err = l.runs.Get(context.Background(), th, r)
		return err == nil && is(row)
	}, 2*time.Minute, 2*time.Millisecond, why)
	return row
}

func over(r *run.Run) bool { return r.Status.Over() }

// A run that is alone ends with ServerDied when three servers in a row died while they executed it, and not before: whatever else happens
// in between, hand-backs above all, counts nothing.
func TestStartsOfARunThatKillsItsServer(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3))
			l := newLives(t)
			th := l.thread()
			r, err := l.runs.Create(t.Context(), th, request("g"))
			require.NoError(t, err)
			l.until(r.ID, "at first")
			deaths, story, started := 0, "", true
			for round := 0; ; round++ {
				if !started {
					l.begin(service.Options{Jobs: 4, Lease: 20 * time.Millisecond})
				}
				if deaths == 3 {
					row := l.eventually(th, r.ID, over, story)
					require.Equal(t, run.Error, row.Status, story)
					require.Equal(t, "ServerDied", gjson.GetBytes(row.Error, "error").String(), story)
					require.Empty(t, l.g.began, story)
					return
				}
				if !started {
					l.until(r.ID, story)
				}
				row, err := l.runs.Get(t.Context(), th, r.ID)
				require.NoError(t, err)
				require.Equal(t, run.Running, row.Status, story)
				started = false
				kind := rng.IntN(10)
				if round > 12 {
					kind = 0 // so that it ends
				}
				switch kind {
				default:
					story += " killed"
					l.kill()
					deaths++
				case 4, 5:
					story += " handed-back"
					l.stop()
				case 6: // a checkpoint clears everything
					story += " saved"
					l.g.save(r.ID)
					deaths = 0
					if rng.IntN(2) == 0 {
						l.kill()
						deaths = 1
						story += " killed"
					}
				case 7: // starts that do not reach it
					story += " idle"
					l.stop()
					l.begin(service.Options{Jobs: -1, Lease: 20 * time.Millisecond})
					l.kill()
				case 8: // its turn has passed
					if deaths > 0 {
						story += " company"
						l.eventually(th, r.ID, func(row *run.Run) bool { return row.Turn == run.Company }, story)
					}
					story += " killed"
					l.kill()
					deaths++
				case 9: // it waits for its turn
					l.stop()
					story += " handed-back"
					if deaths < 2 {
						break
					}
					l.begin(service.Options{Jobs: 4, Lease: time.Hour})
					l.eventually(th, r.ID, func(row *run.Run) bool { return row.Status == run.Running }, story)
					if rng.IntN(2) == 0 {
						story += " handed-back-waiting"
						l.stop()
					} else {
						story += " killed-waiting"
						l.kill()
						deaths = 0
					}
				}
			}
		})
	}
}

// A run that kills its server beside others ends with ServerDied after four starts, however often it was handed back. The others never do, and are
// executed after it.
func TestARunThatKillsItsServerBesideOthers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 4))
			l := newLives(t)
			var threads []id.Thread
			var runs []id.Run
			for range 3 {
				th := l.thread()
				r, err := l.runs.Create(t.Context(), th, request("g"))
				require.NoError(t, err)
				threads, runs = append(threads, th), append(runs, r.ID)
				l.until(r.ID, "at first")
			}
			killer := rng.IntN(3)
			story := ""
			for deaths := 0; deaths < 4; {
				if story != "" {
					l.begin(service.Options{Jobs: 4, Lease: 20 * time.Millisecond})
					l.until(runs[killer], story)
				}
				if rng.IntN(3) == 0 {
					story += " handed-back"
					l.stop()
					continue
				}
				story += " killed"
				l.kill()
				deaths++
			}
			l.begin(service.Options{Jobs: 4, Lease: 20 * time.Millisecond})
			row := l.eventually(threads[killer], runs[killer], over, story)
			require.Equal(t, "ServerDied", gjson.GetBytes(row.Error, "error").String(), story)
			known, err := l.runs.Completions(t.Context(), row)
			require.NoError(t, err)
			require.Equal(t, to(graph.OrphanRecovered), known[row.ID].StopReason, story)
			for i, r := range runs {
				if i == killer {
					continue
				}
				l.g.save(r)
				row, err := l.runs.Get(t.Context(), threads[i], r)
				require.NoError(t, err)
				require.Equal(t, run.Running, row.Status, story)
				require.Zero(t, row.Crashes, story)
			}
		})
	}
}
