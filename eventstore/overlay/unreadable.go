package overlay

import (
	"bytes"
	"encoding/json"
	"strings"

	"understudy/eventstore"
)

// A checkpoint shows null for values that cannot be read. A transcript shows their name, in a message with unreadableMark.

var (
	nullFirst, nullNext = []byte(`[null`), []byte(`,null`)
	unreadableMark      = []byte(`"additional_kwargs":{"unreadable":`)
)

// lost reports whether a checkpoint's messages cannot be read at all: then only the transcript, which says so at its end, can be
// shown.
func lost(shown []*entry, messages []byte) bool {
	return len(shown) > 0 && string(messages) == "null" && strings.HasPrefix(shown[len(shown)-1].id, eventstore.UnreadablePrefix)
}

// mayLack reports whether values may have a null in a list. It is cheap: most have none.
func mayLack(values []byte) bool {
	return bytes.Contains(values, nullFirst) || bytes.Contains(values, nullNext)
}

// named returns the items with nulls replaced by the entries of the list.
func named(items []json.RawMessage, list []*entry) []json.RawMessage {
	for i, item := range items {
		if i < len(list) && string(item) == "null" && bytes.Contains(list[i].text, unreadableMark) {
			items[i] = list[i].text
		}
	}
	return items
}
