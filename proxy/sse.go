package proxy

import (
	"bytes"
	"io"
	"sync"

	"understudy/eventstore/overlay"
)

const (
	// sseBuffer is the memory of an idle stream; 1,000 streams are 4 MB.
	sseBuffer = 4 << 10
	// sseKeep is the largest buffer that a stream keeps after a long event.
	sseKeep = 64 << 10
)

var sseBuffers = sync.Pool{New: func() any { return new([sseBuffer]byte) }}

// events is an event stream that passes each event through a function. It parses lines in place, which end with CR, LF or CRLF only, and
// passes an event on once its blank line is there. Unchanged events keep every byte: order of fields, comments, ids, line ends. In a
// changed event only the data is rewritten; a dropped event disappears with its id, so that a client resumes after the last event that it
// saw. An event that is held is copied, and shown before the next event or dropped with it.
//
// After an event that is longer than limit, or for which there is no memory, inspection ends: it and all later events pass unchanged.
type events struct {
	src   io.ReadCloser
	each  func(event string, data []byte) (out []byte, fate overlay.Fate)
	limit int
	held  *held // accounts for buf beyond base

	base  *[sseBuffer]byte
	buf   []byte // buf[r:w] is read and not yet taken
	r, w  int
	ready []byte // to be returned before reading more; in buf
	after []byte // to be returned after ready; in anew
	anew  []byte // buffer for a rewritten event
	back  []byte // an event that is held
	err   error  // of src, returned after all data
	raw   bool   // inspection has ended
	begun bool   // a possible byte order mark has been passed

	// The event that begins at r.
	pos   int    // behind its last whole line
	look  int    // no line end between pos and here
	name  span   // value of its last field `event`
	data  []span // its `data` fields
	text  []byte // buffer for data of several lines
	named string // name of the previous event, often the same

	// The previous event ended with a CR at the end of the buffer: a following LF belongs to it, and is shown or dropped with
	// it.
	loose, hidden bool
}

// span is a field of an event, as offsets from the event's beginning: its line, its value, and the next line.
type span struct{ line, from, to, next int }

func newEvents(src io.ReadCloser, limit int, held *held, each func(string, []byte) ([]byte, overlay.Fate)) *events {
	e := &events{src: src, each: each, limit: limit, held: held, base: sseBuffers.Get().(*[sseBuffer]byte)}
	e.buf = e.base[:]
	return e
}

// Close closes the source. Nothing is read after it.
func (e *events) Close() error {
	if e.base != nil {
		sseBuffers.Put(e.base)
		e.base, e.buf, e.ready, e.after, e.r, e.w, e.raw = nil, nil, nil, nil, 0, 0, true
	}
	return e.src.Close()
}

func (e *events) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case len(e.ready) > 0:
			n := copy(p, e.ready)
			e.ready = e.ready[n:]
			return n, nil
		case len(e.after) > 0:
			e.ready, e.after = e.after, nil
		case e.raw && len(e.back) > 0:
			e.ready, e.back = e.back, nil
		case e.raw && e.r < e.w:
			e.ready, e.r = e.buf[e.r:e.w], e.w
		case e.raw && e.err != nil:
			return 0, e.err
		case e.raw:
			return e.src.Read(p)
		case e.next():
		case e.err != nil || e.w-e.r > e.limit: // the rest is incomplete or too long
			e.raw = true
		default:
			e.fill()
		}
	}
}

// fill reads from the source once.
func (e *events) fill() {
	switch {
	case e.r == e.w:
		e.shift()
		if len(e.buf) > sseKeep {
			e.held.give(len(e.buf))
			e.buf = e.base[:]
		}
		if cap(e.anew) > sseKeep {
			e.anew = nil
		}
		if cap(e.text) > sseKeep {
			e.text = nil
		}
	case e.w == len(e.buf) && e.r > 0:
		copy(e.buf, e.buf[e.r:e.w])
		e.shift()
	case e.w == len(e.buf):
		if !e.held.take(2 * len(e.buf)) {
			e.raw = true
			return
		}
		if len(e.buf) > sseBuffer {
			e.held.give(len(e.buf))
		}
		e.buf = append(make([]byte, 2*len(e.buf))[:0], e.buf...)
		e.buf = e.buf[:cap(e.buf)]
	}
	n, err := e.src.Read(e.buf[e.w:])
	e.w, e.err = e.w+n, err
}

// shift notes that the bytes of buf[r:w] moved to the beginning of buf.
func (e *events) shift() {
	e.w, e.pos, e.look, e.r = e.w-e.r, e.pos-e.r, e.look-e.r, 0
}

