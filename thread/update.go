package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"understudy/checkpointer"
	"understudy/checkpointer/saver"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// updateAttempts limits how often an update is recomputed because runs, deletions or pruning changed its base. Other updates do not change it:
// they wait for their turn.
const updateAttempts = 20

// Place identifies a checkpoint for clients.
type Place struct {
	checkpointer.Key
	Map json.RawMessage // checkpoint_map of a nested checkpoint: its ancestors by namespace and itself; nil when there is none
}

// UpdateState writes checkpoints as if nodes had, all of them or none, and returns the last. Updates of a thread are serialized in
// order of arrival: each builds on the head of the previous one, unless at.ID is another checkpoint. The error is fault.Conflict while
// runs of the thread are pending or running.
func (s *Service) UpdateState(ctx context.Context, at Place, steps [][]graph.StateUpdate) (Place, error) {
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
	return Place{}, keptChanging(at.Thread)
}

func keptChanging(t id.Thread) error {
	return fault.Newf(fault.Conflict, "Thread %s kept changing while its update was computed. Try again.", t)
}

// reviseAttempts is updateAttempts for updates that are costly to compute.
const reviseAttempts = 3

// Revise writes a checkpoint that is computed from the values of a thread's head, as the graph has them: nil when there is no head. No update is lost in between. revise
// may be called again when there was one, and returns nil to write nothing; then the place has no ID. Its messages are taken as if a node had returned them: what it removes
// stays in the transcript. The error is fault.Conflict while runs of the thread are pending or running.
func (s *Service) Revise(ctx context.Context, t id.Thread, revise func(ctx context.Context, values json.RawMessage) (*graph.StateUpdate, error)) (Place, error) {
	at := Place{Key: checkpointer.Key{Thread: t}}
	if _, err := s.updatable(ctx, t); err != nil {
		return Place{}, err
	}
	leave, err := s.turn(ctx, t)
	if err != nil {
		return Place{}, err
	}
	defer leave()
	if err := s.backfill(ctx, t); err != nil { // what the update removes must have been recorded
		return Place{}, err
	}
	for range reviseAttempts {
		u, err := s.updatable(ctx, t)
		if err != nil {
			return Place{}, err
		}
		var values json.RawMessage
		if u.row.Head != "" {
			if values, err = s.Snapshots.Values(ctx, checkpointer.Key{Thread: t, ID: u.row.Head}); err != nil {
				return Place{}, err
			}
		}
		update, err := revise(ctx, values)
		if err != nil || update == nil {
			return at, err
		}
		d := newDraft(s.Store, at.Key)
		written, err := s.write(ctx, u, d, at, [][]graph.StateUpdate{{*update}}, nil)
		if !errors.Is(err, errMoved) {
			return written, err
		}
	}
	return Place{}, keptChanging(t)
}

// errNoGraph is the cause of errors about threads whose state cannot be updated without a graph.
var errNoGraph = errors.New("no graph to update the state with")

// updating is the input of an update.
type updating struct {
	row   *Thread
	name  string // of the graph
	graph graph.Graph
}

// updatable returns the input of an update of a thread, or why it cannot be updated now.
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

// update computes an update and commits it; errMoved when the thread has changed meanwhile.
func (s *Service) update(ctx context.Context, at Place, steps [][]graph.StateUpdate) (Place, error) {
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
	return s.write(ctx, u, d, at, updates, deleted)
}

// write lets the graph apply updates, and commits what it saves; errMoved when the thread is not any more as u has it. deleted are messages that the client removes.
func (s *Service) write(ctx context.Context, u updating, d *draft, at Place, updates [][]graph.StateUpdate, deleted []string) (Place, error) {
	config, factory := readConfig(u.row, u.name, at.Map)
	key, err := u.graph.Update(ctx, graph.Config{
		Thread: at.Thread, Config: config, Factory: factory, Saver: d, Store: s.Items, CheckpointMap: at.Map, After: u.row.Head,
	}, at.Key, updates)
	if err != nil {
		return Place{}, err
	}
	saves := saver.New[Tx](s.Store, nil, nil)
	saves.Keys = s.Overlay.Key
	saves.NoteDeleted(deleted)
	settled, err := s.commit(ctx, &u, d, saves.Prepare(d.saves))
	if err != nil {
		return Place{}, err
	}
	// The update is committed: the rest must not depend on whether the client still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if !settled {
		if err := s.settle(ctx, at.Thread); err != nil {
			s.Log.WarnContext(ctx, "thread status unknown until its next run or update", "thread_id", at.Thread, "error", err)
		}
	}
	if state, err := s.Snapshots.State(ctx, checkpointer.Key{Thread: at.Thread}, false); err == nil { // otherwise followers see the change with the next read
		s.Changed(state)
	}
	return Place{key, d.mapOf(key)}, nil
}

// commit stores what the graph saved and updates the thread's row, if what the graph read is unchanged; errMoved otherwise. settled is false
// when only the graph can describe the new head; the row then shows the head without its interrupts.
func (s *Service) commit(ctx context.Context, u *updating, d *draft, write func(tx Tx) error) (settled bool, err error) {
	t := u.row.ID
	_, elsewhere := u.graph.(graph.Elsewhere)
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
		if err := write(tx); err != nil {
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

// unchanged checks that a thread has not changed since its update began.
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

// settle updates the row of a thread for a head that only its graph can describe.
func (s *Service) settle(ctx context.Context, t id.Thread) error {
	return SettleAsking(ctx, s.Snapshots, t, func(head *checkpointer.HeadInfo) error {
		return s.Store.Write(ctx, func(tx Tx) error {
			row, err := tx.Thread(t)
			if err != nil {
				return err
			}
			_, err = SettleIn(tx, s.Snapshots, t, Settling{Head: head, Failure: row.Error, Now: s.Now()})
			return err
		})
	})
}

func inFlight(t id.Thread) error {
	return fault.Newf(fault.Conflict, "Thread %s has in-flight runs. Wait for them to end, or cancel them, before updating its state.", t)
}

// readConfig returns the configurations for calling a graph outside of a run. Only graphs created by a function of the configuration get what
// assistants and requests have left on the thread: for others it would appear in the metadata of checkpoints.
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
