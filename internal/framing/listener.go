package framing

import (
	"bytes"
	"errors"
	"net"
)

// Listen returns ln with connections that pass on requests whose heads define their length unambiguously. They replace the first other request by an
// invalid request line: net/http, which would accept ambiguous requests, answers 400 and closes the connection.
func Listen(ln net.Listener) net.Listener { return listener{ln} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// refused is what a server reads in place of a request that is refused.
const refused = "\x00 refused\r\n\r\n"

// maxHead is how much of a head is kept until its end comes. Servers refuse longer ones with an answer of their own.
const maxHead = 256 << 10

type state int

const (
	inHead  state = iota
	inBody        // of known length
	inSize        // the line before a chunk
	inChunk       // a chunk, and the line end behind it
	inTrailer
	passing // nothing is checked any more
	over    // refused
)

// conn follows the requests on a connection. Heads are passed on when they are whole.
type conn struct {
	net.Conn
	state state
	line  []byte // what came of a head, or of a line between chunks
	left  int64  // of a body or chunk
	ready []byte // to be read
	err   error  // behind ready
}

// Read is net.Conn.Read.
func (c *conn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.state == passing && len(c.line) == 0 {
			return c.Conn.Read(p)
		}
		if c.err != nil {
			return 0, c.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		n, err := c.Conn.Read(p)
		if c.state == inBody && int64(n) <= c.left { // the common case of long bodies: nothing is copied
			if c.left -= int64(n); c.left == 0 {
				c.state = inHead
			}
			return n, err
		}
		c.follow(p[:n])
		if err != nil {
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				// net/http interrupts a waiting read with a deadline, and reads on later.
				if len(c.ready) == 0 {
					return 0, err
				}
				continue
			}
			c.err = err
			c.ready = append(c.ready, c.line...) // an incomplete head: the reader detects it
			c.line = nil
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// follow takes what came, and makes ready what is checked.
func (c *conn) follow(b []byte) {
	for len(b) > 0 {
		switch c.state {
		case passing:
			c.ready, b = append(c.ready, b...), nil
		case over:
			b = nil
		case inBody, inChunk:
			n := min(c.left, int64(len(b)))
			c.ready, b = append(c.ready, b[:n]...), b[n:]
			if c.left -= n; c.left == 0 {
				c.state = map[state]state{inBody: inHead, inChunk: inSize}[c.state]
			}
		case inHead, inTrailer, inSize:
			end := bytes.IndexByte(b, '\n') + 1
			if end == 0 {
				end = len(b)
			}
			c.line, b = append(c.line, b[:end]...), b[end:]
			if len(c.line) > maxHead {
				c.ready, c.line, c.state = append(c.ready, c.line...), nil, passing
			} else if c.line[len(c.line)-1] == '\n' {
				c.ended()
			}
		}
	}
}

// ended looks at what came when a line of it has ended.
func (c *conn) ended() {
	switch c.state {
	case inSize:
		size, ok := chunkSize(c.line)
		if !ok {
			c.refuse()
			return
		}
		c.state, c.left = inChunk, size+2
		if size == 0 {
			c.state = inTrailer
		}
		c.pass()
	case inTrailer:
		if !bytes.HasSuffix(c.line, []byte("\r\n")) {
			c.refuse()
		} else if len(c.line) == 2 {
			c.state = inHead
			c.pass()
		} else {
			c.pass()
		}
	case inHead:
		first := bytes.IndexByte(c.line, '\n') + 1
		if first == len(c.line) && len(bytes.Trim(c.line, "\r\n")) == 0 && bytes.HasSuffix(c.line, []byte("\r\n")) {
			c.pass() // an empty line before a request
			return
		}
		if !bytes.HasSuffix(c.line[:first], []byte("\r\n")) || !Target(c.line[:first-2]) {
			c.refuse()
			return
		}
		if last := c.line[bytes.LastIndexByte(c.line[:len(c.line)-1], '\n')+1:]; len(last) > 2 {
			return // not the end. A line end of another kind is found at the end, or here:
		}
		h, ok := Parse(c.line[first:])
		if !ok {
			c.refuse()
			return
		}
		switch {
		case h.Chunked:
			c.state = inSize
		case h.Length > 0:
			c.state, c.left = inBody, h.Length
		case h.Upgrade:
			c.state = passing
		}
		c.pass()
	}
}

func (c *conn) pass() { c.ready, c.line = append(c.ready, c.line...), nil }

func (c *conn) refuse() {
	c.ready, c.line, c.state = append(c.ready, refused...), nil, over
}

// chunkSize reads the line before a chunk: hexadecimal digits, and extensions, which are ignored.
func chunkSize(line []byte) (n int64, ok bool) {
	line, ok = bytes.CutSuffix(line, []byte("\r\n"))
	if !ok {
		return 0, false
	}
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 15 {
		return 0, false
	}
	for _, c := range line {
		d := bytes.IndexByte([]byte("0123456789abcdef0123456789ABCDEF"), c)
		if d < 0 {
			return 0, false
		}
		n = n<<4 | int64(d&15)
	}
	return n, true
}
