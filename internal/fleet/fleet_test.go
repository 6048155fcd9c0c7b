package fleet

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logs"
)

// elsewhere is a store whose other server writes a line a second.
type elsewhere struct {
	now   func() time.Time
	began time.Time
	reads atomic.Int64
}

func (*elsewhere) Beat(context.Context, *Report, int, time.Time) error { return nil }
func (*elsewhere) Servers(context.Context) ([]Report, error)           { return nil, nil }
func (*elsewhere) Leave(context.Context, string, time.Time) error      { return nil }

func (s *elsewhere) Lines(context.Context, time.Time, int) (list []Report, err error) {
	s.reads.Add(1)
	var lines []logs.Line
	for n := range int(s.now().Sub(s.began) / time.Second) {
		lines = append(lines, logs.Line{Seq: uint64(n) + 1, Time: s.began.Add(time.Duration(n) * time.Second), Level: "INFO", Message: "there " + strconv.Itoa(n)})
	}
	return []Report{{Server: "there", Lines: logs.Encode(lines)}}, nil
}

// Who follows the logs sees each line of each server once, in the order of its server. However many lines this server writes, the database is asked as
// often as others report: its own log of these questions could else wake the follower forever.
func TestFollowAsksTheDatabaseSeldom(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	began := time.Unix(1_000_000, 0)
	now := func() time.Time { return began.Add(time.Duration(clock.Load())) }
	store := &elsewhere{now: now, began: began}
	ring := logs.NewRing()
	log := slog.New(ring.Handler(slog.NewTextHandler(io.Discard, nil)))
	k := &Keeper{Self: Server{ID: "here"}, Load: func(*Server) {}, Store: store, Ring: ring, Now: now, Log: log}
	f, first, err := k.Follow(t.Context(), LogQuery{Limit: 1 << 20})
	require.NoError(t, err)
	require.Empty(t, first)
	const lines, step = 1000, 50 * time.Millisecond
	var here, there []string
	for n := range lines {
		clock.Add(int64(step))
		log.Info("here " + strconv.Itoa(n))
		for len(here) <= n {
			list, err := f.Next(t.Context())
			require.NoError(t, err)
			for _, l := range list {
				if l.Server == "here" {
					here = append(here, l.Message)
				} else {
					there = append(there, l.Message)
				}
			}
		}
	}
	for n, message := range here {
		require.Equal(t, "here "+strconv.Itoa(n), message)
	}
	for n, message := range there {
		require.Equal(t, "there "+strconv.Itoa(n), message)
	}
	took := lines * step
	require.GreaterOrEqual(t, len(there), int((took-othersEvery)/time.Second))
	require.LessOrEqual(t, store.reads.Load(), int64(took/othersEvery)+1)
}
