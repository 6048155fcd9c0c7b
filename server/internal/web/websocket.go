package web

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // RFC 6455 prescribes it
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
	"understudy/server/internal/connection"
)

const (
	// MaxMessage bounds a message from a client.
	MaxMessage = 1 << 20
	// largeMessage is the size from which a message takes of the budget for bodies.
	largeMessage = 16 << 10
	// Per heartbeat of event streams: a client is pinged, and has left when nothing has come from it.
	PingBeats, SilentBeats = 4, 12
	// closeTime is the time for the close frame of a client, after ours.
	closeTime = time.Second
	// Registered codes of close frames that the library does not name.
	StatusServiceRestart ws.StatusCode = 1012
	StatusTryAgainLater  ws.StatusCode = 1013
)

var (
	errHandshake = fault.New(fault.Invalid, "This is not a WebSocket handshake of version 13 (RFC 6455): "+
		"it needs Connection: Upgrade, Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key of 16 bytes in base64")
	ErrUpgrade = fault.New(fault.Invalid, "This WebSocket handshake has lost its header Upgrade: let the proxy in front of this server pass Upgrade and Connection, "+
		"as docs/deploy.md shows for nginx and Caddy")
	errOrigin = fault.New(fault.Forbidden, "WebSockets from this origin are not allowed; http.cors.allow_origins of langgraph.json names those that are")
)

// Websocket is the server's end of a WebSocket of text messages. One goroutine reads, any may send. github.com/gobwas/ws reads frames straight from the
// connection that fasthttp hands over, so that an idle socket has no buffers; libraries for net/http need a request of theirs, and those for fasthttp keep two
// buffers for each.
type Websocket struct {
	connection.Outlet
	Transport   *Transport
	In          wsutil.Reader
	interrupted atomic.Bool
	Said        ws.StatusCode // code of the client's close frame; 0 none. Of the reader

	mu     sync.Mutex // of what follows and of writes
	buf    bytes.Buffer
	closed bool // the close frame was sent
}

// CloseError ends a websocket: the close frame has its code and text.
type CloseError struct {
	Code ws.StatusCode
	Text string
}

func (e *CloseError) Error() string { return e.Text }

// Upgrade answers a handshake. serve has the connection then, until it returns. Its error says that the answer could not be sent. It must not use what belongs to the
// request in fasthttp, which is that of another client by then.
func (t *Transport) Upgrade(c *fiber.Ctx, serve func(w *Websocket, err error)) {
	sum := sha1.Sum([]byte(c.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	c.Status(http.StatusSwitchingProtocols)
	c.Set(fiber.HeaderUpgrade, "websocket")
	c.Set(fiber.HeaderConnection, "Upgrade")
	c.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	raw, answer := c.Context().Conn(), bytes.Clone(c.Response().Header.Header())
	// fasthttp calls nothing when it cannot send an answer.
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		in := rest(raw, conn)
		// Until this function returns fasthttp keeps the request and the 16 KB in which it read it. It closes no connection then: see KeepHijackedConns.
		go func() {
			defer raw.Close()
			w := t.NewWebsocket(raw, in)
			w.Enlist()
			defer w.Delist()
			serve(w, w.WriteAll(answer))
		}()
	})
}

// rest returns what comes on a connection, beginning with what in has read of it already.
func rest(raw net.Conn, in io.Reader) io.Reader {
	// A client may send its first frames together with the handshake. With a deadline that is over only what is buffered can be read.
	// Whatever else ends the reads ends the next one too.
	_ = raw.SetReadDeadline(time.Unix(1, 0))
	var early bytes.Buffer
	_, _ = early.ReadFrom(in)
	_ = raw.SetReadDeadline(time.Time{})
	if early.Len() == 0 {
		return raw
	}
	return io.MultiReader(&early, raw)
}

// NewWebsocket returns a websocket on a connection, from which in reads.
func (t *Transport) NewWebsocket(conn net.Conn, in io.Reader) *Websocket {
	w := &Websocket{Transport: t, Outlet: t.Outlets.Of(conn)}
	w.In = wsutil.Reader{
		Source: in, State: ws.StateServerSide, CheckUTF8: true, MaxFrameSize: MaxMessage, MaxMessageSize: MaxMessage, OnIntermediate: w.Control,
	}
	return w
}

// Handshake checks a request that wants a WebSocket. allows reports whether pages of an origin may connect, as Server.allows does.
func Handshake(c *fiber.Ctx, allows func(origin string) (allowed, any bool)) error {
	key, err := base64.StdEncoding.DecodeString(c.Get("Sec-WebSocket-Key"))
	if err != nil || len(key) != 16 || !hasToken(c.Get(fiber.HeaderConnection), "upgrade") || c.Get("Sec-WebSocket-Version") != "13" {
		c.Set("Sec-WebSocket-Version", "13")
		return errHandshake
	}
	// Browsers connect pages of every site, with the cookies of ours, and leave the check to the server.
	if origin := c.Get(fiber.HeaderOrigin); origin != "" {
		if allowed, _ := allows(origin); !allowed && !sameOrigin(origin, string(c.Request().Host())) {
			return errOrigin
		}
	}
	return nil
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && host != "" && strings.EqualFold(u.Host, host)
}

// hasToken reports whether a header is a list that has a token, in lower case.
func hasToken(header, token string) bool {
	for item := range strings.SplitSeq(header, ",") {
		if strings.EqualFold(strings.TrimSpace(item), token) {
			return true
		}
	}
	return false
}

