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

// Place is a checkpoint as clients name it.
type Place struct {
	checkpointer.Key
	Map json.RawMessage // checkpoint_map: of a nested checkpoint, the ones above it and itself; nil when there is none
}

// UpdateState writes checkpoints as if nodes had, all of them or none, and returns the last. Updates of a thread are done one after
// the other, in the order in which they came: each builds on the head that the one before left, unless at.ID names another checkpoint.
// While runs of the thread are pending or running: fault.Conflict.
func (s *Service) UpdateState(ctx context.Context, at Place, steps [][]StateUpdate) (Place, error) {
	if _, err := s.updatable(ctx, at.Thread); err != nil { // this check needs no turn
		return Place{}, err
	}
	leave, err := s.turn(ctx, at.Thread)
	if err != nil {
		return Place{}, err
	}
	defer leave()
	for range updateAttempts {
		written, err := s.update(ctx, at, steps)
		if !errors.Is(err, errMoved) {
			return written, err
		}
	}
	return Place{}, fault.Newf(fault.Conflict, "Thread %s changed again and again while its update was computed. Try again.", at.Thread)
}

// errNoGraph is the cause of errors about threads whose state cannot be written for want of a graph.
var errNoGraph = errors.New("no graph to update the state with")

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
		return u, fault.Wrap(fault.Invalid,
			"Thread '"+string(t)+"' has no assigned graph ID. Run the thread once, or set 'graph_id' in its metadata, before updating its state.", errNoGraph)
	}
	var ok bool
	if u.graph, ok = s.Graphs.Graph(u.name); !ok {
		return u, fault.Wrap(fault.NotFound, "Graph '"+u.name+"' not found", errNoGraph)
	}
	if u.row.Status == Busy {
		return u, inFlight(t)
	}
	return u, nil
}

func graphOf(row *Thread) string { return jsonobj.Of(row.Metadata).Text("graph_id") }

// update computes an update and commits it; errMoved when the thread has changed in between.
func (s *Service) update(ctx context.Context, at Place, steps [][]StateUpdate) (Place, error) {
	u, err := s.updatable(ctx, at.Thread)
	if err != nil {
		return Place{}, err
	}
	if err := s.backfill(ctx, at.Thread); err != nil {
		return Place{}, err
	}
	d := newDraft(s.Store, at.Key)
	updates, deleted, err := s.cleanUpdates(ctx, u.name, at.Key, steps, d)
	if err != nil {
		return Place{}, err
	}
	config, factory := readConfig(u.row, u.name, at.Map)
	key, err := u.graph.Update(ctx, graph.Config{
		Thread: at.Thread, Config: config, Factory: factory, Saver: d, Store: s.Items, CheckpointMap: at.Map, After: u.row.Head,
	}, at.Key, updates)
	if err != nil {
		return Place{}, err
	}
	saver := NewSaver[Tx](s.Store, nil, nil)
	saver.Keys = s.Overlay.Key
	saver.NoteDeleted(deleted)
	settled, err := s.commit(ctx, &u, d, saver)
	if err != nil {
		return Place{}, err
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
	return Place{key, d.mapOf(key)}, nil
}

// commit stores what the graph saved and has the thread show it, if what the graph read still holds: errMoved otherwise. settled is false when
// only the graph can describe the new head; the row then shows the head without what it waits for.
func (s *Service) commit(ctx context.Context, u *updating, d *draft, saver *Saver[Tx]) (settled bool, err error) {
	t := u.row.ID
	_, elsewhere := u.graph.(graph.Elsewhere)
	facts := saver.facts(d.saves)
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
		if err := saver.apply(tx, d.saves, facts); err != nil {
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

// readConfig returns the configurations with which a graph is called when no run is there to say more. Only graphs that are made by a function of
// it get what assistants and requests have left on the thread: in others it would show in the metadata of checkpoints.
func readConfig(row *Thread, graphID string, mapping json.RawMessage) (config, factory json.RawMessage) {
	with := func(config, configurable *jsonobj.Object) json.RawMessage {
		if len(mapping) > 0 {
			configurable.Set("checkpoint_map", mapping)
		}
		configurable.SetText("thread_id", string(row.ID))
		configurable.SetText("graph_id", graphID)
		config.Set("configurable", configurable.JSON())
		return config.JSON()
	}
	whole := jsonobj.Of(row.Config)
	return with(jsonobj.Of(nil), jsonobj.Of(nil)), with(whole, jsonobj.Of(whole.Get("configurable")))
}
