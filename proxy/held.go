package proxy

import (
	"io"
	"sync/atomic"

	"understudy/internal/fault"
)

// errFull is the error when all calls together hold the maximum memory.
var errFull = fault.New(fault.Unavailable, "Too many request bytes in flight. Try again later.")

// budget limits the memory of inspected bodies and events, for all calls together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// held is the share of one call in the budget. It is used by one goroutine at a time.
type held struct {
	of *budget
	n  int64
}

// take takes n more bytes, if they are available.
func (h *held) take(n int) bool {
	if h.of.used.Add(int64(n)) > h.of.limit {
		h.of.used.Add(-int64(n))
		return false
	}
	h.n += int64(n)
	return true
}

func (h *held) give(n int) {
	h.n -= int64(n)
	h.of.used.Add(-int64(n))
}

func (h *held) free() { h.give(int(h.n)) }

// read reads all of r into memory if it is no longer than limit. Otherwise, or after an error, or when the budget is exhausted (errFull), it
// returns what it has read. Memory is taken as bytes arrive, not as a header announces.
func (h *held) read(r io.Reader, size, limit int64) (body []byte, whole bool, err error) {
	if size > limit {
		return nil, false, nil
	}
	for {
		if len(body) == cap(body) {
			grow := max(4<<10, 2*cap(body))
			if size >= 0 && int64(cap(body)) < size+1 {
				grow = int(min(size+1, int64(max(1<<20, 2*cap(body))))) // one more, to reach EOF without growing again
			}
			if !h.take(grow) {
				return body, false, errFull
			}
			h.give(cap(body))
			body = append(make([]byte, 0, grow), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			if err == io.EOF {
				err = nil // the next read returns it again
			}
			return body, false, err
		case err == io.EOF:
			return body, true, nil
		case err != nil:
			return body, false, err
		}
	}
}
