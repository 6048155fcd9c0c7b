package gate

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
)

// stream is one request and its answer, or one WebSocket. Pieces of bodies have a window; what arrives is queued until it is read, at most a window.
type stream struct {
	p      *process
	number uint32
	outer  any // Request.Outer

	mu      sync.Mutex
	queue   []arrival
	owed    int           // bytes that were read, and are not granted again
	room    int           // bytes that may be sent
	changed chan struct{} // closed and replaced
	err     error         // it broke
	aborted bool          // by the other side
}

type arrival struct {
	kind    byte
	payload []byte
}

// newStream registers a stream of ours. The error is errLeft.
func (p *process) newStream() (*stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.left {
		return nil, errLeft
	}
	return p.register(p.number()), nil
}

// register adds a stream. The caller holds mu.
func (p *process) register(number uint32) *stream {
	s := &stream{p: p, number: number, room: window, changed: make(chan struct{})}
	p.open[number] = s
	return s
}

func (p *process) stream(number uint32) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[number]
}

// close forgets the stream. If we have not ended our side, or the answer is not whole, the other side is notified.
func (s *stream) close(whole bool) {
	s.p.mu.Lock()
	delete(s.p.open, s.number)
	s.p.freed()
	s.p.mu.Unlock()
	if !whole {
		_ = s.p.out.send(bothAbort, s.number, nil)
	}
	s.broke(io.ErrClosedPipe)
}

func (s *stream) broke(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.wake()
}

// wake wakes who waits. The caller holds mu.
func (s *stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// arrived handles a frame of the other side.
func (s *stream) arrived(kind byte, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == bothCredit {
		if len(payload) == 4 {
			s.room += int(binary.BigEndian.Uint32(payload))
		}
	} else {
		s.aborted = s.aborted || kind == bothAbort
		s.queue = append(s.queue, arrival{kind, payload})
	}
	s.wake()
}

// next returns the next frame. The error is the cause of ctx, or why the stream broke.
func (s *stream) next(ctx context.Context) (byte, []byte, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			a := s.queue[0]
			s.queue[0] = arrival{}
			s.queue = s.queue[1:]
			if a.kind == bothBody || a.kind == bothText || a.kind == bothBinary {
				s.owed += len(a.payload)
			}
			grant := 0
			if s.owed >= window/4 {
				grant, s.owed = s.owed, 0
			}
			s.mu.Unlock()
			if grant > 0 {
				_ = s.p.out.send(bothCredit, s.number, binary.BigEndian.AppendUint32(nil, uint32(grant))) //nolint:gosec // below a frame
			}
			return a.kind, a.payload, nil
		}
		err, changed := s.err, s.changed
		s.mu.Unlock()
		if err != nil {
			return 0, nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
	}
}

// write sends a piece, or a whole message of a WebSocket, when there is room.
func (s *stream) write(ctx context.Context, kind byte, b []byte) error {
	for {
		s.mu.Lock()
		room, err, changed := s.room, s.err, s.changed
		if err == nil && room > 0 {
			s.room -= len(b)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if room > 0 {
			return s.p.out.send(kind, s.number, b)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// copyFrom sends a body and its end. An error of the reader breaks the stream.
func (s *stream) copyFrom(ctx context.Context, body io.Reader) error {
	buf := make([]byte, piece)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := s.write(ctx, bothBody, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return s.p.out.send(bothEnd, s.number, nil)
		case err != nil:
			_ = s.p.out.send(bothAbort, s.number, nil)
			return err
		}
	}
}

// body is the rest of a stream, as a reader.
type body struct {
	s     *stream
	ctx   context.Context //nolint:containedctx // the reader's life
	rest  []byte
	err   error
	whole bool
	once  sync.Once
	after func()
}

func (b *body) Read(to []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		kind, payload, err := b.s.next(b.ctx)
		switch {
		case err != nil:
			b.err = err
		case kind == bothBody:
			b.rest = payload
		case kind == bothEnd:
			b.err, b.whole = io.EOF, true
		default:
			b.err = io.ErrUnexpectedEOF
		}
	}
	n := copy(to, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *body) Close() error {
	b.once.Do(func() {
		b.s.close(b.whole)
		if b.after != nil {
			b.after()
		}
	})
	return nil
}
