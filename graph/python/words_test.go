package python

import (
	"slices"
	"testing"

	"understudy/graph"
)

// hearer is a saver that hears summaries.
type hearer struct {
	graph.Saver
	words []string
}

func (h *hearer) HearSummary(words string) { h.words = append(h.words, words) }

// Of what graphs write as custom events only summaries are heard, whatever their shape.
func TestHear(t *testing.T) {
	t.Parallel()
	h := &hearer{}
	c := &call{backend: backend{saver: h}, notify: make(chan struct{}, 1)}
	for _, e := range []event{
		{name: "custom", data: []byte(`{"type":"summarization","summary":"one","replaced_count":3}`)},
		{name: "custom", ns: "child:1", data: []byte(`{"type":"summarization","summary":"of a subgraph"}`)},
		{name: "values", data: []byte(`{"type":"summarization","summary":"no event"}`)},
		{name: "custom", data: []byte(`{"type":"summarization","summary":null}`)},
		{name: "custom", data: []byte(`{"type":"summarization","summary":[1]}`)},
		{name: "custom", data: []byte(`["summarization"]`)},
		{name: "custom", data: []byte(`"summarization"`)},
		{name: "custom", data: []byte(`{"type":"progress","about":"summarization","summary":"x"}`)},
		{name: "custom", data: []byte(`{"type":"summarization","summary":"two"}`)},
	} {
		c.push(e)
	}
	if want := []string{"one", "two"}; !slices.Equal(h.words, want) {
		t.Errorf("heard %q, want %q", h.words, want)
	}
	(&call{}).hear([]byte(`{"type":"summarization","summary":"nobody listens"}`))
}
