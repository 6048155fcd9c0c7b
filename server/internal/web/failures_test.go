package web

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/internal/fault"
	"understudy/internal/logtest"
)

// On a full disk each request fails alike: the log has the first, and then a line with the number of the others every few seconds. What has another reason or route
// is a line of its own, and what may be a fault of the server is never counted.
func TestEqualFailuresAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Buffer
		f := Failures{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))}
		read := 0
		lines := func() []string { // since the last call
			text := log.String()[read:]
			read += len(text)
			return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		}
		full := fault.Wrap(fault.Unavailable, "the disk is full", errors.New("SQLITE_FULL"))
		down := &access.Refusal{Status: 503}
		fails := func(i int, route string, err error) {
			f.Add("request failed", &Request{ID: fmt.Sprint(i), Route: route, method: "POST"}, err)
		}
		for i := range 1000 {
			fails(i, "/threads", fmt.Errorf("thread %d: %w", i, full))
			time.Sleep(time.Millisecond)
		}
		fails(1000, "/runs", full)
		fails(1001, "/threads", down)
		require.Equal(t, []string{
			`msg="request failed" request_id=0 route=/threads error="thread 0: the disk is full: SQLITE_FULL" method=POST`,
			`msg="request failed" request_id=1000 route=/runs error="the disk is full: SQLITE_FULL" method=POST`,
			`msg="request failed" request_id=1001 route=/threads error="` + down.Error() + `" method=POST`,
		}, lines())
		time.Sleep(gatherFor)
		synctest.Wait()
		require.Equal(t, []string{`msg="request failed" request_id=999 route=/threads error="thread 999: the disk is full: SQLITE_FULL" method=POST repeated=999`}, lines())
		for i := range 3 {
			fails(i, "/threads", full)
			fails(i, "/threads", errors.New("a fault"))
		}
		require.Len(t, lines(), 3, "each fault, and nothing of what is counted")
		f.Flush()
		require.Equal(t, []string{`msg="request failed" request_id=2 route=/threads error="the disk is full: SQLITE_FULL" method=POST repeated=3`}, lines())
		fails(5, "/threads", full)
		require.Len(t, lines(), 1, "the first of new ones")
		time.Sleep(2 * gatherFor)
		synctest.Wait()
		require.Equal(t, []string{""}, lines(), "there was only one")
		require.Empty(t, f.more, "and nothing is kept of it")
	})
}

// However many kinds of failures there are, what is kept of them is bounded, and none is lost.
func TestCountedFailuresAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Buffer
		f := Failures{Log: slog.New(slog.NewTextHandler(&log, nil))}
		for i := range 2 * mostFailures {
			f.Add("request failed", &Request{ID: "r"}, fault.New(fault.Unavailable, fmt.Sprint("reason ", i)))
		}
		require.Equal(t, 2*mostFailures, strings.Count(log.String(), "\n"))
		require.Len(t, f.more, mostFailures)
		f.Flush()
		require.Equal(t, 2*mostFailures, strings.Count(log.String(), "\n"))
	})
}
