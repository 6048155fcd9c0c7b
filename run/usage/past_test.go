package usage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ledger is a store of sums.
type ledger struct {
	Store
	sums map[string]map[int64][]Sum
	days int64 // that were read
}

func (l *ledger) UsageOf(_ context.Context, identity string, since, until int64) (map[int64][]Sum, error) {
	l.days += until - since + 1
	out := map[int64][]Sum{}
	for day := since; day <= until; day++ {
		out[day] = l.sums[identity][day]
	}
	return out, nil
}

// Reports are right whatever was kept in memory before, while runs end and days pass; past days are read once.
func TestPastDaysAreReadOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	l := &ledger{sums: map[string]map[int64][]Sum{}}
	now := Date(20_000)
	s := &Service{Store: l, Now: func() time.Time { return now }}
	who := func() string { return fmt.Sprint("user ", r.IntN(2*pastMost)) }
	for range 4_000 {
		identity := who()
		if l.sums[identity] == nil {
			l.sums[identity] = map[int64][]Sum{}
		}
		switch r.IntN(5) {
		case 0: // a run ends, by the clock of a server that is up to a day behind
			day := DayOf(now) - int64(r.IntN(2))
			l.sums[identity][day] = append(l.sums[identity][day], Sum{Kind: All, Runs: 1}, Sum{Kind: Model, Name: fmt.Sprint(r.IntN(3)), Runs: 1, Total: int64(r.IntN(100))})
		case 1:
			now = now.Add(time.Duration(r.IntN(12)) * time.Hour)
		default:
			q := Query{Identity: identity, Days: 1 + r.IntN(40), Until: now.AddDate(0, 0, -r.IntN(10))}
			got, err := s.Report(t.Context(), q)
			require.NoError(t, err)
			until := DayOf(q.Until)
			require.Equal(t, NewReport(until-int64(q.Days)+1, until, l.sums[identity]), got)
		}
	}
	require.LessOrEqual(t, len(s.past.by), pastMost)
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

// However many identities ask for however many sums, what is kept has a bound, and everyone's days stay.
func TestPastDaysHaveABound(t *testing.T) {
	t.Parallel()
	now := Date(20_000)
	var p past
	year := func(names int) map[int64][]Sum {
		read := map[int64][]Sum{}
		for day := DayOf(now) - MaxDays; day < DayOf(now); day++ {
			for n := range names {
				read[day] = append(read[day], Sum{Kind: Model, Name: fmt.Sprintf("%0*d", maxName, n), Runs: 1})
			}
		}
		return read
	}
	from, until := DayOf(now)-MaxDays, DayOf(now)-1
	p.keep("", from, until, year(20), now)
	everyone := len(p.by[""].days)
	require.Equal(t, MaxDays-1, everyone)
	large := year(60)
	for i := range 2 * pastMost {
		p.keep(fmt.Sprint("user ", i), from, until, large, now.Add(time.Duration(i)*time.Second))
		held := 0
		for _, known := range p.by {
			for _, sums := range known.days {
				held += sizeOf(sums)
			}
		}
		require.Equal(t, held, p.bytes)
		require.LessOrEqual(t, held, pastBytes)
		require.LessOrEqual(t, len(p.by), pastMost)
		require.Len(t, p.by[""].days, everyone)
	}
	p.clear()
	require.Zero(t, p.bytes)
}
