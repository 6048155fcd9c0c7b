package compat

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"understudy/eventstore"
	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/fault"
)

const (
	defaultReadRows = 100
	maxReadRows     = 1000
)

// BranchesQuery reads the query of the route that lists the forks of a thread. get returns all values of a parameter; the last one counts.
func BranchesQuery(get func(name string) []string) (after id.Thread, limit int, err error) {
	p := params(get)
	if limit, err = p.limit(defaultReadRows, maxReadRows); err != nil {
		return "", 0, err
	}
	if v, given := p.last("after"); given {
		if after = id.Thread(v); !storable(v) {
			return "", 0, fault.New(fault.Unprocessable, "Invalid after: must be next of a page")
		}
	}
	return after, limit, nil
}

// PlaceQuery reads the query of the routes that list rows of all threads, the newest first.
func PlaceQuery(get func(name string) []string) (before readmodel.Place, limit int, err error) {
	p := params(get)
	if limit, err = p.limit(defaultReadRows, maxReadRows); err != nil {
		return before, 0, err
	}
	if v, given := p.last("before"); given {
		if before, err = readPlace(v); err != nil {
			return before, 0, err
		}
	}
	return before, limit, nil
}

// readPlace reads what PlaceText has written.
func readPlace(text string) (readmodel.Place, error) {
	at, rest, _ := strings.Cut(text, ".")
	seq, thread, _ := strings.Cut(rest, ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.ParseInt(seq, 10, 64)
	if err != nil || err2 != nil || n < 0 || thread == "" || !storable(thread) {
		return readmodel.Place{}, fault.New(fault.Unprocessable, "Invalid before: must be next of a page")
	}
	return readmodel.Place{At: micros, Thread: id.Thread(thread), Seq: eventstore.Seq(n)}, nil
}

// PlaceText is the text of a place in a list; "" for the zero one.
func PlaceText(p readmodel.Place) string {
	if p == (readmodel.Place{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d.%s", p.At, p.Seq, p.Thread)
}

// MessageID reads the ID of a message from a path. One that no storage keeps is of no message.
func MessageID(text string) (string, error) {
	if text == "" || !storable(text) {
		return "", fault.New(fault.NotFound, "The thread has no such message")
	}
	return text, nil
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// AppendBranches appends {"thread_id", "ancestors": […], "branches": […], "next": text or null}.
func AppendBranches(dst []byte, t id.Thread, l *readmodel.Lineage, next string) []byte {
	r := newRow(dst, nil)
	r.text("thread_id", string(t))
	r.key("ancestors")
	r.dst = AppendList(r.dst, l.Ancestors, func(dst []byte, b readmodel.Row) []byte { return appendBranch(dst, id.Thread(b.Name), b) })
	r.key("branches")
	r.dst = AppendList(r.dst, l.Forks, func(dst []byte, b readmodel.Row) []byte { return appendBranch(dst, b.Thread, b) })
	r.textOrNull("next", next)
	return r.end()
}

func appendBranch(dst []byte, other id.Thread, b readmodel.Row) []byte {
	r := newRow(dst, nil)
	r.text("thread_id", string(other))
	r.seq("event_number", b.Ref)
	r.textOrNull("checkpoint_id", string(b.Checkpoint))
	r.timeOrNull("created_at", timeOf(b.At))
	return r.end()
}

// AppendMessagePlace appends where a message is.
func AppendMessagePlace(dst []byte, t id.Thread, m *readmodel.Message) []byte {
	r := newRow(dst, nil)
	r.text("thread_id", string(t))
	r.text("message_id", m.ID)
	r.seq("seq", m.First)
	r.seq("event_number", m.Seq)
	r.textOrNull("run_id", string(m.Run))
	r.textOrNull("checkpoint_id", string(m.Checkpoint))
	r.textOrNull("parent_checkpoint_id", string(m.Parent))
	r.timeOrNull("created_at", timeOf(m.At))
	return r.end()
}

// AppendTimeline appends {"events": […], "next": text or null}.
func AppendTimeline(dst []byte, page []readmodel.Row, next string) []byte {
	return appendPlaces(dst, "events", page, next, func(dst []byte, x readmodel.Row) []byte {
		r := newRow(dst, nil)
		r.text("thread_id", string(x.Thread))
		r.seq("seq", x.Seq)
		r.text("event", x.Name)
		r.textOrNull("run_id", string(x.Run))
		r.timeOrNull("created_at", timeOf(x.At))
		return r.end()
	})
}

// AppendHeads appends {"heads": […], "next": text or null}.
func AppendHeads(dst []byte, page []readmodel.Row, next string) []byte {
	return appendPlaces(dst, "heads", page, next, func(dst []byte, x readmodel.Row) []byte {
		r := newRow(dst, nil)
		r.text("thread_id", string(x.Thread))
		r.seq("seq", x.Seq)
		r.seq("message_seq", x.Ref)
		r.textOrNull("last_event", x.Name)
		r.textOrNull("run_id", string(x.Run))
		r.timeOrNull("updated_at", timeOf(x.At))
		return r.end()
	})
}

func appendPlaces(dst []byte, name string, page []readmodel.Row, next string, one func([]byte, readmodel.Row) []byte) []byte {
	r := newRow(dst, nil)
	r.key(name)
	r.dst = AppendList(r.dst, page, one)
	r.textOrNull("next", next)
	return r.end()
}

// seq appends a seq; null for 0.
func (r *row) seq(name string, n eventstore.Seq) {
	if n == 0 {
		r.textOrNull(name, "")
		return
	}
	r.int(name, int(n))
}

func timeOf(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	at := time.UnixMicro(micros).UTC()
	return &at
}
