package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"understudy/access"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/cache"
	"understudy/internal/fault"
	"understudy/internal/idempotency"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/internal/limits"
)

// Graphs are the graphs that threads run on.
type Graphs interface {
	Graph(id string) (graph.Graph, bool)
}

// Snapshots composes states from stored rows.
type Snapshots interface {
	State(ctx context.Context, k checkpointer.Key, subgraphs bool) (*checkpointer.Snapshot, error)
	Page(ctx context.Context, q checkpointer.List) (*checkpointer.Page, error)
	Values(ctx context.Context, k checkpointer.Key) (json.RawMessage, error)
	Pick(ctx context.Context, k checkpointer.Key, picks []checkpointer.Pick) (parts []json.RawMessage, ok bool, err error)
	Head(ctx context.Context, t id.Thread) (checkpointer.HeadInfo, error)
	Described
}

// Backfill completes threads that were not recorded from their beginning.
type Backfill interface {
	// Ensure returns when all root checkpoints of a thread are recorded. An empty checkpoint stands for the newest.
	Ensure(ctx context.Context, t id.Thread, c id.Checkpoint) error
}

// Options configure a Service. Store, Graphs and Snapshots are required.
type Options struct {
	Store     Store
	Graphs    Graphs
	Snapshots Snapshots
	Items     graph.Store // long-term memory, for graphs that use it during a state update
	Backfill  Backfill    // nil: every thread was recorded from its beginning
	// Overlay shows transcripts in place of messages. nil: states show the graph's messages.
	Overlay *overlay.Overlay
	// Deleted is called with threads as they were, after their deletion, so that their runs stop, and what is kept elsewhere goes. It may take a moment.
	Deleted func(*Thread)
	// Changed is called with the new state of a thread that a client has updated. It must not block.
	Changed   func(*checkpointer.Snapshot)
	Retention Retention
	Log       *slog.Logger // of sweeps; nil: nothing is logged
	Now       func() time.Time
}

// Service manages threads and their state.
type Service struct {
	Options
	turns turns
	bulk  chan struct{}                      // held by the transaction that works on a long thread
	lost  *cache.Cache[id.Thread, time.Time] // when it was last logged that values of a thread are lost
}

// NewService makes a Service.
func NewService(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Retention = o.Retention.orDefaults()
	deleted := o.Deleted
	o.Deleted = func(t *Thread) {
		o.Overlay.Forget(t.ID)
		if deleted != nil {
			deleted(t)
		}
	}
	if o.Changed == nil {
		o.Changed = func(*checkpointer.Snapshot) {}
	}
	return &Service{Options: o, bulk: make(chan struct{}, 1), lost: cache.New[id.Thread, time.Time](1024)}
}

var empty = json.RawMessage(`{}`)

func notFound(t id.Thread) error {
	return fault.Newf(fault.NotFound, "Thread with ID %s not found", t)
}

// Create creates a thread. With supersteps it begins with their final state.
func (s *Service) Create(ctx context.Context, n New) (*View, error) {
	if err := limits.Metadata(n.Metadata); err != nil {
		return nil, err
	}
	now := s.Now()
	t := &Thread{
		ID: n.ID, CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: orEmpty(n.Metadata), Config: empty, Status: Idle,
	}
	t.Renew(s.Retention.Default)
	t.ask(n.TTL, s.Retention.Default)
	if t.ID == "" {
		t.ID = id.NewThread()
	}
	var repeated *idempotency.Record
	var row *Thread // the new thread, or the one that exists
	insert := func(tx Tx) (err error) {
		if repeated, err = s.repeated(tx, n.Key, now); err != nil || repeated != nil {
			return err
		}
		row, err = tx.Thread(t.ID)
		switch {
		case fault.Is(err, fault.NotFound):
			row = t
			err = tx.InsertThread(t)
		case err == nil && n.IfExists != "do_nothing": // else the existing thread is the requested one
			err = fault.Newf(fault.Conflict, "Thread with ID %s already exists", t.ID)
		}
		if err != nil || n.Key == nil {
			return err
		}
		return tx.InsertIdempotencyRecord(&idempotency.Record{ID: n.Key.ID, Digest: n.Key.Digest, At: now, Thread: string(t.ID)}, idempotency.Expired(now))
	}
	err := s.Store.Write(ctx, insert)
	if errors.Is(err, idempotency.ErrRace) { // the other request has stored its thread
		err = s.Store.Write(ctx, insert)
	}
	if err != nil {
		return nil, err
	}
	if repeated != nil {
		n.Key.Repeated = true
		v, err := s.Get(ctx, id.Thread(repeated.Thread))
		if fault.Is(err, fault.NotFound) {
			err = idempotency.ErrGone
		}
		return v, err
	}
	if len(n.Supersteps) > 0 {
		// If they fail the thread stays, as on LangGraph Server: others may have found it meanwhile.
		_, failed := s.UpdateState(ctx, Place{Key: checkpointer.Key{Thread: t.ID}}, n.Supersteps)
		now, err := s.row(ctx, t.ID)
		gone := fault.Is(err, fault.NotFound)
		switch {
		case failed != nil && gone:
			return nil, fault.Newf(fault.Conflict, "Thread %s was deleted by another request before its state was updated", t.ID)
		case failed != nil:
			return nil, notUpdated(t.ID, failed)
		case err == nil:
			row = now
		case !gone: // else it was deleted after the update
			return nil, err
		}
	}
	// The row is not read again: another request may have deleted the thread, after it was made or found.
	v, err := s.shown(ctx, row, n.NoValues)
	if fault.Is(err, fault.NotFound) {
		return &View{Thread: *row}, nil
	}
	return v, err
}

