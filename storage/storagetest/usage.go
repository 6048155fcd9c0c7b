package storagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/run/usage"
	"understudy/thread"
)

// ledger ends runs on threads, deletes both, and knows what the sums have to be.
type ledger struct {
	Backend
	first   int // number of its first thread and run
	random  *rand.Rand
	threads map[id.Thread][]id.Run // with their runs that are there
	created int                    // threads
	ended   int                    // runs
	days    map[string]map[int64][]usage.Sum
}

var usageUsers = []string{"", "ada", "ben 😀\x01"}

// now is in the week of all runs, so that no day is past and nothing is kept in memory.
func (l *ledger) now() time.Time { return base.Add(24 * time.Hour) }

func (l *ledger) thread(t *testing.T) id.Thread {
	t.Helper()
	if len(l.threads) < 5 && l.random.IntN(4) == 0 || len(l.threads) == 0 {
		l.created++
		row := newThread(l.created)
		row.ID = threadID(l.first + 1 + l.created%7) // again, after the one before is deleted
		if _, there := l.threads[row.ID]; !there {
			insertThreads(t, l.Backend, row)
			l.threads[row.ID] = nil
		}
	}
	all := slices.Sorted(maps.Keys(l.threads))
	return all[l.random.IntN(len(all))]
}

// end ends a run, and copies its end into the log of another thread as a fork does.
func (l *ledger) end(t *testing.T) {
	t.Helper()
	th := l.thread(t)
	l.ended++
	n := int64(l.random.IntN(1000))
	row := newRun(l.first+l.ended, 1)
	row.Thread, row.Graph, row.Assistant = th, fmt.Sprint("g", l.random.IntN(2)), id.Assistant(fmt.Sprint("a", l.random.IntN(3)))
	row.Status = []run.Status{run.Success, run.Error, run.Timeout, run.Interrupted}[l.random.IntN(4)]
	row.CreatedAt = base
	row.EndedAt = base.Add(time.Duration(l.random.IntN(4 * 24 * 3600_000_000_000))).Add(time.Duration(l.random.IntN(1000)))
	who := usageUsers[l.random.IntN(len(usageUsers))]
	if who != "" {
		config, err := json.Marshal(map[string]any{"configurable": map[string]any{"langgraph_auth_user_id": who}})
		require.NoError(t, err)
		row.Kwargs.Config = config
	}
	hostile := "m\xff" + strings.Repeat("é", 200)
	c := &run.Completion{
		TotalTokens: &n, LLMCalls: &n, ByModel: map[string]run.Usage{"m é": {Calls: n, Total: &n}, "": {Calls: 1}, hostile: {Calls: 2}}, ByCaller: map[string]run.Usage{"lead": {Calls: n, Input: &n}},
	}
	kind := eventstore.TypeRunEnd
	if row.Status == run.Error {
		kind = eventstore.TypeRunError
	}
	event := func() []*eventstore.Event {
		return []*eventstore.Event{{Run: row.ID, Type: kind, Category: eventstore.CategoryOutputs, Content: raw(`{}`), CreatedAt: base}}
	}
	other := l.thread(t)
	write(t, l.Backend, func(tx run.Tx) error {
		if err := tx.InsertRun(row); err != nil {
			return err
		}
		if err := tx.PutCompletion(row.ID, c); err != nil {
			return err
		}
		if err := tx.AppendEvents(th, event()); err != nil || other == th {
			return err
		}
		return tx.AppendEvents(other, event())
	})
	l.threads[th] = append(l.threads[th], row.ID)
	for _, of := range []string{"", who} {
		if l.days[of] == nil {
			l.days[of] = map[int64][]usage.Sum{}
		}
		day := usage.DayOf(row.EndedAt)
		l.days[of][day] = append(l.days[of][day], usage.Of(row, c)...)
		if who == "" {
			break
		}
	}
}

func (l *ledger) deleteRun(t *testing.T) {
	t.Helper()
	th := l.thread(t)
	if runs := l.threads[th]; len(runs) > 0 {
		n := l.random.IntN(len(runs))
		write(t, l.Backend, func(tx run.Tx) error { return tx.DeleteRun(th, runs[n]) })
		l.threads[th] = slices.Delete(runs, n, n+1)
	}
}

