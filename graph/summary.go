package graph

import (
	"bytes"
	"encoding/json"
)

// MayCondense reports whether a root `updates` event may be that of a step that condenses messages: it removes some, or holds a summary.
// It is cheap, and mostly false. What becomes of the messages depends on the checkpoint before the step, so such an event waits until the
// saves before it are committed (Event.Hold).
func MayCondense(update []byte) bool {
	return bytes.Contains(update, []byte(`"remove"`)) || bytes.Contains(update, []byte(`"summarization"`))
}

// SummaryWords returns the words of a summary that a root `custom` event holds, for the next Save; "" when it holds none.
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
