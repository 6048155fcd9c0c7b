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

// commitTime is after how long a transaction gives way to other writers.
var commitTime = 25 * time.Millisecond

// record records what is here, each checkpoint after its parent, in as many transactions as it takes for each to be short. of is the
// thread that all of it is of.
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
			w.r.heads.drop(w.thread)
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
			w.r.exits.drop(exitKey{w.thread, s.run})
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
	}
}

// threadRow returns the row of a thread, which it makes. Another thread of this id goes, with all that was recorded of it.
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
			// Nor is it the parent from now on: should it come after all, the tree stays one.
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

// recording is a transaction in which one checkpoint is recorded that came as a snapshot: there are no rows of it.
type recording struct {
	Tx
	snapshot *snapshot
	start    []byte // what input wrote to the channel of the messages on its parent; nil when it is not known
	asked    map[id.Run]called
}

// needsRun says that it must be known what a run was called with. A transaction cannot ask for it.
type needsRun id.Run

func (e needsRun) Error() string { return "what run " + string(e) + " was called with is not known" }

// ChannelValue is eventstore.Tx.ChannelValue: there are no values but that of the snapshot.
func (r recording) ChannelValue(id.Thread, string, string) (string, []byte, error) {
	return "", nil, nil
}

// ClientWrites is eventstore.Tx.ClientWrites. What commands wrote no snapshot shows: it is known of their runs.
func (r recording) ClientWrites(id.Thread, id.Checkpoint, string) ([]eventstore.Value, error) {
	if r.start == nil {
		return nil, nil
	}
	return []eventstore.Value{{Type: "json", Data: r.start}}, nil
}

// RunInput is eventstore.Tx.RunInput.
func (r recording) RunInput(run id.Run) (input, command json.RawMessage, err error) {
	c, ok := r.asked[run]
	if !ok {
		return nil, nil, needsRun(run)
	}
	return c.input, c.command, nil
}

// TranscriptOfVersion is eventstore.Tx.TranscriptOfVersion. Versions here are of contents, and a thread may come back to the same words:
// only a fork, which copies a checkpoint beside it, is what that is.
func (r recording) TranscriptOfVersion(t id.Thread, version string) (*eventstore.Row, error) {
	if r.snapshot.source != "fork" {
		return nil, nil
	}
	return r.Sibling(t, r.snapshot.parent, version)
}
