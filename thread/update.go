package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// updateAttempts bounds how often an update is computed again because runs, deletions or pruning changed what it was built on. Other updates do
// not: they wait for their turn.
const updateAttempts = 20

// UpdateState writes checkpoints as if nodes had, all of them or none, and returns the key of the last. Updates of a thread are done one after
// the other, in the order in which they came: each builds on the head that the one before left, unless at.ID names another checkpoint.
// While runs of the thread are pending or running: fault.Conflict.
func (s *Service) UpdateState(ctx context.Context, at checkpointer.Key, steps [][]StateUpdate) (checkpointer.Key, error) {
	if _, err := s.updatable(ctx, at.Thread); err != nil { // nobody needs a turn to hear that
		return checkpointer.Key{}, err
	}
	leave, err := s.turn(ctx, at.Thread)
	if err != nil {
		return checkpointer.Key{}, err
	}
	defer leave()
	for range updateAttempts {
		key, err := s.update(ctx, at, steps)
		if !errors.Is(err, errMoved) {
			return key, err
		}
	}
	return checkpointer.Key{}, fault.Newf(fault.Conflict, "Thread %s changed again and again while its update was computed. Try again.", at.Thread)
}

// updating is what an update is computed from.
type updating struct {
	row   *Thread
	name  string // of the graph
	graph graph.Graph
}

// updatable returns what is needed to update a thread, or why it cannot be updated now.
func (s *Service) updatable(ctx context.Context, t id.Thread) (u updating, err error) {
	if u.row, err = s.row(ctx, t); err != nil {
		return u, err
	}
	if u.name = graphOf(u.row); u.name == "" {
		return u, fault.Newf(fault.Invalid, "Thread '%s' has no assigned graph ID. Run the thread once, or set 'graph_id' in its metadata, before updating its state.", t)
	}
	var ok bool
	if u.graph, ok = s.Graphs.Graph(u.name); !ok {
		return u, fault.Newf(fault.NotFound, "Graph '%s' not found", u.name)
	}
	if u.row.Status == Busy {
		return u, inFlight(t)
	}
	return u, nil
}

func graphOf(row *Thread) string { return jsonobj.Of(row.Metadata).Text("graph_id") }

// update computes an update and commits it; errMoved when the thread has changed in between.
func (s *Service) update(ctx context.Context, at checkpointer.Key, steps [][]StateUpdate) (checkpointer.Key, error) {
	u, err := s.updatable(ctx, at.Thread)
	if err != nil {
		return checkpointer.Key{}, err
	}
	if err := s.backfill(ctx, at.Thread); err != nil {
		return checkpointer.Key{}, err
	}
	d := newDraft(s.Store, at)
	updates, deleted, err := s.cleanUpdates(ctx, u.name, at, steps, d)
	if err != nil {
		return checkpointer.Key{}, err
	}
	key, err := u.graph.Update(ctx, graph.Config{
		Thread: at.Thread, Config: readConfig(u.row, u.name), Saver: d, Store: s.Items, After: u.row.Head,
	}, at, updates)
	if err != nil {
		return checkpointer.Key{}, err
	}
	saver := NewSaver[Tx](s.Store, nil, nil)
	saver.Keys = s.Overlay.Key
	saver.NoteDeleted(deleted)
	settled, err := s.commit(ctx, &u, d, saver)
	if err != nil {
		return checkpointer.Key{}, err
	}
	// The update is committed: what follows does not depend on whether the client still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if !settled {
		if err := s.settle(ctx, at.Thread); err != nil {
			s.Log.WarnContext(ctx, "thread status unknown until its next run or update", "thread_id", at.Thread, "error", err)
		}
	}
	if state, err := s.Snapshots.State(ctx, checkpointer.Key{Thread: at.Thread}, false); err == nil { // else followers see the change when they read
		s.Changed(state)
	}
	return key, nil
}

// commit stores what the graph saved and has the thread show it, if what the graph read still holds: errMoved otherwise. settled is false when
// only the graph can describe the new head; the row then shows the head without what it waits for.
func (s *Service) commit(ctx context.Context, u *updating, d *draft, saver *Saver[Tx]) (settled bool, err error) {
	t := u.row.ID
	_, elsewhere := u.graph.(graph.Elsewhere)
	notes := saver.notes(d.saves)
	err = s.Store.Write(ctx, func(tx Tx) error {
		settled = true
		if e, ok := tx.(Expecting); ok {
			e.ExpectUpdate(t)
		}
		row, err := tx.Thread(t)
		if fault.Is(err, fault.NotFound) {
			return notFound(t)
		}
		if err != nil {
			return err
		}
		if !elsewhere { // else it has happened already
			if err := unchanged(tx, u.row, row, d); err != nil {
				return err
			}
		}
		if err := saver.apply(tx, d.saves, notes); err != nil {
			return err
		}
		_, err = SettleIn(tx, s.Snapshots, t, Settling{Now: s.Now()})
		if !errors.Is(err, checkpointer.ErrUndescribed) {
			return err
		}
		settled = false
		head, err := tx.Head(t)
		if err != nil {
			return err
		}
		_, err = SettleIn(tx, s.Snapshots, t, Settling{Head: &checkpointer.HeadInfo{ID: idOf(head), Interrupts: empty}, Now: s.Now()})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("commit update of thread %s: %w", t, err)
	}
	return settled, nil
}

// unchanged checks that a thread is as it was when its update began.
func unchanged(tx Tx, was, row *Thread, d *draft) error {
	busy, err := tx.HasActiveRuns(row.ID)
	if err != nil {
		return err
	}
	if busy {
		return inFlight(row.ID)
	}
	// A run that ended in between may have left writes on the same head.
	if !row.StateUpdatedAt.Equal(was.StateUpdatedAt) || graphOf(row) != graphOf(was) || string(row.Config) != string(was.Config) {
		return errMoved
	}
	return d.holds(tx)
}

// settle makes the row of a thread show a head that only its graph can describe.
func (s *Service) settle(ctx context.Context, t id.Thread) error {
	var asked *checkpointer.HeadInfo
	for {
		err := s.Store.Write(ctx, func(tx Tx) error {
			row, err := tx.Thread(t)
			if err != nil {
				return err
			}
			_, err = SettleIn(tx, s.Snapshots, t, Settling{Head: asked, Failure: row.Error, Now: s.Now()})
			return err
		})
		if !errors.Is(err, checkpointer.ErrUndescribed) {
			return err
		}
		head, err := s.Snapshots.Head(ctx, t)
		if err != nil {
			return fmt.Errorf("head of thread %s: %w", t, err)
		}
		asked = &head
	}
}

func inFlight(t id.Thread) error {
	return fault.Newf(fault.Conflict, "Thread %s has in-flight runs. Wait for them to end, or cancel them, before updating its state.", t)
}

// readConfig is the configuration with which graphs are built when no run is there to give one.
func readConfig(row *Thread, graphID string) json.RawMessage {
	config := jsonobj.Of(row.Config)
	configurable := jsonobj.Of(config.Get("configurable"))
	configurable.SetText("thread_id", string(row.ID))
	configurable.SetText("graph_id", graphID)
	if a := jsonobj.Of(row.Metadata).Text("assistant_id"); a != "" {
		configurable.SetText("assistant_id", a)
	}
	config.Set("configurable", configurable.JSON())
	return config.JSON()
}
