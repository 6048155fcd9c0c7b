package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/eventstore"
	"understudy/id"
	"understudy/run"
	"understudy/thread/partial"
)

// Tokens returns what collects the answers that an execution of a run streams; nil when they are not kept.
func (s *Settler) Tokens(r *run.Run) *partial.Tokens {
	if r.Kwargs.Temporary || !s.Overlay.KeepsPartial(r.Graph) {
		return nil
	}
	return partial.NewTokens()
}

// mayKeep reports whether answers of a run are kept that it streamed and did not save.
func (s *Settler) mayKeep(r *run.Run) bool {
	return !r.Kwargs.Temporary && r.Status != run.Success && !r.StartedAt.IsZero() && s.Overlay.KeepsPartial(r.Graph)
}

// recorded reports whether the kept records of a run may have answers.
func recorded(r *run.Run) bool {
	return r.Kwargs.Resumable && slices.ContainsFunc(r.Kwargs.Modes, func(mode string) bool { return partial.Wants(mode) })
}

// KeepPartial records the answers that a run streamed and did not save, in the transaction that ends it, and reports whether there were any.
// streamed is what its last attempt streamed in this process; when that is nothing, they are those of the records of a resumable run. They are
// shown with the last checkpoint that the run saved. A run that saved none shows them where it began. An answer whose question was not saved
// is not kept.
func (s *Settler) KeepPartial(tx run.Tx, r *run.Run, streamed *partial.Tokens, read *Readings, now time.Time) (kept bool, err error) {
	if !s.mayKeep(r) {
		return false, nil
	}
	if streamed.Empty() {
		if !recorded(r) {
			return false, nil
		}
		if streamed, err = read.of(tx, r); err != nil || streamed.Empty() {
			return false, err
		}
	}
	head, err := tx.Head(r.Thread)
	if err != nil || head == nil {
		return false, err
	}
	began := r.Kwargs.CheckpointID == "" || r.Kwargs.CheckpointNS != "" || r.Kwargs.CheckpointID == head.ID
	if head.Run != r.ID && (hasInput(r) || !began) {
		return false, nil
	}
	step := int(gjson.GetBytes(head.Metadata, "step").Int())
	// The input is in the list of messages one step after the checkpoint that holds it. That step may not be saved when later ones stream.
	questioned := head.Run != r.ID || gjson.GetBytes(head.Metadata, "source").Str != "input"
	var answers []eventstore.Partial
	for _, m := range streamed.Unsaved(step, questioned) {
		answers = append(answers, eventstore.Partial{ID: m.ID, Message: m.JSON, Step: m.Step, Truncated: m.Truncated})
	}
	if kept, err = eventstore.RecordPartial(tx, r.Thread, head.ID, r.ID, now, answers); err != nil {
		return false, fmt.Errorf("keep what run %s streamed: %w", r.ID, err)
	}
	return kept, nil
}

func hasInput(r *run.Run) bool { return len(r.Kwargs.Input) > 0 && string(r.Kwargs.Input) != "null" }

// Readings are what runs streamed, as their records have it. They may be many, so they are read before the transaction that needs them: it
// reads only what came since. All methods are for one goroutine.
type Readings struct {
	byRun   map[id.Run]*reading
	missing []*run.Run // that a transaction needs
}

// reading is what the last attempt that streamed something of a run sent, up to an offset.
type reading struct {
	streamed *partial.Tokens
	began    bool // another attempt has begun
	last     bridge.Offset
}

func (g *reading) add(rec *bridge.Record) error {
	g.last = rec.Offset
	switch {
	case rec.Event == "metadata":
		g.began = true
	case partial.Wants(rec.Event) && !rec.Summarizer:
		if g.began {
			g.streamed.Reset()
			g.began = false
		}
		g.streamed.Add(rec.Event, rec.Data)
	}
	return nil
}

// errUnread: a transaction needs readings that are not there. It is undone, and tried again with them.
var errUnread = errors.New("what runs streamed has not been read")

// of returns what a run streamed. When that was not read it returns nil, and the transaction has to end with err.
func (g *Readings) of(tx run.Tx, r *run.Run) (*partial.Tokens, error) {
	known := g.byRun[r.ID]
	if known == nil {
		g.missing = append(g.missing, r)
		return nil, nil
	}
	// A transaction that is run again continues behind what it has read: others committed that.
	if err := tx.RunRecords(r.Thread, r.ID, known.last, known.add); err != nil {
		return nil, fmt.Errorf("what run %s streamed: %w", r.ID, err)
	}
	return known.streamed, nil
}

func (g *Readings) err() error {
	if len(g.missing) > 0 {
		return errUnread
	}
	return nil
}

// read reads what a run streamed.
func (s *Settler) read(ctx context.Context, g *Readings, r *run.Run) error {
	one := &reading{streamed: partial.NewTokens()}
	if err := s.Store.RunRecords(ctx, r.Thread, r.ID, bridge.Offset{}, one.add); err != nil {
		return fmt.Errorf("what run %s streamed: %w", r.ID, err)
	}
	one.streamed.Decode()
	if g.byRun == nil {
		g.byRun = map[id.Run]*reading{}
	}
	g.byRun[r.ID] = one
	return nil
}

// Prepare does before the transaction that ends a run what takes time: it decodes what the last attempt streamed here, or reads what was streamed elsewhere.
func (s *Settler) Prepare(ctx context.Context, g *Readings, r *run.Run, streamed *partial.Tokens) error {
	streamed.Decode()
	if !streamed.Empty() || !recorded(r) || !s.mayKeep(r) {
		return nil
	}
	return s.read(ctx, g, r)
}

// Write calls fn in a transaction, again with the readings that it asked for: what runs streamed, if it is to be kept.
func (s *Settler) Write(ctx context.Context, fn func(run.Tx, *Readings) error) error {
	return s.WriteWith(ctx, &Readings{}, fn)
}

// WriteWith is Write with what was read before.
func (s *Settler) WriteWith(ctx context.Context, g *Readings, fn func(run.Tx, *Readings) error) error {
	for {
		err := s.Store.Write(ctx, func(tx run.Tx) error {
			g.missing = nil
			if err := fn(tx, g); err != nil {
				return err
			}
			return g.err()
		})
		if !errors.Is(err, errUnread) {
			return err
		}
		for _, r := range g.missing {
			if err := s.read(ctx, g, r); err != nil {
				return err
			}
		}
	}
}

// dropPartial takes the partial answers of a run that is rolled back out of transcripts of checkpoints that stay: the one it began at, and
// the head.
func dropPartial(tx run.Tx, r *run.Run) error {
	answers := map[eventstore.Seq]bool{}
	at := map[id.Checkpoint]bool{}
	err := tx.RunMessages(r.Thread, r.ID, func(e *eventstore.Event) error {
		if metadata := gjson.ParseBytes(e.Metadata); metadata.Get("partial").Bool() {
			answers[e.Seq] = true
			at[id.Checkpoint(strings.Clone(metadata.Get("checkpoint_id").String()))] = true
		}
		return nil
	})
	if err != nil || len(answers) == 0 {
		return err
	}
	head, err := tx.Head(r.Thread)
	if err != nil {
		return err
	}
	if head != nil {
		at[head.ID] = true
	}
	for c := range at {
		if err := eventstore.DropPartial(tx, r.Thread, c, answers); err != nil {
			return fmt.Errorf("drop what run %s streamed: %w", r.ID, err)
		}
	}
	return nil
}
