package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gobwas/ws"

	"understudy/eventstore/overlay"
	"understudy/internal/jsonscan"
)

const (
	// maxCommand is the size up to which commands of clients are inspected; longer ones pass unchanged.
	maxCommand = 1 << 20
	// maxUpdates bounds the commands of a socket whose answers are awaited.
	maxUpdates = 64
)

// opensSocket reports whether a request opens a WebSocket for the events of a thread.
func (x *exchange) opensSocket() bool {
	return x.kind == watch && strings.EqualFold(x.in.Header.Get("Upgrade"), "websocket")
}

// sockets is the connection to the upstream of a WebSocket with events of a thread and commands. Text frames that are a whole message are inspected like events
// of a stream and bodies of commands; all others pass byte for byte.
type sockets struct {
	io.ReadWriteCloser
	ctx context.Context //nolint:containedctx // of the call: it lives as long as the socket
	x   *exchange

	up   frames // from the client; used by the goroutine that writes
	down frames // from the upstream; used by the goroutine that reads
	out  []byte // to be returned before reading more

	mu      sync.Mutex // held while the recorder is asked
	closed  bool
	updates map[string]Update // by the id of their commands
}

// inspect puts a socket between a client and the upstream.
func (x *exchange) inspect(ctx context.Context, res *http.Response) {
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok || res.Header.Get("Sec-Websocket-Extensions") != "" { // compressed
		return
	}
	s := &sockets{ReadWriteCloser: conn, ctx: ctx, x: x, updates: map[string]Update{}}
	s.up.limit = maxCommand
	s.down.limit, s.down.budget = x.p.c.MaxRewrite, &x.p.held
	res.Body = s
}

// Read returns what the client sees.
func (s *sockets) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		n, err := s.ReadWriteCloser.Read(p)
		if n > 0 {
			s.out = s.down.pass(s.out[:0], p[:n], s.event)
		}
		if err != nil {
			s.out = append(s.out, s.down.rest()...)
			if len(s.out) == 0 {
				return 0, err
			}
		}
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// Write takes what the client sends.
func (s *sockets) Write(p []byte) (int, error) {
	if out := s.up.pass(nil, p, s.command); len(out) > 0 {
		if _, err := s.ReadWriteCloser.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Close returns when the recorder is not asked any more.
func (s *sockets) Close() error {
	err := s.ReadWriteCloser.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.down.give()
	return err
}

// event returns a message of the upstream as the client sees it; show is false when it does not.
func (s *sockets) event(message []byte) (out []byte, show bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return message, true
	}
	switch jsonscan.Text(message, "type") {
	case "event":
		out, fate := s.x.run.Event(s.ctx, jsonscan.Text(message, "method"), message)
		if out == nil {
			out = message
		}
		return out, fate != overlay.Hidden && fate != overlay.HiddenBoth
	case "success", "error":
		ident := string(jsonscan.Raw(message, "id"))
		if u := s.updates[ident]; u != nil {
			delete(s.updates, ident)
			if jsonscan.Text(message, "type") == "success" {
				u.Done(context.WithoutCancel(s.ctx), message)
			}
		}
	}
	return message, true
}

// command returns a message of the client as the upstream gets it.
func (s *sockets) command(message []byte) (out []byte, send bool) {
	u, now := s.x.p.c.Recorder.Input(s.ctx, s.x.call, s.x.thread, message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if u != nil && len(s.updates) < maxUpdates {
		s.updates[string(jsonscan.Raw(message, "id"))] = u
	}
	if now == nil {
		now = message
	}
	return now, true
}

// frames takes frames of one direction apart.
type frames struct {
	limit  int64
	budget *budget      // of what is held beyond sseKeep; nil: limit is small
	buf    []byte       // the beginning of a frame that is not whole
	taken  atomic.Int64 // of the budget
	left   int64        // bytes of a frame that pass unchanged
}

// pass appends to dst what has arrived whole of the frames that p continues, with each message as the function shows it.
func (f *frames) pass(dst, p []byte, each func([]byte) ([]byte, bool)) []byte {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, int64(len(p)))
			dst, p, f.left = append(dst, p[:n]...), p[n:], f.left-n
			continue
		}
		data := p
		if len(f.buf) > 0 {
			f.buf = append(f.buf, p...)
			data = f.buf
		}
		h, head, ok := header(data)
		switch {
		case !ok:
		case h.OpCode != ws.OpText || !h.Fin || h.Rsv != 0 || h.Length > f.limit || !f.room(h.Length):
			dst = append(dst, data[:head]...)
			f.left, p = h.Length, f.consumed(data[head:])
			continue
		case int64(len(data)-head) >= h.Length:
			end := head + int(h.Length)
			dst = show(dst, h, data[:end], head, each)
			p = f.consumed(data[end:])
			f.give()
			continue
		}
		if len(f.buf) == 0 {
			f.buf = append(f.buf, data...)
		}
		return dst
	}
	return dst
}

// consumed returns the rest of what was buffered or has just arrived, and empties the buffer.
func (f *frames) consumed(rest []byte) []byte {
	if len(f.buf) > 0 {
		rest = bytes.Clone(rest)
		if f.buf = f.buf[:0]; cap(f.buf) > sseKeep {
			f.buf = nil
		}
	}
	return rest
}

// rest returns what never became whole.
func (f *frames) rest() []byte {
	rest := f.buf
	f.buf = nil
	f.give()
	return rest
}

// room reserves memory for a frame.
func (f *frames) room(n int64) bool {
	if f.budget == nil || n <= sseKeep || f.taken.Load() > 0 {
		return true
	}
	if f.budget.used.Add(n) > f.budget.limit {
		f.budget.used.Add(-n)
		return false
	}
	f.taken.Store(n)
	return true
}

func (f *frames) give() {
	if n := f.taken.Swap(0); n > 0 {
		f.budget.used.Add(-n)
	}
}

// header reads the header of a frame; ok is false when it is not whole.
func header(data []byte) (h ws.Header, size int, ok bool) {
	in := bytes.NewReader(data)
	h, err := ws.ReadHeader(in)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return h, 0, false
	}
	size = len(data) - in.Len()
	if err != nil { // an upstream or a client that does not keep to the protocol: the other end judges
		return ws.Header{Length: int64(len(data) - size)}, size, true
	}
	return h, size, true
}

// show appends a frame with its message as each returns it.
func show(dst []byte, h ws.Header, whole []byte, head int, each func([]byte) ([]byte, bool)) []byte {
	message := whole[head:]
	if h.Masked {
		message = bytes.Clone(message)
		ws.Cipher(message, h.Mask, 0)
	}
	now, shown := each(message)
	switch {
	case !shown:
		return dst
	case bytes.Equal(now, message):
		return append(dst, whole...)
	}
	h.Length = int64(len(now))
	var b bytes.Buffer
	_ = ws.WriteHeader(&b, h)
	dst = append(dst, b.Bytes()...)
	at := len(dst)
	dst = append(dst, now...)
	if h.Masked {
		ws.Cipher(dst[at:], h.Mask, 0)
	}
	return dst
}
