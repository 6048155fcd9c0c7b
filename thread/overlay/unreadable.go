package overlay

import (
	"bytes"
	"encoding/json"
	"strings"

	"understudy/eventstore"
)

// A checkpoint shows null for what cannot be read. A transcript names it, with a message that has unreadableMark.

var (
	nullFirst, nullNext = []byte(`[null`), []byte(`,null`)
	unreadableMark      = []byte(`"additional_kwargs":{"unreadable":`)
)

// lost reports whether a checkpoint's messages cannot be read at all: then the transcript, which says so at its end, is all there is.
func lost(shown []*entry, messages []byte) bool {
	return len(shown) > 0 && string(messages) == "null" && strings.HasPrefix(shown[len(shown)-1].id, eventstore.UnreadablePrefix)
}

// mayLack reports whether values may have a null in a list. It is cheap: most have none.
func mayLack(values []byte) bool {
	return bytes.Contains(values, nullFirst) || bytes.Contains(values, nullNext)
}

// named returns the items with what stands in the list in place of those that are null.
func named(items []json.RawMessage, list []*entry) []json.RawMessage {
	for i, item := range items {
		if i < len(list) && string(item) == "null" && bytes.Contains(list[i].text, unreadableMark) {
			items[i] = list[i].text
		}
	}
	return items
}
