package execute

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/diskspace"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// However many runs wait for a database, the log has the beginning with the cause and the end, once each, and nothing of failures that are over at once.
func TestWaitingRunsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		away  time.Duration
		lines int
	}{{0, 0}, {outageAfter / 2, 0}, {10 * time.Second, 1}, {time.Hour, 1}} {
		synctest.Test(t, func(t *testing.T) {
			log := &logtest.Buffer{}
			all := &outage{log: slog.New(slog.NewTextHandler(log, nil)), after: outageAfter}
			back := time.Now().Add(c.away)
			var runs sync.WaitGroup
			for range 20 {
				p := &patient{end: time.Minute, outage: all}
				runs.Go(func() {
					err := p.try(context.Background(), func() error {
						if time.Now().Before(back) {
							return fault.Wrap(fault.Unavailable, "the disk of the database is full", errors.New("no space"))
						}
						return nil
					})
					if (err != nil) != (c.away > p.end) || p.away.Load() != (err != nil) {
						t.Errorf("away %s: %v", c.away, err)
					}
				})
			}
			runs.Wait()
			require.Equal(t, c.lines, strings.Count(log.String(), "runs wait for the database"), log.String())
			require.Equal(t, c.lines, strings.Count(log.String(), "runs do not wait"), log.String())
			require.Equal(t, c.lines, strings.Count(log.String(), "the disk of the database is full: no space"), log.String())
		})
	}
}

// Only what does not pass by itself is reported early: a client that asks again begins the run once more.
func TestOnlyAFullDiskIsReportedBeforeALease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lease time.Duration
		err   error
		want  time.Duration
	}{
		{20 * time.Second, fmt.Errorf("write stream records: %w", diskspace.ErrFull), fullPatience},
		{time.Second, diskspace.ErrFull, time.Second},
		{20 * time.Second, fault.New(fault.Unavailable, "the database does not answer in time"), 20 * time.Second},
		{20 * time.Second, context.DeadlineExceeded, 20 * time.Second},
	} {
		x := New(Options{Lease: c.lease})
		require.Equal(t, c.want, x.patience(c.err), "%v", c.err)
	}
}

// The log has the first attempt to write the end of a run that failed, and then one in ten seconds, however many there are.
func TestAttemptsInTheLog(t *testing.T) {
	t.Parallel()
	var a attempts
	var logged []int
	now := time.Unix(1e9, 0)
	for range 60 {
		if a.due(now) {
			logged = append(logged, a.count)
		}
		now = now.Add(500 * time.Millisecond)
	}
	require.Equal(t, []int{1, 21, 41}, logged)
}
