package mcp

import (
	"encoding/json"
	"strconv"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
)

// ProgressToken returns by what the client knows notifications of the progress of a request; nil when it wants none.
func (m Message) ProgressToken() json.RawMessage {
	if token := m.Params.Get("_meta.progressToken"); isID(token) {
		return json.RawMessage(token.Raw)
	}
	return nil
}

// Cancelled returns the id of the request that a notification cancels; nil when it cancels none.
func (m Message) Cancelled() json.RawMessage {
	if call := m.Params.Get("requestId"); m.Method == "notifications/cancelled" && isID(call) {
		return json.RawMessage(call.Raw)
	}
	return nil
}

// HasID reports whether the id of a request is one by which it can be cancelled.
func (m Message) HasID() bool { return isID(gjson.ParseBytes(m.ID)) }

// maxProgress bounds the text of a notification, in bytes.
const maxProgress = 1000

// Progress makes the notification number n, from 1 on, of the progress of a request.
func Progress(token json.RawMessage, n int, text string) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`), token...)
	b = strconv.AppendInt(append(b, `,"progress":`...), int64(n), 10)
	return append(jsonobj.AppendText(append(b, `,"message":`...), text), "}}"...)
}

// ProgressOf returns what a record of a run says of its progress: which nodes have written an update, or what a node writes to the stream `custom`. "": nothing.
func ProgressOf(event string, data []byte) (text string) {
	v := gjson.ParseBytes(data)
	switch event {
	case "updates":
		v.ForEach(func(node, _ gjson.Result) bool {
			if node.Str != "__interrupt__" && node.Str != "__metadata__" {
				if text != "" {
					text += ", "
				}
				text += node.Str
			}
			return len(text) < maxProgress
		})
	case "custom":
		if text = v.String(); v.IsObject() {
			for _, key := range []string{"message", "status", "text"} {
				if said := v.Get(key); said.Type == gjson.String && said.Str != "" {
					text = said.Str
					break
				}
			}
		}
	}
	return cut(text)
}

// cut shortens a text to maxProgress bytes.
func cut(text string) string {
	if len(text) <= maxProgress {
		return text
	}
	end := maxProgress
	for end > 0 && text[end]&0xC0 == 0x80 { // not inside a character
		end--
	}
	return text[:end] + "…"
}

// ListChanged is the notification that there are other tools than before.
const ListChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// Interrupts returns the interrupts that a run stopped at, [{id, value}], from its values; nil when there are none.
func Interrupts(values json.RawMessage) json.RawMessage {
	if v := gjson.GetBytes(values, "__interrupt__"); v.IsArray() && v.Get("0.id").Type == gjson.String {
		return json.RawMessage(v.Raw)
	}
	return nil
}
