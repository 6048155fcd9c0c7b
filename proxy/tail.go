package proxy

import (
	"bytes"
	"errors"
	"io"
)

// tail is the answer of a wait: line ends as heartbeats, which pass at once, then one JSON value, which is inspected as a whole. A value
// that is too long, or cut, passes unchanged.
type tail struct {
	src   io.ReadCloser
	limit int64
	held  *held
	whole func([]byte) []byte

	buf   bytes.Buffer // of the value
	size  int          // of buf that is taken
	ready []byte
	begun bool
	done  bool // after ready come src or err
	err   error
}

func (t *tail) Close() error { return t.src.Close() }

func (t *tail) Read(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case len(t.ready) > 0:
			n := copy(p, t.ready)
			t.ready = t.ready[n:]
			return n, nil
		case t.done && t.err != nil:
			return 0, t.err
		case t.done:
			return t.src.Read(p)
		}
		n, err := t.src.Read(p)
		t.err = err
		got := p[:n]
		if !t.begun {
			blank := n - len(bytes.TrimLeft(got, " \t\r\n"))
			t.begun = blank < n
			if !t.begun && err == nil || blank > 0 && !t.begun {
				t.done = err != nil
				return n, nil
			}
			if blank > 0 {
				t.buf.Write(got[blank:])
				t.finish()
				return blank, nil
			}
		}
		t.buf.Write(got)
		t.finish()
	}
	return 0, nil
}

// room reports whether the budget covers the growth of the buffer.
func (t *tail) room() bool {
	grown := t.buf.Cap() - t.size
	if grown > 0 && !t.held.take(grown) {
		return false
	}
	t.size = t.buf.Cap()
	return true
}

// finish makes the value ready once it is complete, or cannot become complete.
func (t *tail) finish() {
	switch {
	case errors.Is(t.err, io.EOF) && int64(t.buf.Len()) <= t.limit && t.begun:
		t.ready, t.done = t.whole(t.buf.Bytes()), true
	case t.err != nil || int64(t.buf.Len()) > t.limit || !t.room():
		t.ready, t.done = t.buf.Bytes(), true
	}
}
