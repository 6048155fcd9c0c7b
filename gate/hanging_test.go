package gate

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// A request that is refused because a handler took too long is in the log, also while the process is silent, unless the log says already what keeps it from answering.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	const refused = "a handler did not answer in time: the request is refused with 503"
	var log, again logtest.Buffer
	g := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p := &process{gate: g, pingAt: time.Now().Add(-g.blockedFor - time.Minute)}
	g.gaveUp(p, waits{handler: "@auth.on"}, time.Second)
	require.Contains(t, log.String(), refused)

	g.opts.Logger = slog.New(slog.NewTextHandler(&again, nil))
	p.holdup = &holdup{}
	g.gaveUp(p, waits{handler: "@auth.on"}, time.Second)
	require.Empty(t, again.String())
}

// The first handler of an admission, which was slow and has answered, is not taken for the next one, of which the process says nothing.
func TestHandlerAfterOneThatWasSlow(t *testing.T) {
	t.Parallel()
	var log logtest.Buffer
	g := New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	g.slowAnswer = 10 * time.Millisecond
	p, c := &process{gate: g}, &call{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.waits.Store(&waits{handler: "@auth.authenticate", place: "mine.py:1", at: time.Now().Add(time.Hour)})
	g.logUnplaced(ctx, p, c, "admit", time.Now())
	require.Empty(t, log.String(), "which the process has reported")
	require.Equal(t, "@auth.authenticate", g.awaited(c, c.part("admit")).handler)

	c.waits.Store(&waits{handler: "@auth.authenticate", place: "mine.py:1", at: time.Now().Add(-time.Hour)})
	require.Equal(t, "@auth.on", g.awaited(c, c.part("admit")).handler)
	require.Eventually(t, func() bool { return log.String() != "" }, time.Minute, time.Millisecond)
	require.Contains(t, log.String(), "has not answered yet; its request waits\" handler=@auth.on duration")
}
