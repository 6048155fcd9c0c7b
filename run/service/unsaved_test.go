package service_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/run/service"
)

// full is a storage whose disk may be full: it reads, and refuses to write.
type full struct {
	run.Shared
	full *atomic.Bool
}

func (f full) Write(ctx context.Context, fn func(run.Tx) error) error {
	if f.full.Load() {
		return fault.New(fault.Unavailable, "the disk is full")
	}
	return f.Shared.Write(ctx, fn)
}

// Whoever waits for a run whose end cannot be saved learns why, on every server, and when he comes later at once. The run ends when there is room, as if
// nothing had been.
func TestEndsThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	var isFull atomic.Bool
	c := newCluster(t)
	c.wrap = func(s run.Shared) run.Shared { return full{s, &isFull} }
	ends := make(chan struct{})
	gate := script{stream: func(ctx context.Context, _ graph.Invocation, emit func(string, string)) error {
		emit("values", `{"n":1}`)
		select {
		case <-ends:
		case <-ctx.Done():
		}
		emit("values", `{"n":2}`) // when the disk is full: the end of a resumable run waits for it
		return nil
	}}
	in := c.start(map[string]script{"g": gate}, func(o *service.Options) { o.Lease = 3 * time.Second }) // room then comes between two looks for ended leases
	another := c.start(nil, func(o *service.Options) { o.Lease, o.Jobs = time.Hour, -1 })               // it takes nothing over
	temporary, waits, err := in.runs.Begin(t.Context(), "", request("g"))
	require.NoError(t, err)
	require.NoError(t, waits.EnsureDurable(t.Context()))
	followers := map[string]run.Follower{"a wait for a stateless run": waits}
	th := in.newThread()
	req := request("g")
	req.Resumable = true
	r, f, err := in.runs.Begin(t.Context(), th, req)
	require.NoError(t, err)
	followers["a wait"] = f
	streams, err := in.runs.JoinStream(t.Context(), th, r.ID, nil, nil, false)
	require.NoError(t, err)
	all, err := in.runs.StreamThread(t.Context(), th, nil, nil)
	require.NoError(t, err)
	frames, err := in.runs.StreamEvents(t.Context(), th, allEvents)
	require.NoError(t, err)
	events, err := another.runs.FollowEvents(t.Context(), th, allEvents)
	require.NoError(t, err)
	for name, server := range map[string]*instance{"a join": in, "a join elsewhere": another} {
		if followers[name], err = server.runs.Join(t.Context(), th, r.ID); err != nil {
			require.NoError(t, err)
		}
	}
	require.Eventually(t, func() bool { return in.status(th, r.ID) == run.Running }, time.Minute, time.Millisecond)
	isFull.Store(true)
	close(ends)
	explains := func(err error, name string) {
		require.True(t, fault.Is(err, fault.Unavailable), "%s: %v", name, err)
		require.ErrorContains(t, err, "the disk is full", name)
		require.ErrorContains(t, err, "writing the end of a run failed; retrying", name)
	}
	for name, f := range map[string]run.Follower{"the stream of the run": streams, "the stream of the thread": all} {
		require.Contains(t, noticeIn(t, f), "its end cannot be saved: the disk is full", name)
	}
	requireNoticeOfEvents(t, r.ID, frames, events)
	for name, f := range followers {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := f.Result(ctx)
		cancel()
		explains(err, name)
		f.Close(true)
	}
	_, err = in.runs.Join(t.Context(), th, r.ID)
	explains(err, "a late join")
	_, err = in.runs.Join(t.Context(), temporary.Thread, temporary.ID)
	explains(err, "a late join of a stateless run")
	late, err := another.runs.Join(t.Context(), th, r.ID)
	require.NoError(t, err)
	_, err = late.Result(t.Context())
	explains(err, "a late join elsewhere")
	late.Close(false)
	lateStream, err := another.runs.JoinStream(t.Context(), th, r.ID, nil, []string{"values"}, false)
	require.NoError(t, err)
	require.Contains(t, noticeIn(t, lateStream), "the disk is full", "a late reader elsewhere, who asked for values alone")

	isFull.Store(false)
	in.records(lateStream)
	for _, event := range in.events(streams) {
		require.NotContains(t, event, "end_not_saved", "it is said once")
		require.NotContains(t, event, "error")
	}
	in.reaches(th, r.ID, run.Success)
	row, err := in.runs.Get(t.Context(), th, r.ID)
	require.NoError(t, err)
	require.Equal(t, 1, row.Attempt, "no server could renew a lease meanwhile: that is no reason to execute the run again")
	require.JSONEq(t, `{"n":2}`, string(in.lastOf(th, r.ID)))
	for seen := ""; seen != `metadata {"status":"run_done","run_id":"`+string(r.ID)+`"}`; {
		records, err := all.Next(t.Context())
		require.NoError(t, err)
		for _, rec := range records {
			require.NotEqual(t, "end_not_saved", rec.Event)
			require.NotEqual(t, "error", rec.Event)
			seen = rec.Event + " " + string(rec.Data)
		}
	}
	all.Close(false)
	for _, frame := range framesUntil(t, frames, 1) {
		require.NotContains(t, frame, "end_not_saved")
	}
	frames.Close(false)
	events.Close()
}

