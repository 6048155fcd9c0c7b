package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// commit is a kind of transaction, by the last write in it that says what it is for.
type commit string

const (
	creates commit = "creates a run"
	claims  commit = "claims a run"
	saves   commit = "saves a checkpoint"
	retries commit = "puts a run back into the queue"
	ends    commit = "ends a run"
	cancels commit = "cancels a run"
	settles commit = "settles a thread"
)

// unanswered commits transactions of which the writer gets an error, as when the connection to the database dies before the answer to a commit comes.
type unanswered struct {
	mu   sync.Mutex
	kind commit
	left int // so many more
	lost int // so many so far
}

// lose makes the next commits of a kind return an error.
func (u *unanswered) lose(kind commit, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.kind, u.left, u.lost = kind, n, 0
}

func (u *unanswered) losses() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lost
}

func (u *unanswered) write(ctx context.Context, write func(context.Context, func(run.Tx) error) error, fn func(run.Tx) error) error {
	var tx *watchedTx
	err := write(ctx, func(inner run.Tx) error {
		tx = &watchedTx{Tx: inner}
		return fn(tx)
	})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if tx.kind != u.kind || u.left == 0 {
		return nil
	}
	u.left--
	u.lost++
	return fault.Wrap(fault.Unavailable, "the connection to the database was lost during a commit", errors.New("broken pipe"))
}

// watchedTx notes what a transaction is for.
type watchedTx struct {
	run.Tx
	kind  commit
	claim bool
}

func (t *watchedTx) InsertRun(r *run.Run) error {
	t.kind = creates
	return t.Tx.InsertRun(r)
}

func (t *watchedTx) DueRun(now time.Time, beside ...string) (*run.Run, error) {
	t.claim = true
	return t.Tx.DueRun(now, beside...)
}

func (t *watchedTx) UpdateRun(r *run.Run) error {
	switch {
	case r.Cancel != "" && r.Attempt == 0, r.Cancel != "" && r.Status == run.Running:
		t.kind = cancels
	case r.Status.Over():
		t.kind = ends
	case r.Status == run.Pending:
		t.kind = retries
	case t.claim:
		t.kind = claims
	}
	return t.Tx.UpdateRun(r)
}

func (t *watchedTx) DeleteRun(th id.Thread, r id.Run) error {
	t.kind = ends
	return t.Tx.DeleteRun(th, r)
}

func (t *watchedTx) DeleteThread(th id.Thread) error {
	t.kind = ends
	return t.Tx.DeleteThread(th)
}

func (t *watchedTx) PutCheckpoint(p *checkpointer.Put) error {
	t.kind = saves
	return t.Tx.PutCheckpoint(p)
}

func (t *watchedTx) UpdateThread(row *thread.Thread) error {
	if t.kind == "" && !t.claim && row.Status != thread.Busy {
		t.kind = settles
	}
	return t.Tx.UpdateThread(row)
}

// unansweredStore and unansweredShared are the storage of one server and of several.
type unansweredStore struct {
	run.Store
	*unanswered
}

func (s unansweredStore) Write(ctx context.Context, fn func(run.Tx) error) error {
	return s.write(ctx, s.Store.Write, fn)
}

type unansweredShared struct {
	run.Shared
	*unanswered
}

func (s unansweredShared) Write(ctx context.Context, fn func(run.Tx) error) error {
	return s.write(ctx, s.Shared.Write, fn)
}

// losing is a world whose storage does not answer commits.
type losing struct {
	*world
	*unanswered
	newThread func() id.Thread
	started   chan id.Run // gets those that begin, of graphs that send them
	lease     time.Duration
	log       func(context.Context, id.Thread, eventstore.Seq, int) ([]*eventstore.Event, error)
}

