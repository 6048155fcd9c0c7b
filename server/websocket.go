package server

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
	// maxMessage bounds a message from a client.
	maxMessage = 1 << 20
	// largeMessage is the size from which a message takes of the budget for bodies.
	largeMessage = 16 << 10
	// Per heartbeat of event streams: a client is pinged, and has left when nothing has come from it.
	pingBeats, silentBeats = 4, 12
	// closeTime is the time for the close frame of a client, after ours.
	closeTime = time.Second
	// Registered codes of close frames that the library does not name.
	statusServiceRestart ws.StatusCode = 1012
	statusTryAgainLater  ws.StatusCode = 1013
)

var (
	errHandshake = fault.New(fault.Invalid, "This is not a WebSocket handshake of version 13 (RFC 6455): "+
		"it needs Connection: Upgrade, Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key of 16 bytes in base64")
	errUpgrade = fault.New(fault.Invalid, "This WebSocket handshake has lost its header Upgrade: let the proxy in front of this server pass Upgrade and Connection, "+
		"as docs/deploy.md shows for nginx and Caddy")
	errOrigin = fault.New(fault.Forbidden, "WebSockets from this origin are not allowed; http.cors.allow_origins of langgraph.json names those that are")
)

// websocket is the server's end of a WebSocket of text messages. One goroutine reads, any may send. github.com/gobwas/ws reads frames straight from the
// connection that fasthttp hands over, so that an idle socket has no buffers; libraries for net/http need a request of theirs, and those for fasthttp keep
// two buffers for each.
type websocket struct {
	connection.Outlet
	s           *transport
	in          wsutil.Reader
	interrupted atomic.Bool
	said        ws.StatusCode // code of the client's close frame; 0 none. Of the reader

	mu     sync.Mutex // of what follows and of writes
	buf    bytes.Buffer
	closed bool // the close frame was sent
}

// closeError ends a websocket: the close frame has its code and text.
type closeError struct {
	code ws.StatusCode
	text string
}

func (e *closeError) Error() string { return e.text }

// upgrade answers a handshake. serve has the connection then, until it returns. Its error says that the answer could not be sent.
func (t *transport) upgrade(c *fiber.Ctx, serve func(w *websocket, err error)) {
	sum := sha1.Sum([]byte(c.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	c.Status(http.StatusSwitchingProtocols)
	c.Set(fiber.HeaderUpgrade, "websocket")
	c.Set(fiber.HeaderConnection, "Upgrade")
	c.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	raw, answer := c.Context().Conn(), bytes.Clone(c.Response().Header.Header())
	// fasthttp calls nothing when it cannot send an answer.
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		w := t.newWebsocket(raw, conn)
		w.Enlist()
		defer w.Delist()
		serve(w, w.WriteAll(answer))
	})
}

// newWebsocket returns a websocket on a connection. in has what was read of it already, and the rest.
func (t *transport) newWebsocket(conn net.Conn, in io.Reader) *websocket {
	w := &websocket{s: t, Outlet: t.outlets.Of(conn)}
	w.in = wsutil.Reader{
		Source: in, State: ws.StateServerSide, CheckUTF8: true, MaxFrameSize: maxMessage, MaxMessageSize: maxMessage, OnIntermediate: w.control,
	}
	return w
}

