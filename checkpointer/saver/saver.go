// Package saver stores and loads the checkpoints of graphs for packages run and thread: with each checkpoint, in one transaction, its
// description and the message events that it adds to the event store.
package saver

import (
	"context"
	"fmt"
	"sync"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
)

// Tx is the part of a transaction that saves a checkpoint.
type Tx interface {
	checkpointer.Tx
	eventstore.Tx
}

// Store is a storage whose transactions can save checkpoints.
type Store[T Tx] interface {
	checkpointer.Reader
	Write(ctx context.Context, fn func(T) error) error
}

// Saver stores and loads the checkpoints of a graph. A checkpoint, its description and the message events derived from it are one
// transaction.
type Saver[T Tx] struct {
	// Keys returns which channels hold messages. Set it before use.
	Keys eventstore.Keys
	// Calls returns the model call that made a message. nil: none is known. Set it before use.
	Calls func(message string) eventstore.Call

	store Store[T]
	fence func(tx T) error
	saved func(tx T, p *checkpointer.Put) error

	mu      sync.Mutex
	deleted []string // see NoteDeleted
	words   string   // text of the last summary that the graph reported
}

// NoteDeleted records, with the next root checkpoint, that a client deleted these condensed messages, which the graph no longer has.
func (s *Saver[T]) NoteDeleted(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, ids...)
}

// facts returns the facts of the root checkpoints of saves, in addition to their contents. It reads them before the transaction that
// records the saves. The texts of a summary stay until others come: which step condenses is known only when it is recorded,
// and a graph that reports texts reports them each time.
func (s *Saver[T]) facts(saves []graph.Save) []eventstore.Facts {
	out := make([]eventstore.Facts, len(saves))
	for i := range saves {
		if p := saves[i].Put; p != nil && p.NS == "" {
			out[i] = s.Keys.FactsOf(p)
			out[i].Calls = s.Calls
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range saves {
		if saves[i].Words != "" {
			s.words = saves[i].Words
		}
		if p := saves[i].Put; p != nil && p.NS == "" {
			out[i].Deleted, out[i].Words = s.deleted, s.words // if the transaction fails, the whole run or update fails
			s.deleted = nil
		}
	}
	return out
}

// New returns a Saver. fence runs first in every writing transaction, and its error aborts it; saved runs after a checkpoint was
// put, in the same transaction. Both may be nil.
func New[T Tx](store Store[T], fence func(tx T) error, saved func(tx T, p *checkpointer.Put) error) *Saver[T] {
	return &Saver[T]{store: store, fence: fence, saved: saved}
}

var _ graph.Saver = (*Saver[Tx])(nil)

// Load returns a checkpoint; nil when there is none.
func (s *Saver[T]) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	return s.store.LoadCheckpoint(ctx, k)
}

// List returns checkpoints, newest first.
func (s *Saver[T]) List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	return s.store.ListCheckpoints(ctx, q)
}

// Save stores checkpoints, the data derived from them, and writes, in one transaction.
func (s *Saver[T]) Save(ctx context.Context, saves ...graph.Save) error {
	return s.SaveAlso(ctx, func(T) error { return nil }, saves...)
}

// SaveAlso is Save that calls also in its transaction, after the fence. A transaction that is repeated calls it again.
func (s *Saver[T]) SaveAlso(ctx context.Context, also func(tx T) error, saves ...graph.Save) error {
	write := s.Prepare(saves)
	var puts []*checkpointer.Put
	for i := range saves {
		if p := saves[i].Put; p != nil {
			puts = append(puts, p)
		}
	}
	return s.store.Write(ctx, func(tx T) error {
		if e, ok := any(tx).(checkpointer.Expecting); ok {
			e.ExpectPuts(puts...)
		}
		if s.fence != nil {
			if err := s.fence(tx); err != nil {
				return err
			}
		}
		if err := also(tx); err != nil {
			return err
		}
		return write(tx)
	})
}

// Prepare returns a function that writes saves within a transaction of the caller, without the fence. A transaction that is repeated calls it
// again.
func (s *Saver[T]) Prepare(saves []graph.Save) func(tx T) error {
	facts := s.facts(saves)
	return func(tx T) error { return s.write(tx, saves, facts) }
}

func (s *Saver[T]) write(tx T, saves []graph.Save, facts []eventstore.Facts) error {
	for i := range saves {
		sv := &saves[i]
		if p := sv.Put; p != nil {
			if err := s.put(tx, p, facts[i]); err != nil {
				return fmt.Errorf("save checkpoint %s of thread %s: %w", p.ID, p.Thread, err)
			}
		} else if err := tx.PutWrites(sv.At, sv.Writes); err != nil {
			return fmt.Errorf("save writes on checkpoint %s of thread %s: %w", sv.At.ID, sv.At.Thread, err)
		}
	}
	return nil
}

func (s *Saver[T]) put(tx T, p *checkpointer.Put, facts eventstore.Facts) error {
	if err := tx.PutCheckpoint(p); err != nil {
		return err
	}
	if p.NS == "" {
		if err := eventstore.Record(tx, facts); err != nil {
			return fmt.Errorf("record messages: %w", err)
		}
	}
	if s.saved != nil {
		return s.saved(tx, p)
	}
	return nil
}
