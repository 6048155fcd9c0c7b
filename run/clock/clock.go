// Package clock keeps the time that servers of one database agree on: the database's.
package clock

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// SkewWorthSaying is the difference from which on the log and understudy doctor report that the machine's clock is wrong.
const SkewWorthSaying = time.Second

// Retry is when to ask again after Sure was not.
const Retry = 100 * time.Millisecond

// fresh is how long one comparison with the database is good enough to claim runs by.
const fresh = time.Second

// Clock is the database's time as of the last comparison, plus what has passed since by this machine's monotonic clock. So neither a clock that is wrong
// nor one that is set while the server runs takes runs from other servers or starts what is not due. Before the first comparison it is the machine's time.
type Clock struct {
	machine func() time.Time
	ask     func(context.Context) (time.Time, error) // nil: there is nothing to compare with
	most    time.Duration                            // a correction above it is a jump
	log     *slog.Logger

	mu       sync.RWMutex // guards what follows
	asked    time.Time    // by the machine's clock; zero: never
	answer   time.Time    // the database's
	reported time.Duration

	measured time.Time // by the machine's clock, when it was last compared; zero: never
	doubted  bool      // the last comparison found a jump, or may have missed one
	jumps    int
}

// New returns a Clock of a machine that compares itself with what ask returns. Corrections of more than most are jumps. With ask nil the time is the machine's,
// and always sure.
func New(machine func() time.Time, ask func(context.Context) (time.Time, error), most time.Duration, log *slog.Logger) *Clock {
	return &Clock{machine: machine, ask: ask, most: most, log: log}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.at(c.machine())
}

// at returns the common time when the machine's is now. c.mu is held.
func (c *Clock) at(now time.Time) time.Time {
	if c.asked.IsZero() {
		return now
	}
	return c.answer.Add(now.Sub(c.asked))
}

// Sure compares the time with the database's unless that was done within the last second. It returns the time, and whether anything may be judged by it: after
// a jump, of this machine's clock or of the database's, and after an answer that took longer than one may be, not before the next comparison agrees. A later Now may have jumped since.
func (c *Clock) Sure(ctx context.Context) (now time.Time, sure bool, err error) {
	if now, sure = c.sure(); sure {
		return now, true, nil
	}
	if err := c.Compare(ctx); err != nil {
		return now, false, err
	}
	now, sure = c.sure()
	return now, sure, nil
}

// Compare asks the database for the time, and logs large differences.
func (c *Clock) Compare(ctx context.Context) error {
	if c.ask == nil {
		return nil
	}
	before := c.machine()
	answer, err := c.ask(ctx)
	if err != nil {
		return err
	}
	ahead, news, jumped := c.set(before, c.machine(), answer)
	if jumped {
		c.log.WarnContext(ctx, "the time jumped by more than a quarter of the lease, here or at the database: nothing is claimed or taken over until it is measured again", "seconds_ahead", ahead.Seconds())
	}
	switch {
	case news && ahead.Abs() > SkewWorthSaying:
		c.log.WarnContext(ctx, "the clock of this machine differs from the database's, whose time is used for leases, due times and timestamps: check NTP", "seconds_ahead", ahead.Seconds())
	case news:
		c.log.InfoContext(ctx, "the clock of this machine agrees with the database's again", "seconds_ahead", ahead.Seconds())
	}
	return nil
}

// Jumps returns how often the time jumped.
func (c *Clock) Jumps() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.jumps
}

// set takes over what the database answered between two times of the machine. Answers differ by how long they were under way: a difference that may be due
// to that moves nothing. It returns how far the machine is ahead, whether that is news, and whether the time jumped.
func (c *Clock) set(before, after, answer time.Time) (ahead time.Duration, news, jumped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	middle := before.Add(after.Sub(before) / 2)
	off, slack := c.at(middle).Sub(answer).Abs(), after.Sub(before)/2+time.Millisecond
	jumped = !c.asked.IsZero() && off > slack+c.most
	if jumped {
		c.jumps++
	}
	// An answer that was under way that long may hide a jump of the machine's clock meanwhile.
	c.doubted = jumped || after.Sub(before).Abs() > c.most
	if c.asked.IsZero() || off > slack {
		c.asked, c.answer = middle, answer
	}
	c.measured = after
	ahead = middle.Round(0).Sub(answer)
	news = (ahead - c.reported).Abs() > SkewWorthSaying+slack // what an answer was under way may have made is no difference
	if news {
		c.reported = ahead
	}
	return ahead, news, jumped
}

// sure returns the time, and whether it was compared a moment ago and had not jumped. A machine's clock that was set since, back or forward, makes the
// comparison look old.
func (c *Clock) sure() (now time.Time, sure bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	machine := c.machine()
	age := machine.Sub(c.measured)
	return c.at(machine), c.ask == nil || !c.measured.IsZero() && !c.doubted && age >= 0 && age < fresh
}