// handshake checks a request that wants a WebSocket. allows reports whether pages of an origin may connect, as Server.allows does.
func handshake(c *fiber.Ctx, allows func(origin string) (allowed, any bool)) error {
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

// read returns the next message; release returns its memory to the budget. The error is errLeft, or a *closeError that the client should see.
func (w *websocket) read() (message []byte, release func(), err error) {
	for {
		w.expect(silentBeats * w.s.heartbeat)
		h, err := w.in.NextFrame()
		if err != nil {
			return nil, nil, readError(err)
		}
		if h.OpCode.IsControl() {
			if err := w.control(h, &w.in); err != nil {
				return nil, nil, err
			}
			continue
		}
		if h.OpCode != ws.OpText {
			return nil, nil, &closeError{ws.StatusUnsupportedData, "messages must be text"}
		}
		w.expect(w.s.bodyTimeout)
		taken := int64(0)
		if !h.Fin || h.Length > largeMessage {
			if taken = bodyCopies * maxMessage; !w.s.bodies.take(taken) {
				return nil, nil, &closeError{statusTryAgainLater, errBusy.Error()}
			}
		}
		message, err := io.ReadAll(&w.in)
		if err != nil {
			w.s.bodies.give(taken)
			return nil, nil, readError(err)
		}
		return message, func() { w.s.bodies.give(taken) }, nil
	}
}

// expect sets how long the client may take for what is read next.
func (w *websocket) expect(d time.Duration) {
	_ = w.Conn.SetReadDeadline(time.Now().Add(d))
	if w.interrupted.Load() { // checked after the deadline, as interrupt may have set one before
		_ = w.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// interrupt ends the reading.
func (w *websocket) interrupt() {
	w.interrupted.Store(true)
	_ = w.Conn.SetReadDeadline(time.Unix(1, 0))
}

func readError(err error) error {
	var known *closeError
	var protocol ws.ProtocolError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, wsutil.ErrFrameTooLarge), errors.Is(err, wsutil.ErrMessageTooLarge):
		return &closeError{ws.StatusMessageTooBig, "messages have at most 1 MiB; larger inputs are accepted over HTTP"}
	case errors.Is(err, wsutil.ErrInvalidUTF8):
		return &closeError{ws.StatusInvalidFramePayloadData, "messages must be UTF-8"}
	case errors.As(err, &protocol), errors.Is(err, ws.ErrHeaderLengthMSB):
		return &closeError{ws.StatusProtocolError, err.Error()}
	}
	return errLeft
}

// control handles a control frame. Its error ends the reading: errLeft after a close frame, which it has answered.
func (w *websocket) control(h ws.Header, body io.Reader) error {
	payload := make([]byte, h.Length) // at most 125, which was checked
	if _, err := io.ReadFull(body, payload); err != nil {
		return readError(err)
	}
	switch h.OpCode {
	case ws.OpPing:
		return w.frame(ws.OpPong, payload)
	case ws.OpClose:
		code := ws.StatusNormalClosure
		if len(payload) > 0 {
			code, _ = ws.ParseCloseFrameData(payload) // 0: half a code
			if code.IsNotUsed() || code.IsProtocolReserved() || code == ws.StatusNoMeaningYet || code > ws.StatusRangePrivate.Max {
				return &closeError{ws.StatusProtocolError, "no close frame may have this code"}
			}
		}
		w.said = code
		w.close(&closeError{code, ""})
		return errLeft
	}
	return nil
}

// send sends text messages: append fills a buffer through the function that it is given, once for each message.
func (w *websocket) send(messages func(text func([]byte))) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errLeft
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

// text sends one message.
func (w *websocket) text(message []byte) error {
	return w.send(func(text func([]byte)) { text(message) })
}

// frame sends a control frame.
func (w *websocket) frame(op ws.OpCode, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errLeft
	}
	w.buf.Reset()
	w.append(op, payload)
	return w.WriteAll(w.buf.Bytes())
}

func (w *websocket) append(op ws.OpCode, payload []byte) {
	_ = ws.WriteHeader(&w.buf, ws.Header{Fin: true, OpCode: op, Length: int64(len(payload))})
	w.buf.Write(payload)
}

// close sends the close frame, once.
func (w *websocket) close(why *closeError) {
	if w.frame(ws.OpClose, ws.NewCloseFrameBody(why.code, bounded(why.text, 100))) != nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
}

// await reads on, for a moment, until the client has answered a close frame: a connection that is closed with something unread is reset, and the client may
// lose what was sent last.
func (w *websocket) await() {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = w.Conn.SetReadDeadline(time.Now().Add(closeTime))
	_, _ = io.CopyN(io.Discard, w.in.Source, 16*maxMessage)
}
