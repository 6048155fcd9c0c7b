package graph

import (
	"bytes"
	"encoding/json"
)

// SummaryWords gives the words of a summary that a root `custom` event holds, for the next Save; "" when it holds none.
func SummaryWords(custom []byte) string {
	if !bytes.Contains(custom, []byte(`"summarization"`)) {
		return ""
	}
	var event struct {
		Type    string
		Summary string
	}
	// Custom events are what their graph likes: most are of other shapes.
	if json.Unmarshal(custom, &event) != nil || event.Type != "summarization" {
		return ""
	}
	return event.Summary
}
