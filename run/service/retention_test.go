package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// A run gives its thread the ttl of the configuration, as it is by then, unless a client asked for another. The time counts from the end of the run.
func TestRunsRenewTheTTLOfTheirThread(t *testing.T) {
	t.Parallel()
	byDefault := &thread.TTL{Strategy: thread.KeepLatest, After: time.Hour}
	w := newWorld(t, map[string]script{"echo": echo}, func(o *service.Options) { o.ThreadTTL = byDefault })
	old, own := w.thread(), w.thread()
	asked := &thread.TTL{Strategy: thread.Delete, After: time.Minute}
	require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
		row, err := tx.Thread(own)
		if err != nil {
			return err
		}
		row.TTL = asked
		return tx.UpdateThread(row)
	}))
	for _, th := range []id.Thread{old, own} {
		r, f, err := w.runs.Start(t.Context(), th, request("echo"))
		require.NoError(t, err)
		w.events(f)
		require.Equal(t, run.Success, w.status(th, r.ID))
	}
	require.Equal(t, &thread.TTL{Strategy: thread.KeepLatest, After: time.Hour, Default: true}, w.row(old).TTL)
	require.Equal(t, asked, w.row(own).TTL)
	for th, after := range map[id.Thread]time.Duration{old: time.Hour, own: time.Minute} {
		at, _ := w.row(th).ExpiresAt()
		early, err := w.rows.Threads().Expired(t.Context(), at.Add(-time.Microsecond), 10)
		require.NoError(t, err)
		require.NotContains(t, early, th)
		due, err := w.rows.Threads().Expired(t.Context(), at, 10)
		require.NoError(t, err)
		require.Contains(t, due, th)
		require.Equal(t, w.row(th).UpdatedAt.Add(after), at)
	}

	// Threads that runs make have it too, where they stay.
	kept := request("echo")
	kept.OnCompletion = "keep"
	r, f, err := w.runs.Start(t.Context(), "", kept)
	require.NoError(t, err)
	w.events(f)
	require.Equal(t, byDefault.After, w.row(r.Thread).TTL.After)
}