// Read returns the next message; release returns its memory to the budget. The error is ErrLeft, or a *CloseError that the client should see.
func (w *Websocket) Read() (message []byte, release func(), err error) {
	for {
		w.Expect(SilentBeats * w.Transport.Heartbeat)
		h, err := w.In.NextFrame()
		if err != nil {
			return nil, nil, ReadError(err)
		}
		if h.OpCode.IsControl() {
			if err := w.Control(h, &w.In); err != nil {
				return nil, nil, err
			}
			continue
		}
		if h.OpCode != ws.OpText {
			return nil, nil, &CloseError{ws.StatusUnsupportedData, "messages must be text"}
		}
		w.Expect(w.Transport.BodyTimeout)
		taken := int64(0)
		if !h.Fin || h.Length > largeMessage {
			if taken = BodyCopies * MaxMessage; !w.Transport.Bodies.Take(taken) {
				return nil, nil, &CloseError{StatusTryAgainLater, errBusy.Error()}
			}
		}
		message, err := io.ReadAll(&w.In)
		if err != nil {
			w.Transport.Bodies.Give(taken)
			return nil, nil, ReadError(err)
		}
		return message, func() { w.Transport.Bodies.Give(taken) }, nil
	}
}

// Expect sets how long the client may take for what is read next.
func (w *Websocket) Expect(d time.Duration) {
	_ = w.Conn.SetReadDeadline(time.Now().Add(d))
	if w.interrupted.Load() { // checked after the deadline, as interrupt may have set one before
		_ = w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// Interrupt ends the reading.
func (w *Websocket) Interrupt() {
	w.interrupted.Store(true)
	_ = w.Conn.SetReadDeadline(time.Unix(1, 0))
}

// ReadError returns what the client should see of an error of reading: a *CloseError, or ErrLeft.
func ReadError(err error) error {
	var known *CloseError
	var protocol ws.ProtocolError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, wsutil.ErrFrameTooLarge), errors.Is(err, wsutil.ErrMessageTooLarge):
		return &CloseError{ws.StatusMessageTooBig, "messages have at most 1 MiB; larger inputs are accepted over HTTP"}
	case errors.Is(err, wsutil.ErrInvalidUTF8):
		return &CloseError{ws.StatusInvalidFramePayloadData, "messages must be UTF-8"}
	case errors.As(err, &protocol), errors.Is(err, ws.ErrHeaderLengthMSB):
		return &CloseError{ws.StatusProtocolError, err.Error()}
	}
	return ErrLeft
}

// Control handles a control frame. Its error ends the reading: ErrLeft after a close frame, which it has answered.
func (w *Websocket) Control(h ws.Header, body io.Reader) error {
	payload := make([]byte, h.Length) // at most 125, which was checked
	if _, err := io.ReadFull(body, payload); err != nil {
		return ReadError(err)
	}
	switch h.OpCode {
	case ws.OpPing:
		return w.Frame(ws.OpPong, payload)
	case ws.OpClose:
		code := ws.StatusNormalClosure
		if len(payload) > 0 {
			code, _ = ws.ParseCloseFrameData(payload) // 0: half a code
			if code.IsNotUsed() || code.IsProtocolReserved() || code == ws.StatusNoMeaningYet || code > ws.StatusRangePrivate.Max {
				return &CloseError{ws.StatusProtocolError, "no close frame may have this code"}
			}
		}
		w.Said = code
		w.Close(&CloseError{code, ""})
		return ErrLeft
	}
	return nil
}

// Send sends text messages: append fills a buffer through the function that it is given, once for each message.
func (w *Websocket) Send(messages func(text func([]byte))) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrLeft
	}
	w.buf.Reset()
	var err error
	messages(func(text []byte) {
		w.append(ws.OpText, text)
		if w.buf.Len() >= batchBytes && err == nil {
			err = w.WriteAll(w.buf.Bytes())
			w.buf.Reset()
		}
	})
	if err == nil && w.buf.Len() > 0 {
		err = w.WriteAll(w.buf.Bytes())
	}
	if w.buf.Cap() > 64<<10 {
		w.buf = bytes.Buffer{} // an idle socket keeps no large buffer
	}
	return err
}

// Text sends one message.
func (w *Websocket) Text(message []byte) error {
	return w.Send(func(text func([]byte)) { text(message) })
}

// Frame sends a control frame.
func (w *Websocket) Frame(op ws.OpCode, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrLeft
	}
	w.buf.Reset()
	w.append(op, payload)
	return w.WriteAll(w.buf.Bytes())
}

func (w *Websocket) append(op ws.OpCode, payload []byte) {
	_ = ws.WriteHeader(&w.buf, ws.Header{Fin: true, OpCode: op, Length: int64(len(payload))})
	w.buf.Write(payload)
}

// Close sends the close frame, once.
func (w *Websocket) Close(why *CloseError) {
	if w.Frame(ws.OpClose, ws.NewCloseFrameBody(why.Code, Bounded(why.Text, 100))) != nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
}

// Await reads on, for a moment, until the client has answered a close frame: a connection that is closed with something unread is reset, and the client may
// lose what was sent last.
func (w *Websocket) Await() {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = w.Conn.SetReadDeadline(time.Now().Add(closeTime))
	_, _ = io.CopyN(io.Discard, w.In.Source, 16*MaxMessage)
}
