package usage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ledger is a store with what ended, and what of it is still listed.
type ledger struct {
	Store
	sums, listed map[string]map[int64][]Sum
	days         int64 // that were read
}

func (l *ledger) UsageOf(_ context.Context, identity string, since, until int64) (days, listed map[int64][]Sum, err error) {
	l.days += until - since + 1
	in := func(all map[int64][]Sum) map[int64][]Sum {
		out := map[int64][]Sum{}
		for day := since; day <= until; day++ {
			out[day] = all[day]
		}
		return out
	}
	return in(l.sums[identity]), in(l.listed[identity]), nil
}

// Reports are right whatever was kept in memory before, while runs end, are folded days later, and days pass; past days are read once.
func TestPastDaysAreReadOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	l := &ledger{sums: map[string]map[int64][]Sum{}, listed: map[string]map[int64][]Sum{}}
	now := Date(20_000)
	s := &Service{Store: l, Now: func() time.Time { return now }}
	who := func() string { return fmt.Sprint("user ", r.IntN(2*pastMost)) }
	for range 4_000 {
		identity := who()
		if l.listed[identity] == nil {
			l.sums[identity], l.listed[identity] = map[int64][]Sum{}, map[int64][]Sum{}
		}
		switch r.IntN(6) {
		case 0: // a run ends, by the clock of a server that is up to a day behind
			day := DayOf(now) - int64(r.IntN(2))
			l.listed[identity][day] = append(l.listed[identity][day], Sum{Kind: All, Runs: 1}, Sum{Kind: Model, Name: fmt.Sprint(r.IntN(3)), Runs: 1, Total: int64(r.IntN(100))})
		case 1: // some are folded, of whatever day
			for day, list := range l.listed[identity] {
				l.sums[identity][day] = append(l.sums[identity][day], list...)
				delete(l.listed[identity], day)
				break
			}
		case 2:
			now = now.Add(time.Duration(r.IntN(12)) * time.Hour)
		default:
			days := map[int64][]Sum{}
			for _, part := range []map[int64][]Sum{l.sums[identity], l.listed[identity]} {
				for day, sums := range part {
					days[day] = append(days[day], sums...)
				}
			}
			q := Query{Identity: identity, Days: 1 + r.IntN(40), Until: now.AddDate(0, 0, -r.IntN(10))}
			got, err := s.Report(t.Context(), q)
			require.NoError(t, err)
			until := DayOf(q.Until)
			require.Equal(t, NewReport(until-int64(q.Days)+1, until, days), got)
		}
	}
	require.LessOrEqual(t, len(s.past.by), pastMost)
	for _, d := range l.listed {
		clear(d)
	}
	require.NoError(t, s.warm(t.Context()))
	l.days = 0
	for range 5 {
		_, err := s.Report(t.Context(), Query{Days: MaxDays})
		require.NoError(t, err)
	}
	require.Equal(t, int64(5*2), l.days, "today and yesterday")
	// What was changed in the database shows after a while.
	l.sums[""] = map[int64][]Sum{DayOf(now) - 9: {{Kind: All, Runs: 3}}}
	now = now.Add(pastFor)
	got, err := s.Report(t.Context(), Query{Days: MaxDays})
	require.NoError(t, err)
	require.Equal(t, int64(3), got.Whole.Runs)
}