// next takes complete unchanged events off the buffer and makes them ready, up to the first one that changes. It reports whether it took
// any.
func (e *events) next() bool {
	if !e.begun {
		rest := e.buf[e.r:e.w]
		if len(rest) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, rest) {
			return false
		}
		e.begun = true
		if bytes.HasPrefix(rest, byteOrderMark) {
			e.ready = rest[:len(byteOrderMark)]
			e.r += len(byteOrderMark)
			e.pos, e.look = e.r, e.r
			return true
		}
	}
	from := e.r
	if e.loose && e.r < e.w {
		e.loose = false
		if e.buf[e.r] == '\n' {
			e.r++
			e.pos, e.look = e.r, e.r
			if e.hidden {
				from = e.r
			}
			if len(e.back) > 0 && e.hidden {
				e.back = append(e.back, '\n')
			}
		}
	}
	for e.event() {
		out, fate, same := e.judge()
		if same && fate == overlay.Shown && (len(e.back) == 0 || len(e.data) == 0) {
			e.take(true)
			continue
		}
		e.ready = e.buf[from:e.r]
		e.settle(out, fate, same)
		e.take(fate == overlay.Shown)
		return true
	}
	e.ready = e.buf[from:e.r]
	return from < e.r
}

// settle prepares the output after ready, from the held event and the one just judged.
func (e *events) settle(out []byte, fate overlay.Fate, same bool) {
	e.anew = e.anew[:0]
	if fate != overlay.HiddenBoth {
		e.anew = append(e.anew, e.back...)
	}
	e.back = e.back[:0]
	switch {
	case fate == overlay.Held:
		e.back = append(e.back, e.buf[e.r:e.pos]...)
	case fate == overlay.Shown && same:
		e.anew = append(e.anew, e.buf[e.r:e.pos]...)
	case fate == overlay.Shown:
		e.write(out)
	}
	e.after = e.anew
}

// take advances past the event.
func (e *events) take(show bool) {
	e.loose, e.hidden = e.pos == e.w && e.buf[e.pos-1] == '\r', !show
	e.r, e.look = e.pos, e.pos
	e.name, e.data = span{}, e.data[:0]
}

// event parses lines up to the next blank one, and reports whether it is there.
func (e *events) event() bool {
	for {
		rest := e.buf[e.look:e.w]
		end := bytes.IndexByte(rest, '\n')
		lf := end >= 0
		if !lf {
			end = len(rest)
		}
		next := e.look + end + 1
		if cr := bytes.IndexByte(rest[:end], '\r'); cr >= 0 {
			end = cr
			next = e.look + cr + 1
			switch {
			case next < e.w && e.buf[next] == '\n':
				next++
			case next == e.w && e.look+cr > e.pos: // perhaps half of a CRLF; waiting for the LF delays nothing
				e.look += cr
				return false
			}
		} else if !lf {
			e.look = e.w
			return false
		}
		end += e.look
		blank := end == e.pos
		if !blank {
			e.field(e.pos, end, next)
		}
		e.pos, e.look = next, next
		if blank {
			return true
		}
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// field parses a line that is not blank.
func (e *events) field(start, end, next int) {
	line := e.buf[start:end]
	s := span{line: start - e.r, to: end - e.r, next: next - e.r}
	name, value := len(line), len(line)
	if colon := bytes.IndexByte(line, ':'); colon >= 0 {
		name, value = colon, colon+1
		if value < len(line) && line[value] == ' ' {
			value++
		}
	}
	s.from = start - e.r + value
	switch string(line[:name]) {
	case "event":
		e.name = s
	case "data":
		e.data = append(e.data, s)
	}
}

// judge asks the recorder how to show the event.
func (e *events) judge() (out []byte, fate overlay.Fate, same bool) {
	if len(e.data) == 0 {
		return nil, overlay.Shown, true
	}
	whole := e.buf[e.r:e.pos]
	data := whole[e.data[0].from:e.data[0].to]
	if len(e.data) > 1 {
		e.text = append(e.text[:0], data...)
		for _, d := range e.data[1:] {
			e.text = append(append(e.text, '\n'), whole[d.from:d.to]...)
		}
		data = e.text
	}
	name := whole[e.name.from:e.name.to]
	if len(name) == 0 {
		name = []byte("message")
	}
	if string(name) != e.named {
		e.named = string(name)
	}
	out, fate = e.each(e.named, data[:len(data):len(data)])
	return out, fate, out == nil || bytes.Equal(out, data)
}

// write appends the event with new data to anew.
func (e *events) write(data []byte) {
	whole := e.buf[e.r:e.pos]
	first := e.data[0]
	lineEnd := whole[first.to:first.next]
	head := whole[:first.from]
	anew := append(e.anew, head...)
	if first.from == first.to && !bytes.HasSuffix(head, []byte(" ")) { // "data" and "data:" lack a separator
		anew = append(append(e.anew, whole[:first.line]...), "data: "...)
	}
	for i := 0; ; i++ {
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			anew = append(append(anew, data...), lineEnd...)
			break
		}
		anew = append(append(append(anew, data[:end]...), lineEnd...), "data: "...)
		if bytes.HasPrefix(data[end:], []byte("\r\n")) {
			end++
		}
		data = data[end+1:]
	}
	at := first.next
	for _, d := range e.data[1:] {
		anew = append(anew, whole[at:d.line]...)
		at = d.next
	}
	e.anew = append(anew, whole[at:]...)
}
