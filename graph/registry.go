package graph

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// Registry has the graphs of a server, by id. It is safe for concurrent use.
type Registry struct {
	mu           sync.RWMutex
	graphs       map[string]Graph
	descriptions map[string]string
}

// NewRegistry makes an empty Registry.
func NewRegistry() *Registry {
	return &Registry{graphs: map[string]Graph{}, descriptions: map[string]string{}}
}

// Add registers a graph under an id. An id in use, and no graph, are errors.
func (r *Registry) Add(id, description string, g Graph) error {
	if id == "" {
		return errors.New("a graph needs an id")
	}
	if v := reflect.ValueOf(g); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("graph %q is nil; check the error of the function that makes it", id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.graphs[id]; taken {
		return fmt.Errorf("graph id %q is taken", id)
	}
	r.graphs[id] = g
	r.descriptions[id] = description
	return nil
}

// Put registers a graph, replacing one with the same id.
func (r *Registry) Put(id, description string, g Graph) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.graphs[id], r.descriptions[id] = g, description
}

// Remove removes a graph. Callers that have it already can still use it.
func (r *Registry) Remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.graphs, id)
	delete(r.descriptions, id)
}

// Graph returns a graph by its id.
func (r *Registry) Graph(id string) (Graph, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g, ok := r.graphs[id]
	return g, ok
}

// Names returns all ids, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.graphs))
}

// Description returns the description of a graph in the configuration; "": none.
func (r *Registry) Description(id string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.descriptions[id]
}
