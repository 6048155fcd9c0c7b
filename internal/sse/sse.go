// Package sse reads server-sent events as others write them. Lines end with CR, LF or both, and with nothing else: the data of an event
// may hold U+2028 and the other characters that text readers split at. What the server itself sends is written by package compat.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// ErrTooLong: an event has more bytes than the reader may keep.
var ErrTooLong = errors.New("sse: event too long")

// Event is one event of a stream.
type Event struct {
	Name string // "" when it has none
	ID   string // its own; "" when it has none
	Data []byte // lines joined by LF; never shared with later events
}

// Reader reads events one after the other. It is not safe for concurrent use.
type Reader struct {
	br     *bufio.Reader
	limit  int
	line   []byte
	skipLF bool // the last line ended with CR: an LF that follows belongs to it
	first  bool // no line was read yet
}

// NewReader makes a Reader of events up to limit bytes each.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{br: bufio.NewReaderSize(r, 16<<10), limit: limit, first: true}
}

// Next returns the next event. At the end of the stream it returns io.EOF, or io.ErrUnexpectedEOF within an event: it never returns half an
// event. It skips comments and unknown fields.
func (r *Reader) Next() (Event, error) {
	var e Event
	var begun, data bool
	size := 0
	for {
		line, err := r.next(r.limit - size)
		if err != nil {
			if errors.Is(err, io.EOF) && (begun || len(line) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if data || e.Name != "" {
				return e, nil
			}
			e, begun, size = Event{}, false, 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if len(field) == 0 {
			continue // a comment, mostly a heartbeat
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		begun = true
		size += len(line)
		switch string(field) {
		case "event":
			e.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID = string(value)
			}
		case "data":
			if data {
				e.Data = append(e.Data, '\n')
			}
			e.Data, data = append(e.Data, value...), true
		}
	}
}

// next returns the next line, without its end. It is valid until the next call. At the end of the stream it returns what is left, with io.EOF.
func (r *Reader) next(limit int) ([]byte, error) {
	r.line = r.line[:0]
	if cap(r.line) > 1<<20 {
		r.line = nil // one large event is no reason to keep as much for the rest of the stream
	}
	for {
		if _, err := r.br.Peek(1); err != nil {
			return r.line, err
		}
		chunk, _ := r.br.Peek(r.br.Buffered())
		if r.skipLF {
			r.skipLF = false
			if chunk[0] == '\n' {
				_, _ = r.br.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(chunk, '\n')
		if cr := bytes.IndexByte(chunk[:max(end, 0)], '\r'); end >= 0 && cr >= 0 {
			end = cr
		} else if end < 0 {
			end = bytes.IndexByte(chunk, '\r')
		}
		n := end
		if n < 0 {
			n = len(chunk)
		}
		if len(r.line)+n > limit {
			return nil, ErrTooLong
		}
		r.line = append(r.line, chunk[:n]...)
		if end < 0 {
			_, _ = r.br.Discard(n)
			continue
		}
		r.skipLF = chunk[end] == '\r'
		_, _ = r.br.Discard(n + 1)
		if r.first {
			r.first = false
			return bytes.TrimPrefix(r.line, []byte("\ufeff")), nil
		}
		return r.line, nil
	}
}

// SplitName divides the name of an event of LangGraph into stream mode and namespace: `updates|child:1|leaf:2` is of `child:1|leaf:2`.
func SplitName(name string) (mode, ns string) {
	mode, ns, _ = strings.Cut(name, "|")
	return mode, ns
}
