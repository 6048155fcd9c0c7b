package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/service"
)

// leaky is a bridge that loses records, as a Redis does that loses its memory: they have their offsets, and nobody gets them.
type leaky struct {
	bridge.Bridge
	lose func(*bridge.Record) bool

	mu   sync.Mutex
	last bridge.Offset
}

func (l *leaky) Publish(ctx context.Context, t id.Thread, records []*bridge.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		if !l.lose(r) {
			if err := l.Bridge.Publish(ctx, t, []*bridge.Record{r}); err != nil {
				return err
			}
			l.last = r.Offset
			continue
		}
		l.last.N++
		r.Offset = l.last
		l.Bridge.Advance(t, l.last.MS)
	}
	return nil
}

// seen reads to the end and gives what came, as "attempt.index event".
func seen(t *testing.T, in *instance, f run.Follower) (got []string) {
	t.Helper()
	var last bridge.Offset
	for _, rec := range in.records(f) {
		require.Positive(t, rec.Offset.Compare(last))
		last = rec.Offset
		got = append(got, fmt.Sprintf("%d.%d %s", rec.Attempt, rec.Index, rec.Event))
	}
	return got
}

// A reader gets what the live stream has lost from the database, where it belongs.
func TestWhatTheStreamLosesIsInTheDatabase(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*bridge.Record) bool{
		"nothing":   func(*bridge.Record) bool { return false },
		"the first": func(r *bridge.Record) bool { return r.Index == 1 },
		"some":      func(r *bridge.Record) bool { return r.Index == 2 || r.Index == 3 },
		"the last":  func(r *bridge.Record) bool { return r.Index == 4 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.carry = func(b bridge.Bridge) bridge.Bridge { return &leaky{Bridge: b, lose: lose} }
			in := c.start(map[string]script{"g": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
				for n := range 3 {
					emit("values", fmt.Sprint(n))
				}
				return nil
			}}}, nil)
			req := request("g")
			req.Resumable = true
			_, f, err := in.runs.Start(t.Context(), in.newThread(), req)
			require.NoError(t, err)
			require.Equal(t, []string{"1.1 metadata", "1.2 values", "1.3 values", "1.4 values"}, seen(t, in, f))
		})
	}
}

// What a server kept and did not send before it died comes before what the next attempt says.
func TestWhatADeadServerDidNotSend(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.open()
	in := c.start(map[string]script{"g": echo}, nil)
	r := left(t, s, time.Now().Add(time.Hour), "")
	keep := func(index int64, event string) {
		rec := &bridge.Record{Run: r.ID, Offset: bridge.Offset{MS: index}, Event: event, Data: json.RawMessage(`{}`), Kept: true, Attempt: 1, Index: index}
		require.NoError(t, s.Runs().KeepRecords(t.Context(), map[id.Thread][]*bridge.Record{r.Thread: {rec}}))
	}
	change := func(change func(*run.Run)) {
		require.NoError(t, s.Runs().Write(t.Context(), func(tx run.Tx) error {
			row, err := tx.Run(r.Thread, r.ID)
			if err != nil {
				return err
			}
			change(row)
			return tx.UpdateRun(row)
		}))
	}
	change(func(r *run.Run) { r.Kwargs.Resumable = true })
	keep(1, "metadata")
	f, err := in.runs.JoinStream(t.Context(), r.Thread, r.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	first, err := f.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, first, 1)
	keep(2, "values")
	change(func(r *run.Run) { r.LeaseUntil = time.Now().Add(-time.Second) })
	require.Equal(t, []string{"1.2 values", "2.1 metadata", "2.2 values", "2.3 values"}, seen(t, in, f))
}

// A reader does not wait for ever for a record that is nowhere, also when it is never asked for as long as it waits.
func TestWhatIsNowhere(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	c := newCluster(t)
	s := c.open()
	var live bridge.Bridge
	c.carry = func(b bridge.Bridge) bridge.Bridge { live = b; return b }
	in := c.start(map[string]script{"g": echo}, func(o *service.Options) { o.Lease = lease })
	r := left(t, s, time.Now().Add(time.Hour), "")
	require.NoError(t, s.Runs().Write(t.Context(), func(tx run.Tx) error {
		row, err := tx.Run(r.Thread, r.ID)
		if err != nil {
			return err
		}
		row.Kwargs.Resumable = true
		return tx.UpdateRun(row)
	}))
	f, err := in.runs.JoinStream(t.Context(), r.Thread, r.ID, &bridge.Offset{}, nil, false)
	require.NoError(t, err)
	defer f.Close(false)
	require.NoError(t, live.Publish(t.Context(), r.Thread, []*bridge.Record{
		{Run: r.ID, Event: "values", Data: json.RawMessage(`{}`), Kept: true, Attempt: 1, Index: 2}, // and where is the first?
	}))
	for began := time.Now(); ; {
		beat, cancel := context.WithTimeout(t.Context(), lease/4)
		got, err := f.Next(beat)
		cancel()
		if err == nil {
			require.Len(t, got, 1)
			require.Greater(t, time.Since(began), 2*lease)
			return
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 30*lease)
	}
}

// doubling is a bridge that has records a second time, under other offsets, as a Redis does that gets them behind those of another instance after a
// client has seen them.
type doubling struct{ bridge.Bridge }

func (d doubling) Publish(ctx context.Context, t id.Thread, records []*bridge.Record) error {
	if err := d.Bridge.Publish(ctx, t, records); err != nil {
		return err
	}
	var again []*bridge.Record
	for _, r := range records {
		if r.Kind != bridge.Terminal {
			c := *r
			again = append(again, &c)
		}
	}
	return d.Bridge.Publish(ctx, t, again)
}

func TestTheSameRecordUnderAnotherOffsetIsLeftOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.carry = func(b bridge.Bridge) bridge.Bridge { return doubling{b} }
	in := c.start(map[string]script{"g": echo}, nil)
	req := request("g")
	req.Resumable = true
	th := in.newThread()
	of, err := in.runs.StreamThread(t.Context(), th, nil, nil)
	require.NoError(t, err)
	defer of.Close(false)
	_, f, err := in.runs.Start(t.Context(), th, req)
	require.NoError(t, err)
	want := []string{"1.1 metadata", "1.2 values", "1.3 values"}
	require.Equal(t, want, seen(t, in, f)[:3])
	var got []string
	for len(got) < 4 {
		records, err := of.Next(t.Context())
		require.NoError(t, err)
		for _, rec := range records {
			got = append(got, fmt.Sprintf("%d.%d %s", rec.Attempt, rec.Index, rec.Event))
		}
	}
	require.Equal(t, append(want, "1.4 metadata"), got)
}
