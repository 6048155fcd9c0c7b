package stream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/run"
)

// A reader that gets neither the bridge nor what the run publishes here is interrupted: it does not wait, and nothing else happens to it.
func TestASubscriptionOfNothingIsInterrupted(t *testing.T) {
	t.Parallel()
	n := newFailover(bridge.Options{})
	st := (&Followers{FollowersOptions: FollowersOptions{Publisher: &Publisher{failover: n}}}).runSubscription("r", n.follow("r"), nil, ordinal{1, 1}, bridge.Offset{MS: 1})
	_, err := st.Replay(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	_, err = st.Next(t.Context())
	require.ErrorIs(t, err, bridge.ErrInterrupted)
	require.Equal(t, bridge.RecordGap, st.Gap("r"))
	require.Equal(t, bridge.Offset{MS: 1}, st.Head())
	st.Close()
	st.Close()
	require.Empty(t, n.runs)
}

// Whenever a reader fails over, and however far the bridge and the failover are with each record then: it gets each record once, in order. The bridge
// has moved some of them behind those of another server.
func TestFailoverReturnsEachRecordOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(300) {
			failoverOnce(t, seed)
		}
	})
}

func failoverOnce(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	f := newFailover(bridge.Options{})
	through := bridge.NewMemory(bridge.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	sub, err := through.Subscribe(t.Context(), "t", nil)
	require.NoError(t, err)
	r := &run.Run{ID: "r", Attempt: 1 + rnd.IntN(2)}
	f.begin(r)
	st := (&Followers{FollowersOptions: FollowersOptions{Publisher: &Publisher{failover: f}}}).runSubscription(r.ID, f.follow(r.ID), sub, ordinal{attempt: r.Attempt}, bridge.Offset{})
	var want, got []string
	read := func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // of the time of the bubble
		defer cancel()
		for {
			records, err := st.Next(ctx)
			for _, rec := range records {
				got = append(got, string(rec.Data))
			}
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded, "seed %d", seed)
				return
			}
		}
	}
	away := 1 + rnd.IntN(12)
	var arrived, late []*bridge.Record // here, and not in the failover
	for n := 1; n <= 12; n++ {
		rec := &bridge.Record{Run: r.ID, Event: "values", Data: []byte(strconv.Itoa(n)), Attempt: r.Attempt, Index: int64(n)}
		rec.Offset = rec.After(bridge.Offset{MS: int64(n)}, 0)
		want = append(want, string(rec.Data))
		if arrived = append(arrived, rec); n < away || rnd.IntN(2) == 0 {
			moved := make([]*bridge.Record, len(arrived))
			for i, rec := range arrived {
				c := *rec
				moved[i] = &c
			}
			require.NoError(t, through.Publish(t.Context(), "t", moved))
			arrived = nil
		}
		if n == away {
			through.Interrupt("t", bridge.Offset{MS: 1 << 60})
		}
		late = append(late, rec)
		if rnd.IntN(3) == 0 {
			read()
		}
		for len(late) > rnd.IntN(2) {
			f.published(r, late[:1])
			late = late[1:]
		}
		if rnd.IntN(3) == 0 {
			read()
		}
	}
	f.published(r, late)
	read()
	require.Equal(t, want, got, "seed %d, away after %d", seed, away)
	st.Close()
	f.end(r)
	require.Empty(t, f.runs)
	require.NoError(t, f.live.Close())
	require.NoError(t, through.Close())
}

// What an attempt does that was lost, while the next one is executed here, does not concern readers: neither its end nor what it still publishes.
func TestALostAttemptDoesNotEndTheNext(t *testing.T) {
	t.Parallel()
	first, second := &run.Run{ID: "r", Attempt: 1}, &run.Run{ID: "r", Attempt: 2}
	record := func(r *run.Run, index int64) []*bridge.Record {
		return []*bridge.Record{{Run: r.ID, Event: fmt.Sprint(r.Attempt, ".", index), Attempt: r.Attempt, Index: index}}
	}
	for name, late := range map[string]func(f *failover){
		"ends":            func(f *failover) { f.end(first) },
		"publishes":       func(f *failover) { f.published(first, record(first, 9)) },
		"finds no run":    func(f *failover) { f.deleted(first) },
		"begins":          func(f *failover) { f.begin(first) },
		"says it is over": func(f *failover) { f.published(first, []*bridge.Record{{Run: first.ID, Kind: bridge.Terminal}}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFailover(bridge.Options{})
			f.begin(first)
			f.begin(second)
			entry := f.follow("r")
			_, live, ok := f.resume(t.Context(), entry, ordinal{attempt: 2}, false)
			require.True(t, ok)
			late(f)
			f.published(second, record(second, 1))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			got, err := live.Next(ctx)
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, "2.1", got[0].Event)
			recent, another, ok := f.resume(t.Context(), entry, ordinal{attempt: 2}, false)
			require.True(t, ok, "it is executed here")
			require.Len(t, recent, 1)
			another.Close()
			live.Close()
		})
	}
}

// Wherever the live stream has moved a record to, the offset that a client has of it finds its place, and what comes after it in the database. An offset of
// another run, or of no record, does not.
func TestLocate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	r := &run.Run{ID: "r", Thread: "t"}
	r.Kwargs.Resumable = true
	var rows recordRows
	for _, p := range []ordinal{{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}} {
		rec := &bridge.Record{Run: r.ID, Attempt: p.attempt, Index: p.index}
		rec.Offset = rec.After(bridge.Offset{}, int64(1000*p.attempt+10*int(p.index)))
		rows.all = append(rows.all, rec)
	}
	f := &Followers{FollowersOptions: FollowersOptions{Store: rows}}
	for i, rec := range rows.all {
		for _, later := range []int64{0, 1, 5, 5000, 1 << 40} {
			seen := bridge.Offset{MS: rec.Offset.MS + later, N: rec.Offset.N}
			at, known, err := f.locate(ctx, r, seen)
			require.NoError(t, err)
			require.True(t, known)
			require.Equal(t, position{ordinalOf(rec), rec.Offset}, at, "%d, %d ms later", i, later)
		}
	}
	for _, seen := range []bridge.Offset{{MS: 7, N: 1}, {MS: 1 << 50}, {MS: 1 << 50, N: 3}, {MS: 1, N: rows.all[4].Offset.N}, {MS: 1009, N: rows.all[1].Offset.N}} {
		at, known, err := f.locate(ctx, r, seen)
		require.NoError(t, err)
		require.False(t, known, "%s", seen)
		require.Equal(t, position{offset: seen}, at)
	}
}

// recordRows are the stream records that a database has of one run.
type recordRows struct {
	run.Store
	all []*bridge.Record
}

func (rows recordRows) Records(_ context.Context, _ id.Thread, after bridge.Offset, limit int) (out []*bridge.Record, err error) {
	for _, rec := range rows.all {
		if rec.Offset.Compare(after) > 0 && len(out) < limit {
			out = append(out, rec)
		}
	}
	return out, nil
}

func (rows recordRows) RunRecords(_ context.Context, _ id.Thread, _ id.Run, after bridge.Offset, fn func(*bridge.Record) error) error {
	for _, rec := range rows.all {
		if rec.Offset.Compare(after) > 0 {
			if err := fn(&bridge.Record{Offset: rec.Offset}); err != nil {
				return err
			}
		}
	}
	return nil
}
