package clock_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
	"understudy/run/clock"
)

// However the clocks of the machine and of the database jump: each comparison brings Now to the database's time, and reports as a jump exactly what moved it
// by more than the bound. Sure is false only then.
func TestJumps(t *testing.T) {
	const most = 5 * time.Second
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
			var ahead, database time.Duration        // of the bubble's time
			machine := func() time.Time { return time.Now().Round(0).Add(ahead) }
			asked := 0
			c := clock.New(machine, func(context.Context) (time.Time, error) { asked++; return time.Now().Add(database), nil }, most, slog.New(slog.DiscardHandler))
			require.NoError(t, c.Compare(t.Context()))
			jumps := 0
			for range 100 {
				by := time.Duration(random.IntN(20)-10) * time.Second
				switch random.IntN(3) {
				case 0:
					ahead += by
				case 1:
					database += by
				}
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				before, off := asked, c.Now().Sub(time.Now().Add(database)).Abs()
				var sure, compared bool
				var err error
				if compared = random.IntN(2) == 0; compared {
					err = c.Compare(t.Context())
				} else {
					_, sure, err = c.Sure(t.Context())
				}
				require.NoError(t, err)
				jumped := asked > before && off > most+time.Millisecond
				if jumped {
					jumps++
				}
				require.Equal(t, jumps, c.Jumps(), "seed %d", seed)
				if asked > before {
					require.WithinDuration(t, time.Now().Add(database), c.Now(), time.Millisecond, "seed %d", seed)
				}
				require.Equal(t, !compared && !jumped, sure, "seed %d", seed)
			}
			// A comparison of a moment ago is not enough when the machine's clock was set since.
			require.NoError(t, c.Compare(t.Context()))
			require.NoError(t, c.Compare(t.Context()))
			for _, by := range []time.Duration{time.Minute, -time.Minute} {
				ahead += by
				_, sure, err := c.Sure(t.Context())
				require.NoError(t, err)
				require.False(t, sure, "seed %d: a jump of %s went unnoticed", seed, by)
				var now time.Time
				now, sure, err = c.Sure(t.Context())
				require.NoError(t, err)
				require.True(t, sure)
				require.WithinDuration(t, time.Now().Add(database), now, time.Millisecond)
			}
		})
	}
}

// An answer that took long, as of a database that hung, says nothing of a difference that it explains: neither that there is one, nor that there is none any more.
func TestDifferencesThatAnswersExplain(t *testing.T) {
	for name, c := range map[string]struct {
		ahead          time.Duration
		before, behind time.Duration // how long the question and the answer were under way
		warns          int
	}{
		"the question hung":             {0, 4200 * time.Millisecond, 0, 0},
		"the answer hung":               {0, 0, 4200 * time.Millisecond, 0},
		"the clock is wrong":            {3 * time.Second, 0, 0, 1},
		"the clock is wrong, and slow":  {20 * time.Second, 4200 * time.Millisecond, 0, 1},
		"behind, and the question hung": {-20 * time.Second, 4200 * time.Millisecond, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Buffer
			ask := func(context.Context) (time.Time, error) {
				time.Sleep(c.before)
				at := time.Now().Add(-c.ahead)
				time.Sleep(c.behind)
				return at, nil
			}
			k := clock.New(time.Now, ask, time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
			for range 3 {
				require.NoError(t, k.Compare(t.Context()))
			}
			require.Equal(t, c.warns, strings.Count(log.String(), "differs from the database's"), name)
			require.NotContains(t, log.String(), "agrees", name)
		})
	}
}

func TestNothingToCompareWith(t *testing.T) {
	at := time.Now()
	c := clock.New(func() time.Time { return at }, nil, time.Second, slog.New(slog.DiscardHandler))
	for range 2 {
		require.NoError(t, c.Compare(t.Context()))
		now, sure, err := c.Sure(t.Context())
		require.NoError(t, err)
		require.True(t, sure)
		require.Equal(t, at, now)
		require.Equal(t, at, c.Now())
		at = at.Add(time.Hour)
	}
	away := errors.New("away")
	c = clock.New(time.Now, func(context.Context) (time.Time, error) { return time.Time{}, away }, time.Second, slog.New(slog.DiscardHandler))
	_, _, err := c.Sure(t.Context())
	require.ErrorIs(t, err, away)
	require.WithinDuration(t, time.Now(), c.Now(), time.Minute)
}

// A clock that jumps while the database is asked is not sure, whatever the direction, also the first time. Retried, it has the database's time.
func TestJumpsDuringAComparison(t *testing.T) {
	const most = 5 * time.Second
	for _, first := range []bool{true, false} {
		for _, jump := range []time.Duration{6 * time.Second, 3 * time.Hour, -6 * time.Second, -3 * time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				var ahead, during time.Duration
				machine := func() time.Time { return time.Now().Round(0).Add(ahead) }
				c := clock.New(machine, func(context.Context) (time.Time, error) {
					defer func() { ahead += during }()
					return time.Now(), nil
				}, most, slog.New(slog.DiscardHandler))
				if !first {
					require.NoError(t, c.Compare(t.Context()))
					time.Sleep(2 * time.Second)
				}
				during = jump
				_, sure, err := c.Sure(t.Context())
				require.NoError(t, err)
				require.False(t, sure, "%v, first %v", jump, first)
				during = 0
				for tries := 0; !sure; tries++ {
					require.Less(t, tries, 3)
					time.Sleep(clock.Retry)
					var now time.Time
					now, sure, err = c.Sure(t.Context())
					require.NoError(t, err)
					if sure {
						require.WithinDuration(t, time.Now(), now, time.Millisecond, "%v, first %v", jump, first)
					}
				}
			})
		}
	}
}
