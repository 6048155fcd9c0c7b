package run

import (
	"context"
	"sync"
	"time"
)

// skewWorthSaying is from when on the log tells that the machine's clock is off.
const skewWorthSaying = time.Second

const (
	// clockAge is for how long what the database said is good enough to claim by.
	clockAge = time.Second
	// clockRetry is when a clock that jumped is measured again.
	clockRetry = 100 * time.Millisecond
)

// clock is the time that instances of one database agree on: the database's, as it was when it was asked last, and what has passed since by this
// machine's monotonic clock. So neither a clock that is wrong nor one that is set while the server runs takes runs from others or fires what is not
// due. Before the first answer it is the machine's.
type clock struct {
	machine func() time.Time
	most    time.Duration // above it a correction is a jump

	mu     sync.RWMutex // guards what follows
	asked  time.Time    // of the machine; zero: never
	answer time.Time    // of the database
	told   time.Duration

	measured time.Time // of the machine, when it was last compared; zero: never
	doubted  bool      // the last comparison found a jump
	jumps    int
}

func (c *clock) now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.at(c.machine())
}

// at is the common time when the machine's is now. c.mu is held.
func (c *clock) at(now time.Time) time.Time {
	if c.asked.IsZero() {
		return now
	}
	return c.answer.Add(now.Sub(c.asked))
}

// set takes over what the database said between two times of the machine. Answers differ by how long they were under way: a difference that may
// be due to that moves nothing. It gives how far the machine is ahead, whether that is news, and whether the time jumped.
func (c *clock) set(before, after, answer time.Time) (ahead time.Duration, news, jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	middle := before.Add(after.Sub(before) / 2)
	off, slack := c.at(middle).Sub(answer).Abs(), after.Sub(before)/2+time.Millisecond
	c.doubted = !c.asked.IsZero() && off > slack+c.most
	if c.doubted {
		c.jumps++
	}
	if c.asked.IsZero() || off > slack {
		c.asked, c.answer = middle, answer
	}
	c.measured = after
	ahead = middle.Round(0).Sub(answer)
	news = (ahead - c.told).Abs() > skewWorthSaying
	if news {
		c.told = ahead
	}
	return ahead, news, c.doubted
}

// sure reports whether the time was compared a moment ago, and had not jumped. A machine's clock that was set since, back or forward, makes the
// comparison look old.
func (c *clock) sure() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	age := c.machine().Sub(c.measured)
	return !c.measured.IsZero() && !c.doubted && age >= 0 && age < clockAge
}

// jumped is how often the time jumped.
func (c *clock) jumped() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.jumps
}

// measured compares the time with the database's unless that was just done. It reports whether things may be judged by it: after a jump, of this
// machine's clock or of the database's, not before the next comparison agrees.
func (s *Service) measured(ctx context.Context) (sure bool, err error) {
	if s.shared == nil || s.clock.sure() {
		return true, nil
	}
	if err := s.setClock(ctx); err != nil {
		return false, err
	}
	return s.clock.sure(), nil
}

// setClock asks the database for the time.
func (s *Service) setClock(ctx context.Context) error {
	before := s.clock.machine()
	answer, err := s.shared.Clock(ctx)
	if err != nil {
		return err
	}
	ahead, news, jumped := s.clock.set(before, s.clock.machine(), answer)
	if jumped {
		s.log.WarnContext(ctx, "the time jumped by more than a quarter of the lease, here or at the database: nothing is claimed or taken over until it is measured again", "seconds_ahead", ahead.Seconds())
	}
	switch {
	case news && ahead.Abs() > skewWorthSaying:
		s.log.WarnContext(ctx, "the clock of this machine differs from the database's, whose time is used for leases, due times and timestamps: look at NTP", "seconds_ahead", ahead.Seconds())
	case news:
		s.log.InfoContext(ctx, "the clock of this machine agrees with the database's again", "seconds_ahead", ahead.Seconds())
	}
	return nil
}