// onLosing runs a test on each storage. The lease of servers that share it is short, for that is what bounds waits there; without others it never ends.
func onLosing(t *testing.T, g func(started chan<- id.Run) script, test func(*testing.T, *losing)) {
	graphs := func(started chan<- id.Run) map[string]script { return map[string]script{"g": g(started)} }
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		u, started := &unanswered{}, make(chan id.Run, 8)
		wrap := func(s run.Store) run.Store { return unansweredStore{s, u} }
		w := newWorldOn(t, wrap, graphs(started), func(o *service.Options) { o.Lease = time.Hour })
		test(t, &losing{w, u, w.thread, started, time.Hour, w.rows.Events})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		u, started := &unanswered{}, make(chan id.Run, 8)
		c := newCluster(t)
		c.wrap = func(s run.Shared) run.Shared { return unansweredShared{s, u} }
		const lease = 20 * time.Second
		in := c.start(graphs(started), func(o *service.Options) { o.Lease = lease })
		test(t, &losing{in.world, u, in.newThread, started, lease, in.store.Events})
	})
}

// answer is the result of a follower.
func (l *losing) answer(f run.Follower) run.Result {
	l.t.Helper()
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	res, err := f.Result(ctx)
	require.NoError(l.t, err)
	require.Less(l.t, time.Since(began), l.lease)
	return res
}

// then is the input of runs that follow others.
const then = `{"then":true}`

// follows checks that a thread is not stuck: another run of it is executed.
func (l *losing) follows(th id.Thread) {
	l.t.Helper()
	l.lose("", 0)
	req := request("g")
	req.Input = json.RawMessage(then)
	_, f, err := l.runs.Start(l.t.Context(), th, req)
	require.NoError(l.t, err)
	require.JSONEq(l.t, then, string(l.answer(f).Values))
	row, err := l.runs.Store.Thread(l.t.Context(), th)
	require.NoError(l.t, err)
	require.Equal(l.t, thread.Idle, row.Status)
}

// Clients that wait for a run get its result though the answer to the commit of its end was lost, however it ends, and whatever it leaves.
func TestEndsWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, temporary := range []bool{false, true} {
		for _, way := range []string{"succeeds", "fails", "is rolled back", "is interrupted", "dies"} {
			t.Run(fmt.Sprintf("%s, stateless: %t", way, temporary), func(t *testing.T) {
				t.Parallel()
				testUnansweredEnd(t, way, temporary)
			})
		}
	}
}

func testUnansweredEnd(t *testing.T, way string, temporary bool) {
	g := func(started chan<- id.Run) script {
		return script{stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
			emit("values", string(inv.Input))
			if string(inv.Input) == then {
				return nil
			}
			started <- inv.Run
			if inv.Noted != nil {
				inv.Noted(graph.Note{Type: "x.step", Category: "x", Content: json.RawMessage(fmt.Sprint(inv.Attempt)), At: time.Now()})
			}
			switch {
			case way == "fails":
				return &graph.Failure{Type: "E", Message: "no"}
			case way == "dies" && inv.Attempt == 1:
				return graph.ErrWorkerDied
			case way == "is rolled back", way == "is interrupted":
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}}
	}
	onLosing(t, g, func(t *testing.T, l *losing) {
		kind, want := ends, []string{"1"}
		if way == "dies" {
			kind, want = retries, []string{"1", "2"}
		}
		th := id.Thread("")
		if !temporary {
			th = l.newThread()
		}
		l.lose(kind, 3)
		req := request("g")
		req.Resumable = true // so that a stateless one is written at once
		r, f, err := l.runs.Start(t.Context(), th, req)
		require.NoError(t, err)
		require.Equal(t, r.ID, <-l.started)
		action := map[string]run.Action{"is rolled back": run.CancelRollback, "is interrupted": run.CancelInterrupt}[way]
		if action != "" {
			require.NoError(t, l.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, action, true))
		}
		res := l.answer(f)
		if way == "fails" {
			require.JSONEq(t, `{"error":"E","message":"no"}`, string(res.Error))
		} else {
			require.Empty(t, res.Error)
			require.JSONEq(t, `{"n":1}`, string(res.Values))
		}
		require.Equal(t, 1, l.losses(), "a commit that happened is not repeated")
		if temporary {
			_, err := l.runs.Get(t.Context(), r.Thread, r.ID)
			require.True(t, fault.Is(err, fault.NotFound), "%v", err)
			return
		}
		l.follows(th)
		if way != "is rolled back" {
			require.Equal(t, want, l.notes(th))
		}
	})
}

