package cronexpr_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/cronexpr"
)

// testdata/expected.py writes what croniter says of random expressions, most of them near changes of clocks.
func TestAgreesWithCroniter(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/expected.txt")
	require.NoError(t, err)
	zones := map[string]*time.Location{}
	for line := range strings.Lines(string(data)) {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		zone := zones[parts[1]]
		if zone == nil {
			zone, err = time.LoadLocation(parts[1])
			require.NoError(t, err)
			zones[parts[1]] = zone
		}
		after, err := time.Parse(time.RFC3339, parts[2])
		require.NoError(t, err)
		got := "refused"
		if s, err := cronexpr.Parse(parts[0]); err == nil {
			got = "never"
			if next := s.Next(after.In(zone)); !next.IsZero() {
				got = next.UTC().Format(time.RFC3339)
			}
		}
		require.Equal(t, parts[3], got, line)
	}
}

// Every time that a schedule names on the clock of a zone is one at which it fires, exactly once for each time that the clock shows it.
func TestChangesOfClocks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expression, zone, after string
		want                    []string
	}{
		{"30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", []string{"2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"}}, // the first time that exists
		{"0,20,40 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", []string{"2027-03-14T07:00:00Z", "2027-03-15T06:00:00Z"}},
		{"30 2 28 3 *", "Europe/Berlin", "2027-03-01T00:00:00Z", []string{"2027-03-28T01:00:00Z", "2028-03-28T00:30:00Z"}},
		{"30 2 * * 0", "Europe/Berlin", "2027-03-22T00:00:00Z", []string{"2027-03-28T01:00:00Z", "2027-04-04T00:30:00Z"}},
		{"15 * * * *", "America/New_York", "2027-03-14T06:00:00Z", []string{"2027-03-14T06:15:00Z", "2027-03-14T07:15:00Z"}}, // every hour skips what does not exist
		{"30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", []string{"2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-08T06:30:00Z"}},
		{"0 0 * * *", "America/Santiago", "2027-09-04T12:00:00Z", []string{"2027-09-05T04:00:00Z", "2027-09-06T03:00:00Z"}},
		{"15 2 3 10 *", "Australia/Lord_Howe", "2027-10-01T00:00:00Z", []string{"2027-10-02T15:30:00Z", "2028-10-02T15:15:00Z"}},
	} {
		zone, err := time.LoadLocation(tt.zone)
		require.NoError(t, err)
		at, err := time.Parse(time.RFC3339, tt.after)
		require.NoError(t, err)
		s, err := cronexpr.Parse(tt.expression)
		require.NoError(t, err)
		for _, want := range tt.want {
			at = s.Next(at.In(zone))
			require.Equal(t, want, at.UTC().Format(time.RFC3339), "%s in %s", tt.expression, tt.zone)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "* * * *", "* * * * * * * *", "60 * * * *", "* 24 * * *", "mon", "*/0 * * * *", "0 0 * * * 60", "* * * * 8", "@every 5m", "@reboot", "@nightly",
		"TZ=UTC * * * * *", "1-x * * * *", "1-2/x * * * *", "-1 * * * *", "+1 * * * *", "1,,2 * * * *", "? * * * *", "?,1 * ? * *", "0 0 0 * *", "0 0 32 * *",
		"0 0 * 0 *", "0 0 * 13 *", "0 0 * * 1#0", "0 0 * * 1#6", "0 0 * * 1#2,3", "0 0 1W,2 * *", "0 0 2,1W * *", "0 0 32W * *", "0 0 W * *", "L * * * *",
		"0 0 * * * 0 1969", "0 0 * * * 0 2100", "0 0 * * mon-", "0 0 * foo *", "H * * * *", strings.Repeat("1,", 10) + " * * * *",
	} {
		_, err := cronexpr.Parse(bad)
		require.Error(t, err, "%q", bad)
	}
}

// A date that never occurs is noticed at once, in any zone.
func TestNever(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	for _, never := range []string{"0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 1 1 * 0 2020", "30 2 30 2 *"} {
		s, err := cronexpr.Parse(never)
		require.NoError(t, err)
		began := time.Now()
		require.True(t, s.Next(time.Date(2026, 11, 22, 0, 0, 0, 0, zone)).IsZero(), never)
		require.Less(t, time.Since(began), time.Second, never)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"* * * * *", "*/5 1-7/2 L,15 jan-mar mon#2", "0 0 15W * *", "@daily", "5-1 22-2 ? * L5 */15 2027-2030"} {
		f.Add(seed, int64(1_800_000_000))
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, expression string, at int64) {
		s, err := cronexpr.Parse(expression)
		if err != nil || at < 0 || at > 4_000_000_000 {
			return
		}
		after := time.Unix(at, 0).In(zone)
		if next := s.Next(after); !next.IsZero() {
			require.True(t, next.After(after))
		}
	})
}
