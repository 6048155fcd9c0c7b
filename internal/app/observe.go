package app

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
)

// followers pass on which logs changed to all that follow them.
type followers struct {
	mu   sync.RWMutex
	list []*eventstore.Changes
}

// add returns the changes of another follower.
func (f *followers) add() *eventstore.Changes {
	c := eventstore.NewChanges()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, c)
	return c
}

func (f *followers) changed(threads []id.Thread) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range f.list {
		c.Add(threads)
	}
}

var observerName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Observe adds an observer, which gets what happens from Run on. Call it before Run.
func (s *Server) Observe(name string, fn func(context.Context, follow.Observation) error) error {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	switch {
	case !observerName.MatchString(name):
		return fmt.Errorf("observer %q: a name has 1 to 64 letters, digits, points, hyphens and underscores", name)
	case fn == nil:
		return fmt.Errorf("observer %s: the function is nil", name)
	case s.ran:
		return errors.New("Observe was called after Run")
	case slices.Contains(s.observing, name):
		return fmt.Errorf("observer %s: the name is taken", name)
	}
	s.observing = append(s.observing, name)
	s.observers = append(s.observers, follow.NewObserver(name, s.rows, s.followers.add(), fn, s.log))
	return nil
}