// notes returns what graphs added to the log of a thread.
func (l *losing) notes(th id.Thread) (notes []string) {
	l.t.Helper()
	events, err := l.log(l.t.Context(), th, 0, 0)
	require.NoError(l.t, err)
	for _, e := range events {
		if e.Type == "x.step" {
			notes = append(notes, string(e.Content))
		}
	}
	return notes
}

// saver saves a checkpoint whose next tasks only the graph knows, so that a rollback settles its thread in a transaction of its own.
func saver(started chan<- id.Run) script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		n := 2
		if string(inv.Input) == then {
			n = 1
		}
		if err := saveOne(ctx, inv, id.Checkpoint(fmt.Sprintf("1f000000-0000-6000-8000-00000000000%d", n))); err != nil {
			return err
		}
		emit("values", string(inv.Input))
		if n == 1 {
			return nil
		}
		started <- inv.Run
		<-ctx.Done()
		return context.Cause(ctx)
	}}
}

// A thread is not left busy when the answer to a commit of a rollback is lost, that of its end or that which settles the thread behind it.
func TestRollbacksWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, kind := range []commit{ends, settles} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			onLosing(t, saver, func(t *testing.T, l *losing) {
				th := l.newThread()
				l.follows(th)
				r, f, err := l.runs.Start(t.Context(), th, request("g"))
				require.NoError(t, err)
				require.Equal(t, r.ID, <-l.started)
				l.lose(kind, 1)
				require.NoError(t, l.runs.Cancel(t.Context(), th, []id.Run{r.ID}, run.CancelRollback, true))
				require.JSONEq(t, `{"n":1}`, string(l.answer(f).Values))
				require.Equal(t, 1, l.losses())
				row, err := l.runs.Store.Thread(t.Context(), th)
				require.NoError(t, err)
				require.Equal(t, thread.Idle, row.Status)
				require.Equal(t, id.Checkpoint("1f000000-0000-6000-8000-000000000001"), row.Head)
				l.follows(th)
			})
		})
	}
}

// The answer to the commit of a checkpoint is lost. Servers that share a storage save again; a server alone, which has lost its disk, ends the run and says so.
func TestSavesWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	onLosing(t, saver, func(t *testing.T, l *losing) {
		th := l.newThread()
		l.lose(saves, 2)
		req := request("g")
		req.Input = json.RawMessage(then)
		_, f, err := l.runs.Start(t.Context(), th, req)
		require.NoError(t, err)
		res := l.answer(f)
		if l.lease == time.Hour {
			require.JSONEq(t, `{"error":"ServiceUnavailable","message":"the connection to the database was lost during a commit"}`, string(res.Error))
			require.Equal(t, 1, l.losses())
		} else {
			require.JSONEq(t, then, string(res.Values))
			require.Equal(t, 2, l.losses())
		}
		saved, err := l.runs.Store.ListCheckpoints(t.Context(), checkpointer.List{Thread: th})
		require.NoError(t, err)
		require.Len(t, saved, 1)
		l.follows(th)
	})
}

// lingers sends each run that begins. Those whose input says so last until they are cancelled.
func lingers(started chan<- id.Run) script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", string(inv.Input))
		if string(inv.Input) == then {
			return nil
		}
		started <- inv.Run
		if string(inv.Input) == `{"lasts":true}` {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}}
}

// lasting starts a run of a thread that lasts.
func (l *losing) lasting(th id.Thread) (*run.Run, run.Follower) {
	l.t.Helper()
	req := request("g")
	req.Input = json.RawMessage(`{"lasts":true}`)
	r, f, err := l.runs.Start(l.t.Context(), th, req)
	require.NoError(l.t, err)
	require.Equal(l.t, r.ID, <-l.started)
	return r, f
}

