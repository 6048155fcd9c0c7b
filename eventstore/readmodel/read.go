package readmodel

import (
	"context"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
)

// Reader reads read models. Only threads in reach of the context exist; the error for another one is fault.NotFound.
type Reader interface {
	Reachable(ctx context.Context, t id.Thread) error
	// Branches returns the lineage of a thread, and its forks above one in order of ID.
	Branches(ctx context.Context, t, after id.Thread, limit int) (*Lineage, error)
	// Message returns where the message with a name is, without its ID; nil: no event that counts has it.
	Message(ctx context.Context, t id.Thread, name string) (*Message, error)
	// Recent returns rows of Timeline or Heads before a place, newest first, and where the next page begins; the zero Place: there is none. A page may be short.
	Recent(ctx context.Context, model string, before Place, limit int) (page []Row, next Place, err error)
}

// Place is a position in the order of Recent.
type Place struct {
	At     int64
	Thread id.Thread
	Seq    eventstore.Seq
}

// Place returns the position of a row.
func (r *Row) Place() Place { return Place{r.At, r.Thread, r.Seq} }

// Lineage says what a thread is a fork of, and what are forks of it.
type Lineage struct {
	Ancestors []Row     // the source of the thread is the last one; they may be gone
	Forks     []Row     // of the thread itself, not of its forks
	Next      id.Thread // the after of the next page; "": there is none
}

// Message is where a message is.
type Message struct {
	ID    string
	First eventstore.Seq // its place in the transcript
	Seq   eventstore.Seq // of the event that has its content
	Run   id.Run
	At    int64
	// Checkpoint saved the content; "" when that is not known, or it is gone. Parent is the one before.
	Checkpoint, Parent id.Checkpoint
}

// Service reads read models. Of one thread they are brought up to date first; lists may be a few seconds behind.
type Service struct {
	Store interface {
		Store
		Reader
	}
}

// Branches is Reader.Branches.
func (s *Service) Branches(ctx context.Context, t, after id.Thread, limit int) (*Lineage, error) {
	if err := s.prepare(ctx, t); err != nil {
		return nil, err
	}
	return s.Store.Branches(ctx, t, after, limit)
}

// Message is Reader.Message with the error fault.NotFound for an unknown message.
func (s *Service) Message(ctx context.Context, t id.Thread, message string) (*Message, error) {
	if err := s.prepare(ctx, t); err != nil {
		return nil, err
	}
	name := messageName(message)
	m, err := s.Store.Message(ctx, t, name)
	if err == nil && m == nil && name != message {
		m, err = s.Store.Message(ctx, t, message) // its rows were written before there were names of long IDs
	}
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fault.New(fault.NotFound, "The thread has no such message")
	}
	m.ID = message
	return m, nil
}

// Recent is Reader.Recent.
func (s *Service) Recent(ctx context.Context, model string, before Place, limit int) ([]Row, Place, error) {
	return s.Store.Recent(ctx, model, before, limit)
}

func (s *Service) prepare(ctx context.Context, t id.Thread) error {
	err := s.Store.Reachable(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return fault.Newf(fault.NotFound, "Thread with ID %s not found", t)
	}
	if err != nil {
		return err
	}
	return catchUp(ctx, s.Store, t)
}
