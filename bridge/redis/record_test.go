package redis

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
)

func TestOffsets(t *testing.T) {
	t.Parallel()
	for _, o := range []bridge.Offset{{}, {MS: 1}, {MS: 1_700_000_000_000, N: 12}} {
		got, err := parseOffset(o.String())
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
	for _, bad := range []string{"1", "-", "1-", "-1", "a-b", "1-2-3", "1--2", "-1-2", "99999999999999999999-0"} {
		_, err := parseOffset(bad)
		require.Error(t, err, bad)
	}
}

// FuzzDecode: whatever stands in a stream is a record that would be written so again, a gap, or refused.
func FuzzDecode(f *testing.F) {
	f.Add("1-0", "1", "5", "run", "values", "{}", "", "")
	f.Add("1-0", "7", "255", "", "", "", "c", "")
	f.Add("5-1", "3", "", "", "", "", "", "1")
	f.Fuzz(func(t *testing.T, name, count, flags, run, event, data, checkpoint, gap string) {
		e, err := decode(name, map[string]any{"c": count, "f": flags, "r": run, "e": event, "d": data, "k": checkpoint, "g": gap, "x": 1})
		if err != nil {
			return
		}
		require.Positive(t, e.count)
		require.LessOrEqual(t, e.Kind, bridge.Terminal)
		if e.gap {
			return
		}
		again, err := decode(e.Offset.String(), map[string]any{
			"c": strconv.FormatInt(e.count, 10), "f": strconv.Itoa(flagsOf(e.Record)), "r": string(e.Run), "e": e.Event, "d": string(e.Data), "k": string(e.Checkpoint),
		})
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}