// once checks that a run succeeded by its first attempt.
func (l *losing) once(r *run.Run) {
	l.t.Helper()
	require.Equal(l.t, r.ID, <-l.started)
	require.Empty(l.t, l.started)
	row, err := l.runs.Get(l.t.Context(), r.Thread, r.ID)
	require.NoError(l.t, err)
	require.Equal(l.t, run.Success, row.Status)
	require.Equal(l.t, 1, row.Attempt)
}

// A run whose commit was not answered is created, and executed once: when it begins at once, when it waits, and when another one makes room for it.
func TestCreatesWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, strategy := range []run.Strategy{"", run.Enqueue, run.Interrupt, run.Rollback} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			onLosing(t, lingers, func(t *testing.T, l *losing) {
				th := l.newThread()
				req := request("g")
				var before *run.Run
				if strategy != "" {
					var follows run.Follower
					before, follows = l.lasting(th)
					defer follows.Close(false)
					req.Strategy = strategy
				}
				l.lose(creates, 1)
				r, f, err := l.runs.Start(t.Context(), th, req)
				require.NoError(t, err)
				require.Equal(t, 1, l.losses())
				if strategy == run.Enqueue {
					require.NoError(t, l.runs.Cancel(t.Context(), th, []id.Run{before.ID}, run.CancelInterrupt, true))
				}
				require.JSONEq(t, `{"n":1}`, string(l.answer(f).Values))
				l.once(r)
				l.follows(th)
			})
		})
	}
}

// A stateless run that is written while it is executed ends as any other.
func TestStatelessRunsWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	onLosing(t, lingers, func(t *testing.T, l *losing) {
		l.lose(creates, 1)
		r, f := l.lasting("")
		require.Equal(t, 1, l.losses())
		require.NoError(t, l.runs.Cancel(t.Context(), r.Thread, []id.Run{r.ID}, run.CancelInterrupt, true))
		require.JSONEq(t, `{"lasts":true}`, string(l.answer(f).Values))
		_, err := l.runs.Store.Thread(t.Context(), r.Thread)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	})
}

// A run that was claimed by a commit that was not answered is executed, once.
func TestClaimsWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	onLosing(t, lingers, func(t *testing.T, l *losing) {
		th := l.newThread()
		before, follows := l.lasting(th)
		defer follows.Close(false)
		r, f, err := l.runs.Start(t.Context(), th, request("g"))
		require.NoError(t, err)
		l.lose(claims, 1)
		require.NoError(t, l.runs.Cancel(t.Context(), th, []id.Run{before.ID}, run.CancelInterrupt, true))
		require.JSONEq(t, `{"n":1}`, string(l.answer(f).Values))
		require.Equal(t, 1, l.losses())
		l.once(r)
		l.follows(th)
	})
}

// A cancel whose commit was not answered takes effect at once, and those who follow the run learn of it.
func TestCancelsWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	for _, action := range []run.Action{run.CancelInterrupt, run.CancelRollback} {
		for _, pending := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pending: %t", action, pending), func(t *testing.T) {
				t.Parallel()
				onLosing(t, lingers, func(t *testing.T, l *losing) {
					th := l.newThread()
					r, f := l.lasting(th)
					if before := r; pending {
						defer f.Close(false)
						var err error
						r, f, err = l.runs.Start(t.Context(), th, request("g"))
						require.NoError(t, err)
						defer func() {
							require.NoError(t, l.runs.Cancel(t.Context(), th, []id.Run{before.ID}, run.CancelInterrupt, true))
							l.follows(th)
						}()
					}
					l.lose(cancels, 1)
					if pending && action == run.CancelRollback {
						l.lose(ends, 1)
					}
					require.NoError(t, l.runs.Cancel(t.Context(), th, []id.Run{r.ID}, action, true))
					l.answer(f)
					require.Equal(t, 1, l.losses())
					row, err := l.runs.Get(t.Context(), th, r.ID)
					if action == run.CancelRollback {
						require.True(t, fault.Is(err, fault.NotFound), "%v", err)
					} else {
						require.NoError(t, err)
						require.Equal(t, run.Interrupted, row.Status)
					}
					if !pending {
						l.follows(th)
					}
				})
			})
		}
	}
}