func (l *ledger) deleteThread(t *testing.T) {
	t.Helper()
	th := l.thread(t)
	delete(l.threads, th)
	if l.random.IntN(2) == 0 {
		write(t, l.Backend, func(tx run.Tx) error { return tx.DeleteThread(th) })
		return
	}
	require.NoError(t, l.Threads.Write(ctx, func(tx thread.Tx) error { return tx.RemoveThread(th) }))
	l.rebuild(t, true) // while its rows are still there
	for more := true; more; {
		require.NoError(t, l.Threads.Write(ctx, func(tx thread.Tx) (err error) {
			more, err = tx.DeleteRemains(th, 3)
			return err
		}))
	}
}

// follow adds what has ended on some threads, as several servers do at the same time.
func (l *ledger) follow(t *testing.T, threads ...id.Thread) {
	t.Helper()
	var all sync.WaitGroup
	for range 1 + l.random.IntN(2) {
		all.Go(func() {
			changes := eventstore.NewChanges()
			changes.Add(threads)
			ended, stop := context.WithCancel(ctx)
			stop()
			loop := usage.NewLoop(l.Usage, changes, l.now, slog.New(slog.DiscardHandler))
			loop.Last = true // what is known to have changed is synchronized at the end
			if err := loop.Run(ended); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (l *ledger) followAll(t *testing.T) {
	t.Helper()
	var all []id.Thread
	for n := range 8 {
		all = append(all, threadID(l.first+n))
	}
	l.follow(t, all...)
}

func (l *ledger) rebuild(t *testing.T, check bool) *usage.Rebuilt {
	t.Helper()
	got, err := (&usage.Rebuilding{Store: l.Usage, Now: l.now, Check: check}).Run(ctx)
	require.NoError(t, err)
	return got
}

func (l *ledger) service() *usage.Service { return &usage.Service{Store: l.Usage, Now: l.now} }

func (l *ledger) check(t *testing.T, what string) {
	t.Helper()
	first, last := usage.DayOf(base), usage.DayOf(base)+4
	for _, identity := range append([]string{"none"}, usageUsers...) {
		got, err := l.service().Report(ctx, usage.Query{Identity: identity, Days: 5, Until: usage.Date(last)})
		require.NoError(t, err)
		require.Equal(t, usage.NewReport(first, last, l.days[identity]), got, "%s: %s", what, identity)
	}
}

// random does one thing, and returns what.
func (l *ledger) step(t *testing.T) string {
	t.Helper()
	switch l.random.IntN(12) {
	case 0:
		l.deleteRun(t)
		return "a run is deleted"
	case 1:
		l.deleteThread(t)
		return "a thread is deleted"
	case 2:
		require.NoError(t, l.service().Settle(ctx))
		return "settled"
	case 3, 4:
		l.follow(t, l.thread(t), threadID(l.first+l.random.IntN(8)))
		return "followed"
	case 5:
		l.rebuild(t, false) // adds what the follower would, which finds it again
		return "rebuilt"
	default:
		l.end(t)
		return "ended"
	}
}

// usageDamage changes what is stored, except for the runs themselves.
var usageDamage = map[string]func(r *rand.Rand, kept []usage.Kept) usage.Change{
	"a sum": func(*rand.Rand, []usage.Kept) usage.Change {
		return usage.Change{Sums: map[usage.Place][]usage.Sum{{Day: usage.DayOf(base)}: {{Kind: usage.All, Runs: 3, Total: -7}, {Kind: usage.Model, Name: "invented", Runs: 1}}}}
	},
	"what is kept of a run": func(r *rand.Rand, kept []usage.Kept) usage.Change {
		e := kept[r.IntN(len(kept))].Ended
		e.Sums = []usage.Sum{{Kind: usage.All, Runs: 9}}
		return usage.Change{Put: []usage.Ended{e}}
	},
	"what a version kept that knew no times by name": func(r *rand.Rand, kept []usage.Kept) usage.Change {
		was := kept[r.IntN(len(kept))].Ended
		e := was
		e.Sums = slices.DeleteFunc(slices.Clone(was.Sums), func(s usage.Sum) bool { return strings.HasPrefix(s.Kind, "took-") })
		less := usage.Adder{}
		less.Add(was, -1)
		less.Add(e, 1)
		return usage.Change{Put: []usage.Ended{e}, Sums: less.Sums()}
	},
	"the day of a run": func(r *rand.Rand, kept []usage.Kept) usage.Change {
		was := kept[r.IntN(len(kept))].Ended
		e := was
		e.Day += 2
		return usage.Change{Drop: []usage.Ended{was}, Put: []usage.Ended{e}}
	},
	"a run is lost": func(r *rand.Rand, kept []usage.Kept) usage.Change {
		return usage.Change{Drop: []usage.Ended{kept[r.IntN(len(kept))].Ended}}
	},
}

var usageCases = map[string]func(*testing.T, Backend){
	// Whatever is followed when, by how many servers, and whether runs and threads still exist: each run counts once, for everyone and for its identity. What is kept
	// of runs follows from their rows, and the sums from what is kept, also after some of it was changed or lost; what deleted runs used stays.
	"sums are those of all runs": func(t *testing.T, b Backend) {
		t.Helper()
		for seed := range seedtest.Seeds(3) {
			l := &ledger{Backend: b, random: rand.New(rand.NewPCG(seed, 2)), threads: map[id.Thread][]id.Run{}, days: map[string]map[int64][]usage.Sum{}}
			for range 8 {
				var did []string
				for range 25 {
					did = append(did, l.step(t))
				}
				l.followAll(t)
				l.check(t, strings.Join(did, ", "))
				got := l.rebuild(t, true)
				require.Zero(t, got.Different, did)
				require.Zero(t, got.Behind, did)
			}
			runs := 0
			for _, list := range l.threads {
				runs += len(list)
			}
			require.NoError(t, l.service().Settle(ctx))
			require.Equal(t, runs, l.rebuild(t, false).Runs)
			for name, damage := range usageDamage {
				kept, err := b.Usage.KeptRuns(ctx, usage.Ended{}, 1000)
				require.NoError(t, err)
				require.Len(t, kept, runs, name)
				require.NoError(t, b.Usage.ChangeUsage(ctx, damage(l.random, kept)), name)
				for range 2 { // a check changes nothing
					require.Positive(t, l.rebuild(t, true).Different, name)
				}
				require.Positive(t, l.rebuild(t, false).Different, name)
				require.Zero(t, l.rebuild(t, true).Different, name)
				l.check(t, name)
			}
			b = b.reopen(t)
			l.Backend = b
			l.check(t, "opened again")
			for len(l.threads) > 0 {
				l.deleteThread(t)
			}
			l.followAll(t)
			require.NoError(t, l.service().Settle(ctx))
			l.check(t, "all deleted")
			require.Equal(t, &usage.Rebuilt{}, l.rebuild(t, true))
			require.NoError(t, b.Usage.DropUsage(ctx, usage.DayOf(base)+100))
			got, err := l.service().Report(ctx, usage.Query{Days: 5, Until: base.Add(4 * 24 * time.Hour)})
			require.NoError(t, err)
			require.Zero(t, got.Whole.Runs)
		}
	},
	// The same while runs end, are deleted, followed, settled and rebuilt at the same time.
	"sums are those of all runs at once": func(t *testing.T, b Backend) {
		t.Helper()
		for seed := range seedtest.Seeds(1) {
			all := ledger{Backend: b, days: map[string]map[int64][]usage.Sum{}}
			ledgers := make([]*ledger, 4)
			t.Run("together", func(t *testing.T) {
				for n := range ledgers {
					l := &ledger{Backend: b, first: 10_000*int(seed) + 1000*(n+1), random: rand.New(rand.NewPCG(seed, uint64(n))), threads: map[id.Thread][]id.Run{}, days: map[string]map[int64][]usage.Sum{}}
					ledgers[n] = l
					t.Run("", func(t *testing.T) {
						t.Parallel()
						for range 60 {
							l.step(t)
						}
					})
				}
			})
			for _, l := range ledgers {
				for who, days := range l.days {
					if all.days[who] == nil {
						all.days[who] = map[int64][]usage.Sum{}
					}
					for day, sums := range days {
						all.days[who][day] = append(all.days[who][day], sums...)
					}
				}
				l.followAll(t)
			}
			all.check(t, "followed")
			require.NoError(t, all.service().Settle(ctx))
			all.check(t, "settled")
			require.Zero(t, all.rebuild(t, true).Different)
			for _, l := range ledgers {
				for len(l.threads) > 0 {
					l.deleteThread(t)
				}
			}
			require.NoError(t, all.service().Settle(ctx))
			all.check(t, "all deleted")
			require.Equal(t, &usage.Rebuilt{}, all.rebuild(t, true))
			require.NoError(t, b.Usage.DropUsage(ctx, usage.DayOf(base)+100))
		}
	},
	"what another server has settled is not settled again": func(t *testing.T, b Backend) {
		t.Helper()
		e := usage.Ended{Run: runID(1), Day: 1, Sums: []usage.Sum{{Kind: usage.All, Runs: 1}}}
		require.NoError(t, b.Usage.ChangeUsage(ctx, usage.Change{Put: []usage.Ended{e}}))
		change := usage.Change{Drop: []usage.Ended{e}, Final: map[usage.Place][]usage.Sum{{Day: 1}: e.Sums}}
		require.NoError(t, b.Usage.ChangeUsage(ctx, change))
		require.ErrorIs(t, b.Usage.ChangeUsage(ctx, change), usage.ErrChanged)
		days, err := b.Usage.UsageOf(ctx, "", 1, 1)
		require.NoError(t, err)
		require.Equal(t, map[int64][]usage.Sum{1: {{Kind: usage.All, Runs: 1}}}, days)
	},
}

// UsageUpgrade checks that each run counts once whose database is of the version that listed what runs used, whatever that version had done with it. before replaces
// the offsets of the follower by a list of runs, with the sums of each, and makes the step to the version with the follower.
func UsageUpgrade(t *testing.T, b Backend, before func(listed []usage.Ended)) {
	t.Helper()
	l := &ledger{Backend: b, random: rand.New(rand.NewPCG(3, 4)), threads: map[id.Thread][]id.Run{}, days: map[string]map[int64][]usage.Sum{}}
	for len(l.threads) < 4 {
		l.thread(t)
	}
	for range 40 {
		l.end(t)
	}
	kept, err := b.Usage.KeptRuns(ctx, usage.Ended{}, 1000)
	require.NoError(t, err)
	require.Empty(t, kept)
	l.followAll(t)
	kept, err = b.Usage.KeptRuns(ctx, usage.Ended{}, 1000)
	require.NoError(t, err)
	var listed []usage.Ended
	sums, final, c := usage.Adder{}, usage.Adder{}, usage.Change{}
	slices.SortFunc(kept, func(a, b usage.Kept) int { return strings.Compare(string(a.Run), string(b.Run)) })
	for n, k := range kept {
		switch e := k.Ended; {
		case n < 10: // it ended before runs were kept
			c.Drop = append(c.Drop, e)
			sums.Add(e, -1)
			final.Add(e, 1)
		case n >= 30: // it is listed
			c.Drop = append(c.Drop, e)
			sums.Add(e, -1)
			listed = append(listed, e)
		}
	}
	c.Sums, c.Final = sums.Sums(), final.Sums()
	require.NoError(t, b.Usage.ChangeUsage(ctx, c))
	before(listed)
	for range 10 {
		l.end(t)
	}
	for th, runs := range l.threads { // one that is gone before the first sweep
		write(t, b, func(tx run.Tx) error { return tx.DeleteRun(th, runs[len(runs)-1]) })
		break
	}
	l.followAll(t)
	l.check(t, "after the upgrade")
	require.Zero(t, l.rebuild(t, true).Different)
	require.Zero(t, l.rebuild(t, false).Different)
	l.check(t, "after a rebuild")
}

// UsageOfDamagedRuns checks that a run whose row cannot be decoded keeps neither the others from being counted nor its thread from being deleted. damage makes the
// row of a run unreadable.
func UsageOfDamagedRuns(t *testing.T, b Backend, damage func(r id.Run)) {
	t.Helper()
	l := &ledger{Backend: b, random: rand.New(rand.NewPCG(5, 6)), threads: map[id.Thread][]id.Run{}, days: map[string]map[int64][]usage.Sum{}}
	for range 20 {
		l.end(t)
	}
	var damaged id.Run
	for th, runs := range l.threads {
		if len(runs) == 0 {
			continue
		}
		damaged = runs[0]
		damage(damaged)
		l.followAll(t)
		kept, err := b.Usage.KeptRuns(ctx, usage.Ended{}, 1000)
		require.NoError(t, err)
		require.Equal(t, 19, len(kept), "all but the damaged one") //nolint:testifylint // Len prints them all
		require.False(t, slices.ContainsFunc(kept, func(k usage.Kept) bool { return k.Run == damaged }))
		write(t, b, func(tx run.Tx) error { return tx.DeleteThread(th) })
		return
	}
}

// EndedRun makes a run that is over, and not counted.
func EndedRun(t *testing.T, b Backend) (th id.Thread, r id.Run) {
	t.Helper()
	l := &ledger{Backend: b, random: rand.New(rand.NewPCG(7, 8)), threads: map[id.Thread][]id.Run{}, days: map[string]map[int64][]usage.Sum{}}
	l.end(t)
	for th, runs := range l.threads {
		if len(runs) > 0 {
			return th, runs[0]
		}
	}
	panic("no run")
}
