package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

// commitTime is the length of a transaction before it yields to other writers.
var commitTime = 25 * time.Millisecond

// record records the loaded checkpoints, each after its parent, in several short transactions. of is the thread to which they
// belong.
func (w *walk) record(ctx context.Context, of row, live bool) error {
	asked := map[id.Run]called{}
	for rest := w.order(); ; {
		n := 0
		replaced := false
		err := w.r.store.Record(ctx, func(tx Tx) (err error) {
			began := time.Now()
			n = 0
			row, replaced2, err := threadRow(tx, w.thread, of)
			if err != nil {
				return err
			}
			replaced = replaced2
			for ; n < len(rest) && (n == 0 || time.Since(began) < commitTime); n++ {
				if err := w.one(tx, rest[n], asked); err != nil {
					return fmt.Errorf("checkpoint %s: %w", rest[n].id, err)
				}
			}
			if n == len(rest) && live && !w.dropped && len(w.wanted) == 1 && row.Head != w.wanted[0] {
				row.Head = w.wanted[0]
				return tx.UpdateThread(row)
			}
			return nil
		})
		if replaced {
			w.r.heads.Take(w.thread)
			w.r.overlay.Forget(w.thread)
		}
		var needs needsRun
		if errors.As(err, &needs) {
			if asked[id.Run(needs)], err = w.r.called(ctx, w.call, w.thread, id.Run(needs)); err != nil {
				return err
			}
			w.requests++
			continue
		}
		if err != nil {
			return err
		}
		w.recorded += n
		for _, s := range rest[:n] {
			w.r.exits.Take(exitKey{w.thread, s.run})
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
	}
}

// threadRow returns the row of a thread, creating it if needed. An earlier thread with this id is deleted, with its
// recordings.
func threadRow(tx Tx, t id.Thread, of row) (out *thread.Thread, replaced bool, err error) {
	out, err = tx.Thread(t)
	switch {
	case err == nil && out.CreatedAt.Equal(of.created):
		return out, false, nil
	case err == nil:
		if err := tx.DeleteThread(t); err != nil {
			return nil, false, err
		}
		replaced = true
	case !fault.Is(err, fault.NotFound):
		return nil, false, err
	}
	metadata := &jsonobj.Object{}
	if of.graph != "" {
		metadata.SetText("graph_id", of.graph)
	}
	out = &thread.Thread{
		ID: t, CreatedAt: of.created, UpdatedAt: of.created, StateUpdatedAt: of.created, Status: thread.Idle,
		Metadata: metadata.JSON(), Config: json.RawMessage("{}"),
	}
	return out, replaced, tx.InsertThread(out)
}

// one records a checkpoint, unless it is recorded.
func (w *walk) one(tx Tx, s *snapshot, asked map[id.Run]called) error {
	if l, err := tx.Link(w.thread, s.id); err != nil || l != nil {
		return err
	}
	link := Link{ID: s.id, Parent: s.parent}
	parent := s.parent
	var above *Link
	if parent != "" {
		var err error
		if above, err = tx.Link(w.thread, parent); err != nil {
			return err
		}
		if above == nil {
			// Nor does it become the parent later: if it appears after all, the tree must stay connected.
			parent, link.Parent, link.Incomplete = "", "", true
		} else {
			link.Incomplete = above.Incomplete
		}
	}
	facts := s.facts(w.thread, parent)
	var err error
	if facts.Deleted, err = tx.TakeDeleted(w.thread, s.id); err != nil {
		return err
	}
	rtx := recording{Tx: tx, snapshot: s, asked: asked}
	if p := w.have[s.parent]; p != nil && p.channel == s.channel {
		rtx.start = p.start
	}
	if facts.Parent, err = w.r.between(rtx, facts, above); err != nil {
		return err
	}
	if err := eventstore.Record(rtx, facts); err != nil {
		return err
	}
	return tx.PutLink(w.thread, link)
}

// recording is a transaction that records one checkpoint from a snapshot, which has no rows of its own.
type recording struct {
	Tx
	snapshot *snapshot
	start    []byte // the input's write to the messages channel on its parent; nil when unknown
	asked    map[id.Run]called
}

// needsRun is the error when the input of a run is needed, which cannot be fetched within a transaction.
type needsRun id.Run

func (e needsRun) Error() string { return "what run " + string(e) + " was called with is not known" }

// ChannelValue implements eventstore.Tx. Only the value of the snapshot exists.
func (r recording) ChannelValue(id.Thread, string, string) (string, []byte, error) {
	return "", nil, nil
}

// ClientWrites implements eventstore.Tx. Snapshots do not contain writes of commands; they are known from their runs.
func (r recording) ClientWrites(id.Thread, id.Checkpoint, string) ([]eventstore.Value, error) {
	if r.start == nil {
		return nil, nil
	}
	return []eventstore.Value{{Type: "json", Data: r.start}}, nil
}

// RunInput implements eventstore.Tx.
func (r recording) RunInput(run id.Run) (input, command json.RawMessage, err error) {
	c, ok := r.asked[run]
	if !ok {
		return nil, nil, needsRun(run)
	}
	return c.input, c.command, nil
}

// TranscriptOfVersion implements eventstore.Tx. Versions here are digests of contents, and a thread may return to the same text, so only
// a sibling copy (a fork) counts.
func (r recording) TranscriptOfVersion(t id.Thread, version string) (*eventstore.Row, error) {
	if r.snapshot.source != "fork" {
		return nil, nil
	}
	return r.Sibling(t, r.snapshot.parent, version)
}
