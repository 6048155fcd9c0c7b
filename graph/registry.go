package graph

import (
	"fmt"
	"maps"
	"slices"
)

// Registry holds the graphs that a server serves, by id. It is filled before the server starts, and only read then.
type Registry struct {
	graphs       map[string]Graph
	descriptions map[string]string
}

// NewRegistry makes an empty Registry.
func NewRegistry() *Registry {
	return &Registry{graphs: map[string]Graph{}, descriptions: map[string]string{}}
}

// Add registers a graph under an id. An id that is taken is an error.
func (r *Registry) Add(id, description string, g Graph) error {
	if id == "" {
		return fmt.Errorf("a graph needs an id")
	}
	if _, taken := r.graphs[id]; taken {
		return fmt.Errorf("graph id %q is taken", id)
	}
	r.graphs[id] = g
	r.descriptions[id] = description
	return nil
}

// Graph gives a graph by its id.
func (r *Registry) Graph(id string) (Graph, bool) {
	g, ok := r.graphs[id]
	return g, ok
}

// Names gives all ids, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.graphs)) }

// Description is what the configuration says of a graph; "" nothing.
func (r *Registry) Description(id string) string { return r.descriptions[id] }
