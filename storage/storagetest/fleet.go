package storagetest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fleet"
	"understudy/internal/logs"
)

// Fleet is the suite of storages that servers share. open returns a new one.
func Fleet(t *testing.T, open func(t *testing.T) fleet.Store) {
	keeper := func(store fleet.Store, name string) (*fleet.Keeper, *slog.Logger) {
		ring := logs.NewRing()
		k := &fleet.Keeper{
			Self: fleet.Server{ID: name, Version: "1", PID: 7, Started: time.Now()}, Load: func(s *fleet.Server) { s.Running = 3 }, Store: store, Ring: ring, Now: time.Now,
			Log: slog.New(slog.DiscardHandler),
		}
		return k, slog.New(ring.Handler(slog.NewTextHandler(io.Discard, nil)))
	}
	messages := func(list []fleet.Logged) (out []string) {
		for _, l := range list {
			out = append(out, l.Server+" "+l.Message)
		}
		return out
	}
	t.Run("servers come, drain and leave", func(t *testing.T) {
		t.Parallel()
		store := open(t)
		one, _ := keeper(store, "one")
		two, log := keeper(store, "two")
		log.Info("early")
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- two.Run(running) }()
		servers := func() (out []string) {
			list, err := one.Servers(ctx)
			require.NoError(t, err)
			for _, s := range list {
				out = append(out, fmt.Sprintf("%s %d %v", s.ID, s.Running, s.Draining))
			}
			return out
		}
		require.Eventually(t, func() bool { return len(servers()) == 2 }, time.Minute, 10*time.Millisecond)
		require.Equal(t, []string{"one 3 false", "two 3 false"}, servers())
		f, first, err := one.Follow(ctx, fleet.LogQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []string{"two early"}, messages(first))
		log.Info("late")
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		next, err := f.Next(limited)
		require.NoError(t, err)
		require.Equal(t, []string{"two late"}, messages(next))
		log.Warn("last words")
		two.Drain()
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, []string{"one 3 false"}, servers())
		list, err := one.Logs(ctx, fleet.LogQuery{Limit: 10, Level: slog.LevelWarn})
		require.NoError(t, err)
		require.Equal(t, []string{"two last words"}, messages(list), "after its end")
	})
	t.Run("lines of a server are bounded", func(t *testing.T) {
		t.Parallel()
		store := open(t)
		now := time.Now()
		for i := range 60 {
			require.NoError(t, store.Beat(ctx, &fleet.Report{
				Server: fmt.Sprint("s", i%2), At: now.Add(time.Duration(i) * time.Second), Body: []byte(`{"id":"s"}`), Lines: logs.Encode([]logs.Line{{Seq: uint64(i), Message: fmt.Sprint(i)}}),
			}, 5, now.Add(51*time.Second)))
		}
		list, err := store.Lines(ctx, time.Time{}, 100)
		require.NoError(t, err)
		require.Len(t, list, 9, "five of each, but for one that is old")
		list, err = store.Lines(ctx, now.Add(58*time.Second), 100)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.NoError(t, store.Leave(ctx, "s0", now.Add(time.Hour)))
		left, err := store.Servers(ctx)
		require.NoError(t, err)
		require.Empty(t, left)
	})
}
