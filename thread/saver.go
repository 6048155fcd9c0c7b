package thread

import (
	"context"
	"fmt"
	"sync"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
)

// SaverTx is what saving a checkpoint needs of a transaction.
type SaverTx interface {
	checkpointer.Tx
	eventstore.Tx
}

// SaverStore is a storage whose transactions can save checkpoints.
type SaverStore[T SaverTx] interface {
	checkpointer.Reader
	Write(ctx context.Context, fn func(T) error) error
}

// Saver gives a graph its checkpoints. Each Put is one transaction: the checkpoint, its description, and the message events that follow
// from it.
type Saver[T SaverTx] struct {
	// Keys tell which channels hold messages. Set it before use.
	Keys eventstore.Keys

	store SaverStore[T]
	fence func(tx T) error
	saved func(tx T, p *checkpointer.Put) error

	mu      sync.Mutex
	deleted []string // see NoteDeleted
	words   string   // see HearSummary
}

// HearSummary has the next step that condenses note these words. They stay until others come: which step condenses is known only when it
// is recorded, and a graph that says so says it each time.
func (s *Saver[T]) HearSummary(words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = words
}

// NoteDeleted has the next root checkpoint note that a client deleted these condensed messages, which the graph does not know any more.
func (s *Saver[T]) NoteDeleted(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, ids...)
}

// noted gives what is to be noted with a root checkpoint.
func (s *Saver[T]) noted() (deleted []string, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deleted = s.deleted
	s.deleted = nil
	return deleted, s.words
}

// NewSaver makes a Saver. fence runs first in every writing transaction and refuses it with an error; saved runs after a checkpoint was
// put, in its transaction. Both may be nil.
func NewSaver[T SaverTx](store SaverStore[T], fence func(tx T) error, saved func(tx T, p *checkpointer.Put) error) *Saver[T] {
	return &Saver[T]{store: store, fence: fence, saved: saved}
}

var _ graph.Saver = (*Saver[Tx])(nil)

// Load gives a checkpoint; nil when there is none.
func (s *Saver[T]) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	return s.store.LoadCheckpoint(ctx, k)
}

// List gives checkpoints, newest first.
func (s *Saver[T]) List(ctx context.Context, q checkpointer.List) ([]*checkpointer.Tuple, error) {
	return s.store.ListCheckpoints(ctx, q)
}

// Put saves a checkpoint with all that follows from it.
func (s *Saver[T]) Put(ctx context.Context, p *checkpointer.Put) error {
	var deleted []string
	var words string
	if p.NS == "" {
		deleted, words = s.noted() // should the transaction fail, what is being done here fails with it
	}
	err := s.store.Write(ctx, func(tx T) error {
		if s.fence != nil {
			if err := s.fence(tx); err != nil {
				return err
			}
		}
		if err := tx.PutCheckpoint(p); err != nil {
			return err
		}
		if p.NS == "" {
			facts := s.Keys.FactsOf(p)
			facts.Deleted, facts.Words = deleted, words
			if err := eventstore.Record(tx, facts); err != nil {
				return fmt.Errorf("record messages: %w", err)
			}
		}
		if s.saved != nil {
			return s.saved(tx, p)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save checkpoint %s of thread %s: %w", p.ID, p.Thread, err)
	}
	return nil
}

// PutWrites saves pending writes.
func (s *Saver[T]) PutWrites(ctx context.Context, k checkpointer.Key, writes []checkpointer.Write) error {
	err := s.store.Write(ctx, func(tx T) error {
		if s.fence != nil {
			if err := s.fence(tx); err != nil {
				return err
			}
		}
		return tx.PutWrites(k, writes)
	})
	if err != nil {
		return fmt.Errorf("save writes on checkpoint %s of thread %s: %w", k.ID, k.Thread, err)
	}
	return nil
}
