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

func TestUpcoming(t *testing.T) {
	t.Parallel()
	after := time.Date(2026, 10, 23, 8, 0, 0, 0, time.UTC)
	end := time.Date(2026, 10, 26, 9, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		cron run.Cron
		n    int
		want []string
	}{
		// The night of the 25th has the hour from 02:00 to 03:00 twice.
		{"summer time ends", run.Cron{Schedule: "15 9 * * *", Timezone: "Europe/Berlin"}, 4, []string{"2026-10-24T09:15:00+02:00", "2026-10-25T09:15:00+01:00", "2026-10-26T09:15:00+01:00", "2026-10-27T09:15:00+01:00"}},
		{"no zone", run.Cron{Schedule: "0 0 1 * *"}, 2, []string{"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"}},
		{"it ends", run.Cron{Schedule: "0 9 * * *", EndTime: &end}, 5, []string{"2026-10-23T09:00:00Z", "2026-10-24T09:00:00Z", "2026-10-25T09:00:00Z", "2026-10-26T09:00:00Z"}},
		{"never", run.Cron{Schedule: "0 0 30 2 *"}, 5, []string{}},
		{"a year that is over", run.Cron{Schedule: "0 0 1 1 * 0 2020"}, 5, []string{}},
	} {
		times, err := Upcoming(&tt.cron, after, tt.n)
		require.NoError(t, err, tt.name)
		got := []string{}
		for _, at := range times {
			got = append(got, at.Format(time.RFC3339))
		}
		require.Equal(t, tt.want, got, tt.name)
	}
	_, err := Upcoming(&run.Cron{Schedule: "nonsense"}, after, 5)
	require.True(t, fault.Is(err, fault.Unprocessable))
	_, err = Upcoming(&run.Cron{Schedule: "* * * * *", Timezone: "Nowhere/Else"}, after, 5)
	require.True(t, fault.Is(err, fault.Unprocessable))
}
