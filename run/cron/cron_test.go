package cron

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
	"understudy/run"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	after := time.Date(2026, 11, 22, 15, 29, 30, 0, time.UTC) // a Sunday
	for _, tt := range []struct{ schedule, want string }{     // as LangGraph Server answers
		{"* * * * *", "2026-11-22T15:30:00Z"},
		{"*/5 * * * * *", "2026-11-22T15:30:00Z"},
		{"* * * * * */15", "2026-11-22T15:29:45Z"},
		{"0 0 1 1 * 30", "2027-01-01T00:00:30Z"},
		{"* * * * * * *", "2026-11-22T15:29:31Z"},
		{"@daily", "2026-11-23T00:00:00Z"},
		{"0 0 * * 7", "2026-11-29T00:00:00Z"},
		{"0 0 * * 0-7", "2026-11-23T00:00:00Z"},
		{"0 0 * * fri-mon", "2026-11-23T00:00:00Z"},
		{"0 22-2 * * *", "2026-11-22T22:00:00Z"},
		{"0 23-4/2 * * *", "2026-11-22T23:00:00Z"},
		{"5-1 * * * *", "2026-11-22T15:30:00Z"},
		{"0 0 29 2 *", "2028-02-29T00:00:00Z"},
		{"0 0 30 2 *", "failed to find next date"},
		{"0 0 31 4 *", "failed to find next date"},
	} {
		next, err := nextTime(&run.Cron{Schedule: tt.schedule}, after)
		if err != nil {
			require.True(t, fault.Is(err, fault.Invalid), tt.schedule)
			require.EqualError(t, err, tt.want, tt.schedule)
			continue
		}
		require.Equal(t, tt.want, next.Format(time.RFC3339), tt.schedule)
	}
	for _, bad := range []string{"", "* * * *", "60 * * * *", "* 24 * * *", "mon", "*/0 * * * *", "0 0 * * * 60", "* * * * 8", "@every 5m", "TZ=UTC * * * * *", "1-x * * * *", "1-2/x * * * *"} {
		_, err := nextTime(&run.Cron{Schedule: bad}, after)
		require.True(t, fault.Is(err, fault.Unprocessable), "%q: %v", bad, err)
	}
}
