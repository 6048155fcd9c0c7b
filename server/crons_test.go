package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

func TestTimesOfACron(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for query, n := range map[string]int{"": 5, "?limit=2": 2, "?limit=100": 100} {
		res, body := w.ask(t, "GET", "/understudy/crons/"+someID+"/times"+query, "")
		require.Equal(t, 200, res.StatusCode, body)
		require.Equal(t, "null", gjson.Get(body, "timezone").Raw)
		times := gjson.Get(body, "times").Array()
		require.Len(t, times, n)
		for i, text := range times[1:] { // of a schedule for every minute
			at, err := time.Parse(time.RFC3339, text.String())
			require.NoError(t, err)
			before, err := time.Parse(time.RFC3339, times[i].String())
			require.NoError(t, err)
			require.Equal(t, time.Minute, at.Sub(before))
		}
	}
	for _, query := range []string{"limit=0", "limit=101", "limit=x", "limit="} {
		res, body := w.ask(t, "GET", "/understudy/crons/"+someID+"/times?"+query, "")
		require.Equal(t, 422, res.StatusCode, "%s: %s", query, body)
	}
	res, body := w.ask(t, "GET", "/understudy/crons/x/times", "")
	require.Equal(t, 422, res.StatusCode, body)
}
