package graph

import (
	"bytes"
	"encoding/json"
)

// MayCondense reports whether a root `updates` event may be that of a step that condenses messages: it removes some, or holds a summary.
// It is cheap, and mostly false. The shown messages depend on the checkpoint before the step, so such an event waits until the saves
// before it are committed (Event.Hold).
func MayCondense(update []byte) bool {
	return bytes.Contains(update, []byte(`"remove"`)) || bytes.Contains(update, []byte(`"summarization"`))
}

// SummaryWords returns the text of a summary in a root `custom` event, for the next Save; "" when there is none.
func SummaryWords(custom []byte) string {
	if !bytes.Contains(custom, []byte(`"summarization"`)) {
		return ""
	}
	var event struct {
		Type    string
		Summary string
	}
	// Custom events can have any shape.
	if json.Unmarshal(custom, &event) != nil || event.Type != "summarization" {
		return ""
	}
	return event.Summary
}
