package run

import (
	"context"
	"sync"
	"time"
)

// skewWorthSaying is from when on the log tells that the machine's clock is off.
const skewWorthSaying = time.Second

// clock is the time that instances of one database agree on: the database's, as it was when it was asked last, and what has passed since by this
// machine's monotonic clock. So neither a clock that is wrong nor one that is set while the server runs takes runs from others or fires what is not
// due. Before the first answer it is the machine's.
type clock struct {
	machine func() time.Time

	mu     sync.RWMutex // guards what follows
	asked  time.Time    // of the machine; zero: never
	answer time.Time    // of the database
	told   time.Duration
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
// be due to that moves nothing. It gives how far the machine is ahead, and whether that is news.
func (c *clock) set(before, after, answer time.Time) (ahead time.Duration, news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	middle := before.Add(after.Sub(before) / 2)
	if off := c.at(middle).Sub(answer).Abs(); c.asked.IsZero() || off > after.Sub(before)/2+time.Millisecond {
		c.asked, c.answer = middle, answer
	}
	ahead = middle.Round(0).Sub(answer)
	news = (ahead - c.told).Abs() > skewWorthSaying
	if news {
		c.told = ahead
	}
	return ahead, news
}

// setClock asks the database for the time.
func (s *Service) setClock(ctx context.Context) error {
	before := s.clock.machine()
	answer, err := s.shared.Clock(ctx)
	if err != nil {
		return err
	}
	ahead, news := s.clock.set(before, s.clock.machine(), answer)
	switch {
	case news && ahead.Abs() > skewWorthSaying:
		s.log.WarnContext(ctx, "the clock of this machine differs from the database's, whose time is used for leases, due times and timestamps: look at NTP", "seconds_ahead", ahead.Seconds())
	case news:
		s.log.InfoContext(ctx, "the clock of this machine agrees with the database's again", "seconds_ahead", ahead.Seconds())
	}
	return nil
}
