package pregel

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"understudy/graph"
)

// mostUnsaved is how many bytes may wait to be saved before the tasks of a run wait.
const mostUnsaved = 4 << 20

// saves writes the checkpoints of a run in order and batches those that wait. The run waits for it at its end and, with durability sync,
// before each step. The first failure is final: nothing is saved after it, and the run is cancelled.
type saves struct {
	saver graph.Saver
	ctx   context.Context //nolint:containedctx // of the run: saving what a cancelled run had done is wanted, so it does not end with it
	fail  func(error)

	mu      sync.Mutex
	waiting []graph.Save
	size    int
	held    []hold
	busy    bool
	err     error
	words   string
	idle    chan struct{} // closed when nothing waits; nil without waiters
}

// hold releases events once the saves before them are committed.
type hold struct {
	after int // how many of the waiting saves
	ch    chan struct{}
}

func newSaves(ctx context.Context, saver graph.Saver, fail func(error)) *saves {
	return &saves{saver: saver, ctx: context.WithoutCancel(ctx), fail: fail}
}

// add queues a save. With wantHold it returns a channel that is closed after its commit, or after the run's saves have
// failed.
func (s *saves) add(sv graph.Save, size int, wantHold bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv.Words, s.words = s.words, ""
	s.waiting = append(s.waiting, sv)
	s.size += size
	var ch chan struct{}
	if wantHold {
		ch = make(chan struct{})
		s.held = append(s.held, hold{len(s.waiting), ch})
	}
	s.start()
	return ch
}

// last returns a channel that is closed when all saves queued now are committed; nil when none are queued.
func (s *saves) last() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.busy {
		return nil
	}
	ch := make(chan struct{})
	s.held = append(s.held, hold{len(s.waiting), ch})
	return ch
}

func (s *saves) hear(words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words = words
}

// start starts a goroutine that saves until the queue is empty. The run waits for it before it ends. The caller holds
// s.mu.
func (s *saves) start() {
	if !s.busy {
		s.busy = true
		go s.work()
	}
}

func (s *saves) work() {
	var batch []graph.Save
	var held []hold
	for {
		s.mu.Lock()
		for _, h := range held {
			close(h.ch)
		}
		batch, s.waiting = s.waiting, batch[:0:0]
		held, s.held = s.held, nil
		s.size = 0
		err := s.err
		if len(batch) == 0 {
			for _, h := range held {
				close(h.ch)
			}
			s.busy = false
			if s.idle != nil {
				close(s.idle)
				s.idle = nil
			}
			s.mu.Unlock()
			return
		}
		if s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
		s.mu.Unlock()
		if err == nil {
			if err = s.save(batch); err != nil {
				s.mu.Lock()
				s.err = err
				s.mu.Unlock()
				s.fail(err)
			}
		}
	}
}

func (s *saves) save(batch []graph.Save) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic while saving: %v", r)
		}
	}()
	return s.saver.Save(s.ctx, batch...)
}

// wait waits until the queue is empty, and returns the first failure.
func (s *saves) wait() error {
	for {
		s.mu.Lock()
		if !s.busy {
			err := s.err
			s.mu.Unlock()
			return err
		}
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		<-idle
	}
}

// throttle waits while more than mostUnsaved bytes are queued.
func (s *saves) throttle(ctx context.Context) {
	for {
		s.mu.Lock()
		if s.size <= mostUnsaved {
			s.mu.Unlock()
			return
		}
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// storageError is a failure to save or read checkpoints. In this process its text and chain say why; on the wire it is the server's failure: see failure.
type storageError struct {
	what string
	err  error
}

func (e *storageError) Error() string { return e.what + ": " + e.err.Error() }
func (e *storageError) Unwrap() error { return e.err }

// ErrorName is the name in events and checkpoints, which do not show the text.
func (e *storageError) ErrorName() string { return "ServerError" }

// savingFailed returns the error of a run whose checkpoints could not be saved.
func (x *exec) savingFailed(err error) error {
	if errors.Is(err, graph.ErrFenced) {
		return graph.ErrFenced
	}
	return &storageError{fmt.Sprintf("save checkpoints of thread %s", x.thread), err}
}
