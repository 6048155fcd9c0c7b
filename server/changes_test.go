package server

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/thread/changes"
)

// The route reports what changes as it happens, and its connection is one of the bounded number of streams.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MaxStreams = 1 })
	_, in := dial(t, w, "GET", "/understudy/changes", "")
	event := func() (name, data string) {
		for {
			line, err := in.ReadString('\n')
			require.NoError(t, err)
			if text, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(text)
			} else if text, ok := strings.CutPrefix(line, "data: "); ok {
				return name, strings.TrimSpace(text)
			}
		}
	}
	w.touch([]changes.Change{{Thread: someThread}, {Thread: someThread, Run: someRun}})
	name, data := event()
	require.Equal(t, "changes", name)
	require.JSONEq(t, `{"threads":["`+someThread+`"],"runs":["`+someRun+`"]}`, data)
	w.touch(nil)
	_, data = event()
	require.JSONEq(t, `{"all":true}`, data)
	res, _ := w.ask(t, "GET", "/understudy/changes", "")
	require.Equal(t, 503, res.StatusCode)
}

// While nothing changes, the stream has a heartbeat every second, however seldom others have one, and as often as they have where that is more often. It says
// which: pages name a server that is silent.
func TestChangesHaveHeartbeats(t *testing.T) {
	t.Parallel()
	for every, says := range map[time.Duration]string{time.Hour: "1000", 50 * time.Millisecond: "50"} {
		w := setup(t, func(o *Options) { o.Heartbeat = every })
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.addr+"/understudy/changes", nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { res.Body.Close() })
		require.Equal(t, says, res.Header.Get("X-Understudy-Heartbeat"))
		in := bufio.NewReader(res.Body)
		for beats := 0; beats < 2; {
			line, err := in.ReadString('\n')
			require.NoError(t, err)
			if strings.HasPrefix(line, ": heartbeat") {
				beats++
			}
		}
	}
}