// repeated returns the record of the request that a request with a key repeats; nil when it repeats none.
func (s *Service) repeated(tx Tx, key *idempotency.Key, now time.Time) (*idempotency.Record, error) {
	if key == nil {
		return nil, nil
	}
	r, err := tx.IdempotencyRecord(key.ID, idempotency.Expired(now))
	if err != nil || r == nil {
		return nil, err
	}
	return r, key.Check(r)
}

// NotUpdated reports that a thread was created, but without its initial state, because its graph is not known.
type NotUpdated struct {
	Thread id.Thread
	Err    error
}

func (e *NotUpdated) Error() string {
	return fmt.Sprintf("thread %s was created without its state: %v", e.Thread, e.Err)
}
func (e *NotUpdated) Unwrap() error { return e.Err }

func notUpdated(t id.Thread, err error) error {
	if errors.Is(err, errNoGraph) {
		return &NotUpdated{t, err}
	}
	return err
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return empty
	}
	return raw
}

// Get returns a thread with its values.
func (s *Service) Get(ctx context.Context, t id.Thread) (*View, error) {
	row, err := s.row(ctx, t)
	if err != nil {
		return nil, err
	}
	return s.shown(ctx, row, false)
}

// shown returns a thread as clients see it.
func (s *Service) shown(ctx context.Context, row *Thread, noValues bool) (*View, error) {
	v, err := s.view(ctx, row, noValues)
	if err != nil {
		return nil, err
	}
	return v, s.overlayView(ctx, v, overlay.Threads)
}

func (s *Service) row(ctx context.Context, t id.Thread) (*Thread, error) {
	row, err := s.Store.Thread(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return nil, notFound(t)
	}
	return row, err
}

// lostEvery is how often it is logged that values of the same thread are lost.
const lostEvery = 10 * time.Minute

// lostValues is the error that a thread shows whose values were lost with a part of the database.
var lostValues = json.RawMessage(`{"error":"ValuesLost","message":` + string(jsonobj.Quote(checkpointer.ErrLost.Message)) + `}`)

func (s *Service) view(ctx context.Context, row *Thread, noValues bool) (*View, error) {
	v := &View{Thread: *row}
	if row.Head == "" || noValues {
		return v, nil
	}
	// The row was found for who asks, and no other thread has its checkpoint: whose it is need not be read again.
	values, err := s.Snapshots.Values(access.Everything(ctx), checkpointer.Key{Thread: row.ID, ID: row.Head})
	if errors.Is(err, checkpointer.ErrLost) {
		s.lose(ctx, v, err)
		return v, nil
	}
	if err != nil {
		return nil, s.unlessGone(ctx, row.ID, fmt.Errorf("values of thread %s: %w", row.ID, err))
	}
	v.Values = values
	return v, nil
}

// lose has a thread show that its values are lost.
func (s *Service) lose(ctx context.Context, v *View, err error) {
	if last, logged := s.lost.Get(v.ID); !logged || s.Now().Sub(last) >= lostEvery { // lists show it again and again
		s.lost.Put(v.ID, s.Now(), 1)
		s.Log.WarnContext(ctx, "thread shown without its values: a part of them is missing in the database", "thread_id", v.ID, "error", err)
	}
	v.Touched, v.Error = true, lostValues
}

