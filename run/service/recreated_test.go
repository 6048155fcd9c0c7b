package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/run/service"
	"understudy/thread"
)

// retentive is a bridge that keeps the records of a deleted thread, as when Redis is unreachable.
type retentive struct{ bridge.Bridge }

func (r retentive) Forget(context.Context, id.Thread, id.Run) error { return nil }

func (r retentive) ForgetThread(context.Context, id.Thread, bridge.Offset) error { return nil }

// A thread that was created with the id of a deleted one shows nothing of it, although the live stream still has all records and the last run still
// publishes: neither from the beginning nor to readers that are connected then.
func TestRecreatedThreadShowsNothingOfTheOld(t *testing.T) {
	t.Parallel()
	type reader func(ctx context.Context, in *instance, th id.Thread) (run.Follower, error)
	readers := map[string]reader{
		"thread": func(ctx context.Context, in *instance, th id.Thread) (run.Follower, error) {
			return in.runs.StreamThread(ctx, th, &bridge.Offset{}, nil)
		},
		"events": func(ctx context.Context, in *instance, th id.Thread) (run.Follower, error) {
			return in.runs.StreamEvents(ctx, th, protocol.Filter{Channels: []string{"values", "lifecycle"}})
		},
	}
	for _, resumable := range []bool{true, false} {
		c := newCluster(t)
		c.carry = func(b bridge.Bridge) bridge.Bridge { return retentive{b} }
		began, release, published := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		graphs := map[string]script{
			"secret": {stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
				emit("values", `{"n":"secret"}`)
				began <- struct{}{}
				<-release
				emit("values", `{"n":"secret, too"}`)
				close(published)
				return nil
			}},
			"plain": {events: []graph.Event{{Name: "values", Data: json.RawMessage(`{"n":"plain"}`)}}},
		}
		a, b := c.start(graphs, nil), c.start(graphs, nil)
		th := a.newThread()
		req := request("secret")
		req.Resumable = resumable
		old, first, err := a.runs.Start(t.Context(), th, req)
		require.NoError(t, err)
		defer first.Close(false)
		next(t, began)
		readSome(t, first, 1)

		require.NoError(t, b.store.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(th) }))
		b.runs.ThreadDeleted(th)
		require.NoError(t, b.store.Threads().Write(t.Context(), func(tx thread.Tx) error {
			return tx.InsertThread(&thread.Thread{
				ID: th, Metadata: json.RawMessage(`{"owner":"bob"}`), Config: json.RawMessage(`{}`), Status: thread.Idle,
			})
		}))
		f, err := access.ParseFilter(json.RawMessage(`{"owner":"bob"}`))
		require.NoError(t, err)
		bob := access.Narrow(t.Context(), access.Threads, f)

		open := map[string]run.Follower{}
		for name, read := range readers {
			open[name+" of bob"], err = read(bob, b, th)
			require.NoError(t, err)
			if resumable { // else nothing is kept, and only access control distinguishes the readers
				open[name], err = read(t.Context(), b, th)
				require.NoError(t, err)
			}
		}
		close(release)
		next(t, published)
		_, err = b.runs.JoinStream(bob, th, old.ID, &bridge.Offset{}, nil, false)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		req = request("plain")
		req.Resumable = true
		r, err := b.runs.Create(t.Context(), th, req)
		require.NoError(t, err)
		b.reaches(th, r.ID, run.Success)
		for name, f := range open {
			for shown := ""; !strings.Contains(shown, "plain"); {
				records, err := f.Next(t.Context())
				require.NoError(t, err, name)
				for _, rec := range records {
					shown += rec.Event + string(rec.Data) + string(rec.Frame)
				}
				require.NotContains(t, shown, "secret", name)
				require.NotContains(t, shown, string(old.ID), name)
			}
			f.Close(false)
		}
	}
}

// A thread that is made again with the ID of one that was deleted, before its deletion is told, keeps its runs: only those of the old one stop.
func TestRecreatedThreadKeepsItsRuns(t *testing.T) {
	t.Parallel()
	began, release, stopped := make(chan id.Run, 2), make(chan struct{}), make(chan struct{})
	w := newWorld(t, map[string]script{
		"old": hang(began),
		"new": {stream: func(ctx context.Context, in graph.Invocation, emit func(string, string)) error {
			began <- in.Run
			select {
			case <-release:
				emit("values", `{"n":"new"}`)
				return nil
			case <-ctx.Done():
				close(stopped)
				return context.Cause(ctx)
			}
		}},
	}, nil)
	th := w.thread()
	_, old, err := w.runs.Start(t.Context(), th, request("old"))
	require.NoError(t, err)
	defer old.Close(false)
	require.NoError(t, old.EnsureDurable(t.Context()))
	<-began
	require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(th) }))
	require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
		return tx.InsertThread(&thread.Thread{ID: th, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle})
	}))
	r, f, err := w.runs.Start(t.Context(), th, request("new"))
	require.NoError(t, err)
	defer f.Close(false)
	require.Equal(t, r.ID, <-began)
	w.runs.ThreadDeleted(th)
	w.events(old) // it has ended
	close(release)
	res, err := f.Result(t.Context())
	require.NoError(t, err)
	require.JSONEq(t, `{"n":"new"}`, string(res.Values))
	select {
	case <-stopped:
		t.Fatal("the run of the new thread was stopped")
	default:
	}
}

