package guard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
)

// Over any order of requests nobody creates more in a minute than twice the number (a full store, and what comes in), what is refused is taken as soon as Retry-After says,
// and others have no influence.
func TestPace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := &Pace{PerMinute: 1 + r.IntN(20)}
		now := time.Unix(1e9, 0)
		took := map[string][]time.Time{}
		for range 500 {
			now = now.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
			who, n := fmt.Sprint(r.IntN(3)), 1+r.IntN(3)
			err := p.takeAt(who, n, now)
			if err != nil {
				var refused *access.Refusal
				require.ErrorAs(t, err, &refused)
				require.Equal(t, 429, refused.Status)
				after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
				require.NoError(t, err)
				require.Positive(t, after)
				if n > p.PerMinute {
					continue
				}
				now = now.Add(time.Duration(after) * time.Second)
				require.NoError(t, p.takeAt(who, n, now), "seed %d", seed)
			}
			for range n {
				took[who] = append(took[who], now)
			}
			in := 0
			for _, at := range took[who] {
				if now.Sub(at) < time.Minute {
					in++
				}
			}
			require.LessOrEqual(t, in, 2*p.PerMinute)
		}
	}
	require.NoError(t, (&Pace{}).takeAt("x", 1_000_000, time.Now()), "no limit")
}

// What is kept of identities is bounded by those that have created runs lately.
func TestPaceForgets(t *testing.T) {
	t.Parallel()
	p := &Pace{PerMinute: 10}
	now := time.Unix(1e9, 0)
	for i := range 50_000 {
		now = now.Add(10 * time.Millisecond)
		require.NoError(t, p.takeAt(fmt.Sprint(i), 1, now))
		require.LessOrEqual(t, len(p.of), 2*maxPaced)
	}
	var err error
	for range 11 {
		err = errors.Join(err, p.takeAt("busy", 1, now))
	}
	require.Error(t, err)
	for i := range 30_000 {
		_ = p.takeAt(fmt.Sprint("other", i), 1, now)
	}
	require.Error(t, p.takeAt("busy", 1, now), "one that has used up its runs is not forgotten")
}
