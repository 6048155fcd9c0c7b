package python

import (
	"slices"
	"testing"
)

// Of what graphs write as custom events only summaries are heard, whatever their shape.
func TestHear(t *testing.T) {
	t.Parallel()
	c := &call{notify: make(chan struct{}, 1)}
	var heard []string
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
		if c.words != "" {
			heard = append(heard, c.words)
			c.words = ""
		}
	}
	if want := []string{"one", "two"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}
