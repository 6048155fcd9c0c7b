package compat

import (
	"bytes"
	"strconv"
	"strings"

	"understudy/bridge"
	"understudy/internal/fault"
)

// Heartbeat is what a quiet stream sends so that nobody on the way takes it for dead.
const Heartbeat = ": heartbeat\r\n\r\n"

// Interrupted is the last that a stream sends which ends before its run, though its client still reads: it may come back with the last id.
const Interrupted = ": interrupted, come back with the last id\r\n\r\n"

// AppendFrame appends an event of the classic streams, short of its id and its closing blank line, so that one frame serves readers
// with ids and readers without.
//
// A line end or NUL in the event's name would let data pass for fields or events, so they are left out. In data, where JSON has
// line ends only between tokens, each line gets a field of its own, which readers join again.
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

// AppendRecord appends a record of a stream as a whole event, with its id when ids is set. One that has no place in a stream has none: whoever came back
// with the zero offset would get all from the beginning.
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

// digits reads a number without a sign. One too big for an int64 is taken as the biggest.
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

// RunOffset reads the Last-Event-ID of one who joins a run: after which record to go on. nil: only what comes from now on, which is
// also what text that is no id means. -1 is the start.
func RunOffset(lastEventID string) *bridge.Offset {
	if lastEventID == "-1" {
		return &bridge.Offset{}
	}
	if o, ok := parseOffset(lastEventID); ok {
		return &o
	}
	return nil
}

// ThreadOffset reads the Last-Event-ID of one who follows a thread. A lone dash is the start, and text that is no id is refused.
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
