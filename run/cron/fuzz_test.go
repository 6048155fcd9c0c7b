package cron

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/run"
)

// FuzzSchedule: a schedule is either refused as the client's mistake, or fires after the time that was given.
func FuzzSchedule(f *testing.F) {
	f.Add("*/5 * * * *", "Europe/Berlin", int64(1_700_000_000))
	f.Add("0 0 29 2 *", "", int64(0))
	f.Add("@every 1h", "UTC", int64(1))
	f.Add("CRON_TZ=America/New_York 30 2 * * 7", "Local", int64(1_700_000_000))
	f.Add("TZ=", "../../etc/passwd", int64(-1))
	f.Fuzz(func(t *testing.T, schedule, zone string, at int64) {
		after := time.Unix(at%(1<<33), 0)
		next, err := nextTime(&run.Cron{Schedule: schedule, Timezone: zone}, after)
		if err != nil {
			require.True(t, fault.Is(err, fault.Unprocessable), err)
			return
		}
		if next != nil {
			require.True(t, next.After(after))
		}
	})
}
