package compat

import (
	"bytes"
	"strconv"
	"strings"

	"understudy/bridge"
	"understudy/internal/fault"
)

// Heartbeat is sent on an idle stream so that no proxy closes the connection.
const Heartbeat = ": heartbeat\r\n\r\n"

// HeartbeatHeader says how many milliseconds are between the heartbeats of a stream, where clients count on them.
const HeartbeatHeader = "X-Understudy-Heartbeat"

// Interrupted is the last text of a stream that ends before its run while its client still reads: the client may reconnect with its last
// id.
const Interrupted = ": interrupted, come back with the last id\r\n\r\n"

// AppendFrame appends an event of the classic streams without its id and its closing blank line, so that one frame serves readers
// with and without ids.
//
// Line ends and NUL in the event's name are left out, because data could then inject fields or events. In data, where JSON has line
// ends only between tokens, each line becomes a field, and readers join them.
func AppendFrame(dst []byte, event string, data []byte) []byte {
	dst = append(dst, "event: "...)
	if strings.ContainsAny(event, "\r\n\x00") {
		event = strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(event)
	}
	dst = append(dst, event...)
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(append(append(dst, "\r\ndata: "...), data...), "\r\n"...)
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	for line := range bytes.SplitSeq(bytes.ReplaceAll(data, []byte("\r"), []byte("\n")), []byte("\n")) {
		dst = append(append(dst, "\r\ndata: "...), line...)
	}
	return append(dst, "\r\n"...)
}

// AppendRecord appends a record of a stream as a complete event, with its id when ids is set. A record without a position in a stream has no id: a
// client that reconnected with the zero offset would receive everything from the beginning.
func AppendRecord(dst []byte, r *bridge.Record, ids bool) []byte {
	if r.Frame != nil {
		dst = append(dst, r.Frame...)
	} else {
		dst = AppendFrame(dst, r.Event, r.Data)
	}
	if ids && !r.Ephemeral && r.Offset != (bridge.Offset{}) {
		dst = AppendOffset(append(dst, "id: "...), r.Offset)
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// AppendOffset appends the id of an event: `<milliseconds>-<number>`.
func AppendOffset(dst []byte, o bridge.Offset) []byte {
	dst = strconv.AppendInt(dst, o.MS, 10)
	return strconv.AppendInt(append(dst, '-'), o.N, 10)
}

// parseOffset reads `digits` or `digits-digits`.
func parseOffset(s string) (bridge.Offset, bool) {
	ms, n, two := strings.Cut(s, "-")
	var o bridge.Offset
	var ok bool
	if o.MS, ok = digits(ms); !ok {
		return o, false
	}
	if two {
		o.N, ok = digits(n)
	}
	return o, ok
}

// digits reads a number without a sign. A number too large for an int64 becomes the largest.
func digits(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = 1<<63 - 1
	}
	return n, true
}

// RunOffset reads the Last-Event-ID of a client that joins a run: the record after which to resume. nil: only new records, which is
// also the result for invalid text. -1 is the start.
func RunOffset(lastEventID string) *bridge.Offset {
	if lastEventID == "-1" {
		return &bridge.Offset{}
	}
	if o, ok := parseOffset(lastEventID); ok {
		return &o
	}
	return nil
}

// ThreadOffset reads the Last-Event-ID of a client that follows a thread. A lone dash is the start; invalid text is refused.
func ThreadOffset(lastEventID string) (*bridge.Offset, error) {
	switch lastEventID {
	case "":
		return nil, nil
	case "-":
		return &bridge.Offset{}, nil
	}
	o, ok := parseOffset(lastEventID)
	if !ok {
		return nil, fault.New(fault.Unprocessable, "Invalid last-event-id: must be a valid Redis stream ID")
	}
	return &o, nil
}
