// Package spantest collects the spans that graphs report, for tests.
package spantest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"understudy/graph"
)

// Spans are the spans of one run.
type Spans struct {
	t      testing.TB
	mu     sync.Mutex
	begins map[uint64]graph.SpanBegin
	ends   map[uint64]graph.SpanEnd
}

// Of collects spans, with as many bytes of content.
func Of(t testing.TB, content int) (*Spans, *graph.Tracing) {
	s := &Spans{t: t, begins: map[uint64]graph.SpanBegin{}, ends: map[uint64]graph.SpanEnd{}}
	return s, &graph.Tracing{Begin: s.begin, End: s.end, Content: content}
}

func (s *Spans) begin(b graph.SpanBegin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.begins[b.ID]; twice || b.ID == 0 || b.At.IsZero() || b.Name == "" {
		s.t.Errorf("span begins: %+v", b)
	}
	s.begins[b.ID] = b
}

func (s *Spans) end(e graph.SpanEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.ends[e.ID]; twice || e.At.IsZero() || e.Status == "" || (e.Error != nil) != (e.Status == graph.SpanError) && e.Output == nil {
		s.t.Errorf("span ends: %+v", e)
	}
	s.ends[e.ID] = e
}

// Lines returns the spans as an indented tree, in the order of names. Each is its kind, name, status and what show adds to it.
func (s *Spans) Lines(show func(graph.SpanBegin, graph.SpanEnd) string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tree func(parent uint64) []string
	tree = func(parent uint64) (out []string) {
		var subtrees []string
		for ident, b := range s.begins {
			if b.Parent != parent {
				continue
			}
			e, ended := s.ends[ident]
			if !ended {
				e.Status = graph.SpanRunning
			} else if e.At.Before(b.At) || !e.First.IsZero() && (e.First.Before(b.At) || e.First.After(e.At)) {
				s.t.Errorf("times of %+v and %+v", b, e)
			}
			lines := []string{strings.TrimSpace(fmt.Sprintf("%s %s %s %s", b.Kind, b.Name, e.Status, show(b, e)))}
			for _, line := range tree(ident) {
				lines = append(lines, "  "+line)
			}
			subtrees = append(subtrees, strings.Join(lines, "\n"))
		}
		slices.Sort(subtrees)
		for _, text := range subtrees {
			out = append(out, strings.Split(text, "\n")...)
		}
		return out
	}
	return tree(0)
}

// Text returns content as text; "" for none.
func Text(c *graph.SpanContent) string {
	if c == nil {
		return ""
	}
	if !json.Valid(c.JSON) {
		return "invalid: " + string(c.JSON)
	}
	if c.Cut {
		return string(c.JSON) + "…"
	}
	return string(c.JSON)
}