// requireNoticeOfEvents reads events, framed on one server and not on another, up to the notice that the end of a run cannot be saved. It is an error of the
// connection, and has no number: SDKs report it and continue, and no client resumes after it.
func requireNoticeOfEvents(t *testing.T, r id.Run, frames run.Follower, events protocol.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	requireNotice := func(data []byte) {
		var notice map[string]any
		require.NoError(t, json.Unmarshal(data, &notice))
		require.Contains(t, notice["message"], "its end cannot be saved: the disk is full")
		delete(notice, "message")
		require.Equal(t, map[string]any{"type": "error", "id": nil, "error": "end_not_saved", "run_id": string(r)}, notice)
	}
	for seen := false; !seen; {
		records, err := frames.Next(ctx)
		require.NoError(t, err)
		for _, rec := range records {
			if frame := string(rec.Frame); strings.HasPrefix(frame, "event: error") {
				require.NotContains(t, frame, "\nid:")
				requireNotice(rec.Data)
				seen = true
			}
		}
	}
	for seen := false; !seen; {
		list, err := events.Next(ctx)
		require.NoError(t, err)
		for _, e := range list {
			if e.Seq == 0 {
				requireNotice(e.Data)
				seen = true
			}
		}
	}
}

// noticeIn reads a stream up to the notice that the end of its run cannot be saved, and returns its data. An error before it would be a failure of a run that
// succeeds: clients of all protocols end a run with it.
func noticeIn(t *testing.T, f run.Follower) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		records, err := f.Next(ctx)
		require.NoError(t, err)
		for _, rec := range records {
			require.False(t, strings.HasPrefix(rec.Event, "error"), "%s %s", rec.Event, rec.Data)
			if rec.Event == "end_not_saved" {
				require.Zero(t, rec.Offset, "nobody resumes behind it")
				return string(rec.Data)
			}
		}
	}
}

// lastOf gives the last values that the database has of what a run streamed.
func (in *instance) lastOf(t id.Thread, r id.Run) (values json.RawMessage) {
	in.t.Helper()
	f, err := in.runs.JoinStream(in.t.Context(), t, r, &bridge.Offset{}, []string{"values"}, false)
	require.NoError(in.t, err)
	for _, rec := range in.records(f) {
		values = rec.Data
	}
	return values
}

// A run that fails because its checkpoints cannot be saved says why.
func TestARunThatFindsTheDiskFull(t *testing.T) {
	t.Parallel()
	storage := &fullStore{}
	w := newWorldOn(t, func(s run.Store) run.Store {
		storage.Store = s
		return storage
	}, map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, _ func(string, string)) error {
		storage.full.Store(true)
		defer storage.full.Store(false)
		return saveOne(ctx, inv, "1f000000-0000-6000-8000-000000000001")
	}}}, nil)
	th := w.thread()
	_, f, err := w.runs.Start(t.Context(), th, request("g"))
	require.NoError(t, err)
	require.JSONEq(t, `{"error":"ServiceUnavailable","message":"the disk is full"}`, string(w.result(f).Error))
}

// fullStore is full of a storage that no other server shares.
type fullStore struct {
	run.Store
	full atomic.Bool
}

func (f *fullStore) Write(ctx context.Context, fn func(run.Tx) error) error {
	if f.full.Load() {
		return fault.New(fault.Unavailable, "the disk is full")
	}
	return f.Store.Write(ctx, fn)
}