// unlessGone returns fault.NotFound instead of the error of reading a thread that was deleted meanwhile, because its data is deleted in parts.
func (s *Service) unlessGone(ctx context.Context, t id.Thread, err error) error {
	if _, e := s.row(ctx, t); err != nil && fault.Is(e, fault.NotFound) {
		return e
	}
	return err
}

// Patch changes metadata and ttl.
func (s *Service) Patch(ctx context.Context, t id.Thread, p Patch) (*View, error) {
	err := s.Store.Write(ctx, func(tx Tx) error {
		row, err := tx.Thread(t)
		if err != nil {
			return err
		}
		if err := p.Where.check(row); err != nil {
			return err
		}
		if p.Check != nil {
			active, err := tx.HasActiveRuns(t)
			if err != nil {
				return err
			}
			if err := p.Check(row, active); err != nil {
				return err
			}
		}
		if p.Audit != nil {
			e := *p.Audit
			e.At = s.Now()
			if err := tx.AppendAudit(e); err != nil {
				return err
			}
		}
		if p.Metadata != nil {
			if row.Metadata, err = limits.MergeMetadata(row.Metadata, p.Metadata); err != nil {
				return err
			}
		}
		row.ask(p.TTL, s.Retention.Default)
		if !p.Quiet {
			row.UpdatedAt = s.Now()
		}
		return tx.UpdateThread(row)
	})
	if fault.Is(err, fault.NotFound) {
		return nil, notFound(t)
	}
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, t)
}

// Delete deletes a thread with all its data. Its runs stop.
func (s *Service) Delete(ctx context.Context, t id.Thread) error {
	gone, err := s.Remove(ctx, []id.Thread{t})
	if err == nil && len(gone) == 0 {
		return notFound(t)
	}
	return err
}

// State returns the live head of a namespace (empty at.ID), or the record of one checkpoint.
func (s *Service) State(ctx context.Context, at checkpointer.Key, subgraphs bool) (*checkpointer.Snapshot, error) {
	row, err := s.row(ctx, at.Thread)
	if err != nil {
		return nil, err
	}
	snap, err := s.Snapshots.State(ctx, at, subgraphs)
	if err == nil && at.ID == "" && at.NS == "" && row.Status == Busy && len(snap.Next) == 0 {
		snap, err = s.awaiting(ctx, snap, subgraphs)
	}
	if err == nil {
		err = s.overlaySnapshots(ctx, row, overlay.State, at.ID == "", snap)
	}
	if err != nil {
		return nil, s.unlessGone(ctx, at.Thread, err)
	}
	return snap, nil
}

// startNode is the node that LangGraph names as the next one of the checkpoint that has a run's input.
const startNode = "__start__"

// awaiting returns the head of a busy thread with nothing to do next. While a run waits for its turn, or has not saved its first checkpoint, the head is that of the
// run before, which is over; between two checkpoints all tasks of the head are done. Next is then that of the checkpoint which is about to come, or the tasks that are
// done. Clients of event streaming open no stream where nothing is next, and a page that is loaded at that moment would not show the run.
func (s *Service) awaiting(ctx context.Context, head *checkpointer.Snapshot, subgraphs bool) (*checkpointer.Snapshot, error) {
	due, err := s.Store.DueRuns(ctx, head.Thread, s.Now())
	if err != nil {
		return nil, err
	}
	if len(due) == 0 { // it has ended since the row was read, maybe after the head was
		return s.Snapshots.State(ctx, checkpointer.Key{Thread: head.Thread}, subgraphs)
	}
	saved := id.Run(jsonscan.Text(head.Metadata, "run_id"))
	var next []string
	if slices.Contains(due, saved) {
		for i := range head.Tasks {
			next = append(next, head.Tasks[i].Name)
		}
	}
	if len(next) == 0 && slices.ContainsFunc(due, func(r id.Run) bool { return r != saved }) {
		next = []string{startNode}
	}
	if len(next) > 0 {
		shown := *head // others may have it too
		shown.Next = next
		head = &shown
	}
	return head, nil
}

// backfill completes the recording of a thread before it is changed.
func (s *Service) backfill(ctx context.Context, t id.Thread) error {
	if s.Backfill == nil {
		return nil
	}
	return s.Backfill.Ensure(ctx, t, "")
}