// looking is a storage that calls a function before and after each look at a thread or a run.
type looking struct {
	run.Store
	at func(point string) error
}

func (l looking) Thread(ctx context.Context, t id.Thread) (*thread.Thread, error) {
	if err := l.at("before the thread is looked up"); err != nil {
		return nil, err
	}
	row, err := l.Store.Thread(ctx, t)
	_ = l.at("after the thread was looked up")
	return row, err
}

func (l looking) Run(ctx context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	if err := l.at("before a run is looked up"); err != nil {
		return nil, err
	}
	return l.Store.Run(ctx, t, r)
}

// Whenever a thread is created with the ID of a deleted one, and whatever storage answers while the deletion is announced: runs of the old thread and who
// follows them end, and those of the new one continue, with everything that they publish.
func TestThreadsAreCreatedAgainAtAnyMoment(t *testing.T) {
	t.Parallel()
	const before, after = "before it is announced", "after it was announced"
	for _, moment := range []string{before, "before a run is looked up", "before the thread is looked up", "after the thread was looked up", after} {
		for _, failing := range []string{"", "before a run is looked up", "before the thread is looked up"} {
			t.Run(moment+", failing "+failing, func(t *testing.T) {
				t.Parallel()
				began, release, stopped := make(chan id.Run, 4), make(chan struct{}), make(chan error, 4)
				announcing, at := atomic.Bool{}, func(string) {}
				w := newWorldOn(t, func(s run.Store) run.Store {
					return looking{s, func(point string) error {
						if !announcing.Load() {
							return nil
						}
						at(point)
						if point == failing {
							return errors.New("disk I/O error")
						}
						return nil
					}}
				}, map[string]script{
					"old": {stream: func(ctx context.Context, in graph.Invocation, emit func(string, string)) error {
						emit("values", `{"n":"old"}`)
						began <- in.Run
						<-ctx.Done()
						stopped <- context.Cause(ctx)
						return context.Cause(ctx)
					}},
					"new": {stream: func(ctx context.Context, in graph.Invocation, emit func(string, string)) error {
						emit("values", `{"n":"first"}`)
						began <- in.Run
						select {
						case <-release:
							emit("values", `{"n":"last"}`)
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}},
				}, func(o *service.Options) { o.Lease = time.Second })
				th := w.thread()
				resumable := func(graph string) run.Request {
					req := request(graph)
					req.Resumable = true
					return req
				}
				first, executed, err := w.runs.Start(t.Context(), th, resumable("old"))
				require.NoError(t, err)
				defer executed.Close(false)
				require.NoError(t, executed.EnsureDurable(t.Context()))
				next(t, began)
				_, pending, err := w.runs.Start(t.Context(), th, resumable("old"))
				require.NoError(t, err)
				defer pending.Close(false)

				require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.DeleteThread(th) }))
				var fresh *run.Run
				again := func() {
					require.NoError(t, w.rows.Threads().Write(t.Context(), func(tx thread.Tx) error {
						return tx.InsertThread(&thread.Thread{ID: th, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle})
					}))
					fresh, err = w.runs.Create(t.Context(), th, resumable("new"))
					require.NoError(t, err)
				}
				if moment == before {
					again()
				}
				at = func(point string) {
					if point == moment && fresh == nil {
						announcing.Store(false) // what creates it looks too
						again()
						announcing.Store(true)
					}
				}
				announcing.Store(true)
				w.runs.ThreadDeleted(th)
				announcing.Store(false)
				if fresh == nil {
					again()
				}

				require.ErrorContains(t, next(t, stopped), "deleted")
				require.Equal(t, fresh.ID, next(t, began))
				for _, f := range []run.Follower{executed, pending} {
					require.NotContains(t, w.events(f), `values {"n":"first"}`)
				}
				f, err := w.runs.JoinStream(t.Context(), th, fresh.ID, &bridge.Offset{}, nil, false)
				require.NoError(t, err)
				defer f.Close(false)
				close(release)
				require.Subset(t, w.events(f), []string{`values {"n":"first"}`, `values {"n":"last"}`})
				_, err = w.runs.JoinStream(t.Context(), th, first.ID, &bridge.Offset{}, nil, false)
				require.True(t, fault.Is(err, fault.NotFound), "%v", err)
				require.Empty(t, stopped)
			})
		}
	}
}
