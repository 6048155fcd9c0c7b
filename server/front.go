package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/gate"
	"understudy/internal/fault"
	"understudy/server/internal/connection"
	"understudy/server/internal/web"
)

// Application is an application next to the API: its routes come before those of the API, and its middleware is around both.
type Application interface {
	// Up returns nil when it answers.
	Up() error
	// Application is what is known of it, once it is loaded. The same pointer means the same application.
	Application() *gate.Application
	Claims(method, path string, websocket bool) gate.Claim
	Serve(ctx context.Context, r *gate.Request) (*http.Response, error)
	Dial(ctx context.Context, r *gate.Request) (*gate.Socket, *http.Response, error)
}

// frontRoute is what metrics and logs call the routes of the application.
const frontRoute = "http.app"

// front passes a request on to the application, if it is one of its routes or passes its middleware. It reports whether it has answered.
//
// Middleware of the application is around everything, as in LangGraph Server. Then requests for the API come back by Inside, except WebSockets, which
// pass by the middleware. The native probes /livez and /readyz, and /ok while the application is down, are not the application's either.
func (s *Server) front(c *fiber.Ctx, ctx context.Context) (answered bool, err error) { //nolint:revive // the context is that of the request
	app := s.opts.App
	if app == nil || insideOf(c) != nil {
		return false, nil
	}
	path, ok := decodedPath(c)
	probe := strings.TrimPrefix(path, s.opts.MountPrefix)
	if !ok || probe == "/livez" || probe == "/readyz" || probe == "/ok" && app.Up() != nil {
		return false, nil
	}
	about := app.Application()
	if about == nil {
		return false, nil
	}
	r := &gate.Request{Request: *s.requestFor(c), RawPath: string(c.Request().URI().PathOriginal())}
	r.WebSocket = r.WebSocket && r.Method == http.MethodGet
	claim := app.Claims(r.Method, path, r.WebSocket)
	api := s.routed(r.Method, path)
	r.API = api && !r.WebSocket
	mine := claim == gate.Claimed || claim == gate.Unknown && !(r.WebSocket && api) || claim == gate.OtherMethod && !r.API
	if !mine && (r.WebSocket || len(about.Wraps) == 0) {
		return false, nil
	}
	if s.opts.AuthFirst && (s.opts.GuardRoutes || !mine) {
		authenticated, err := s.authenticate(c, ctx, nil)
		if err != nil {
			return true, err
		}
		r.Actor = access.From(authenticated)
	}
	web.Of(c).Route = frontRoute
	r.Outer = &outer{request: web.Of(c), actor: r.Actor, client: r.Client, scheme: r.Scheme}
	if r.WebSocket {
		return true, s.frontSocket(c, ctx, r)
	}
	return true, s.frontHTTP(c, ctx, r)
}

// claimed reports whether the application answers a request for a path, not the API.
func (s *Server) claimed(method, path string) bool {
	if s.opts.App == nil {
		return false
	}
	switch s.opts.App.Claims(method, path, false) {
	case gate.NotClaimed:
		return false
	case gate.OtherMethod:
		return !s.routed(method, path)
	}
	return true
}

// decodedPath returns the path of a request without percent signs. One that is not valid is not the application's.
func decodedPath(c *fiber.Ctx) (string, bool) {
	path, err := url.PathUnescape(string(c.Request().URI().PathOriginal()))
	return path, err == nil && strings.HasPrefix(path, "/")
}

// routed reports whether the API has a route for a method and path.
func (s *Server) routed(method, path string) bool {
	segments := strings.Split(path, "/")
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return slices.ContainsFunc(s.patterns, func(p pattern) bool { return p.method == method && p.matches(segments) })
}

// smallBody is the size of a body that is read before the application gets the request, smallAnswer that of an answer that is sent in one piece.
const smallBody, smallAnswer = 1 << 20, 64 << 10

// frontHTTP answers a request by the application.
func (s *Server) frontHTTP(c *fiber.Ctx, ctx context.Context, r *gate.Request) error { //nolint:revive // as above
	up, release, err := s.frontBody(c, r)
	defer release()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() {}
	if r.Unblock == nil {
		stop = connection.Watch(c.Context().Conn(), func() { cancel(web.ErrLeft) })
	}
	response, err := s.opts.App.Serve(ctx, r)
	if err != nil {
		stop()
		cancel(nil)
		return up.because(err)
	}
	if err := up.because(nil); err != nil { // the application has seen a client that left
		stop()
		cancel(err)
		response.Body.Close()
		return err
	}
	addHeader(c, response.Header)
	c.Status(response.StatusCode)
	if wholeAnswer(c, response) {
		response.Body.Close()
		stop()
		cancel(nil)
		return nil
	}
	s.streamAnswer(c, ctx, r, up, response, cancel, stop)
	return nil
}

// frontBody gives the application the body of a request: a small one as a whole, which release frees, a large one as it arrives, as the returned upload.
func (s *Server) frontBody(c *fiber.Ctx, r *gate.Request) (up *upload, release func(), err error) {
	size := c.Request().Header.ContentLength()
	if web.Of(c).Unwanted > 0 || size != -1 && size <= smallBody { // -1: chunked; -2: there is none
		body, release, err := s.Body(c)
		r.Body = bytes.NewReader(body)
		return nil, release, err
	}
	conn := c.Context().Conn()
	up = &upload{tooLarge: s.TooLarge, in: c.Context().RequestBodyStream(), conn: conn, timeout: s.BodyTimeout, left: s.MaxBody}
	if up.in == nil {
		up.in = bytes.NewReader(slices.Clone(c.Request().Body()))
	}
	r.Body, r.Unblock = up, up.unblock
	return up, func() {}, nil
}

// wholeAnswer sends an answer that has no body, or a small one, and reports whether it did. It has read the body then.
func wholeAnswer(c *fiber.Ctx, response *http.Response) bool {
	n := response.ContentLength
	none := response.StatusCode < 200 || response.StatusCode == http.StatusNoContent || response.StatusCode == http.StatusNotModified
	switch {
	case c.Method() == http.MethodHead || none:
		if n >= 0 && !none {
			c.Response().SetBodyStream(bytes.NewReader(nil), int(n))
		}
		c.Response().SkipBody = true
	case 0 <= n && n <= smallAnswer:
		body, err := io.ReadAll(io.LimitReader(response.Body, n+1))
		if err != nil || int64(len(body)) != n {
			// fasthttp breaks the connection when the body does: the reader must not take a part for the whole.
			c.Response().SetBodyStream(io.MultiReader(bytes.NewReader(body), broken{}), int(n))
		} else {
			c.Response().SetBodyRaw(body)
		}
	default:
		return false
	}
	return true
}

// streamAnswer sends an answer as it comes from the application, until that ends it, the client leaves, the server stops (event streams), or the credentials
// of the client are withdrawn. up is its upload, if it has not been read; cancel ends the request, stop what watches the client.
func (s *Server) streamAnswer(
	c *fiber.Ctx, ctx context.Context, r *gate.Request, up *upload, response *http.Response, cancel context.CancelCauseFunc, stop func(), //nolint:revive // as above
) {
	req := web.Of(c)
	req.Streamed = true
	if up != nil { // the upload ends with the answer
		req.BodyRead = true
		c.Context().SetConnectionClose()
	}
	if strings.HasPrefix(response.Header.Get(fiber.HeaderContentType), "text/event-stream") { // like those of the API
		unhook := context.AfterFunc(s.Streaming, func() { cancel(context.Cause(s.Streaming)) })
		watched := stop
		stop = func() { unhook(); watched() }
	}
	if withdrawn := s.followOuter(c, r); withdrawn != nil {
		stop = s.endWithdrawn(ctx, withdrawn, cancel, stop)
	}
	a := &frontAnswer{Outlet: s.Outlets.Of(c.Context().Conn()), s: s.Transport, req: req, response: response, ctx: ctx, cancel: cancel, stop: stop}
	a.Enlist()
	if response.ContentLength < 0 {
		c.Response().ImmediateHeaderFlush = true
	}
	c.Response().SetBodyStream(a, int(response.ContentLength))
}

// followOuter is follow for an answer of the application, whose credentials a guarded route may have had checked.
func (s *Server) followOuter(c *fiber.Ctx, r *gate.Request) func(ctx context.Context) bool {
	o, _ := r.Outer.(*outer)
	of, revocable := s.opts.Authenticator.(access.Revocable)
	if o == nil || !revocable || o.accepted.Load() == nil {
		return s.follow(c)
	}
	return briefly(of.Follow(o.accepted.Load()))
}

// endWithdrawn cancels an open answer when the credentials of its client are withdrawn. The returned function waits for the end of that, and calls stop.
func (s *Server) endWithdrawn(ctx context.Context, withdrawn func(context.Context) bool, cancel context.CancelCauseFunc, stop func()) func() {
	over := make(chan struct{})
	watching, end := context.WithCancel(ctx)
	go func() {
		defer close(over)
		tick := time.NewTicker(s.Heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-tick.C:
				if withdrawn(watching) {
					cancel(web.ErrWithdrawn)
					return
				}
			}
		}
	}()
	return func() {
		end()
		<-over
		stop()
	}
}

// ofConnection are headers about the connection to the application, or that the server writes.
var ofConnection = []string{"Connection", "Content-Length", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// addHeader adds the header of an answer of the application to the response.
func addHeader(c *fiber.Ctx, header http.Header) {
	for name, values := range header {
		if slices.Contains(ofConnection, name) {
			continue
		}
		for i, v := range values {
			if i == 0 && name != fiber.HeaderVary && name != fiber.HeaderSetCookie {
				c.Response().Header.Set(name, v)
			} else {
				c.Response().Header.Add(name, v)
			}
		}
	}
}

// broken is the end of a body that is not whole.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// upload reads the body of a request for as long as its client sends. A read has a time limit.
type upload struct {
	in       io.Reader
	conn     interface{ SetReadDeadline(t time.Time) error }
	timeout  time.Duration
	left     int64
	tooLarge func() error
	done     atomic.Bool           // the rest is not wanted
	refused  atomic.Pointer[error] // it is too large, or too slow
}

func (u *upload) Read(b []byte) (int, error) {
	_ = u.conn.SetReadDeadline(time.Now().Add(u.timeout))
	if u.done.Load() { // or the deadline of unblock was just replaced
		return 0, io.ErrClosedPipe
	}
	n, err := u.in.Read(b)
	if u.left -= int64(n); u.left < 0 {
		return 0, u.refuse(fault.New(fault.TooLarge, "Request body is too large"))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !u.done.Load() {
		return n, u.refuse(fiber.ErrRequestTimeout)
	}
	return n, err
}

func (u *upload) refuse(err error) error {
	u.refused.Store(&err)
	return err
}

// because returns why the server has refused the body, else err.
func (u *upload) because(err error) error {
	if u != nil {
		if refused := u.refused.Load(); refused != nil {
			return *refused
		}
	}
	return err
}

// unblock ends a read: the answer is complete.
func (u *upload) unblock() {
	u.done.Store(true)
	_ = u.conn.SetReadDeadline(time.Unix(1, 0))
}

// frontAnswer sends an answer of the application as it comes. To fasthttp it is a body reader; one of unknown length writes to the connection itself, as
// open does.
type frontAnswer struct {
	connection.Outlet
	s        *web.Transport
	req      *web.Request
	response *http.Response
	ctx      context.Context //nolint:containedctx // the life of the answer
	cancel   context.CancelCauseFunc
	stop     func()
	buf      []byte
	closed   bool
	err      error
}

func (a *frontAnswer) Read(b []byte) (int, error) {
	if a.response.ContentLength >= 0 {
		n, err := a.response.Body.Read(b)
		_ = a.Conn.SetWriteDeadline(time.Now().Add(a.s.WriteTimeout))
		if err != nil && err != io.EOF {
			a.err = err
		}
		return n, err
	}
	a.err = a.send()
	if a.err == nil {
		return 0, io.EOF
	}
	return 0, a.err
}

// send writes chunks until the answer ends.
func (a *frontAnswer) send() error {
	piece := make([]byte, 32<<10)
	for {
		n, err := a.response.Body.Read(piece)
		if n > 0 {
			a.buf = strconv.AppendInt(a.buf[:0], int64(n), 16)
			a.buf = append(append(append(a.buf, "\r\n"...), piece[:n]...), "\r\n"...)
			if err := a.WriteAll(a.buf); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case context.Cause(a.ctx) == web.ErrWithdrawn: //nolint:errorlint // it is the cause itself
			return web.ErrWithdrawn
		case err != nil:
			return err
		}
	}
}

// Close ends the answer and the request of the application.
func (a *frontAnswer) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	a.stop()
	a.cancel(web.ErrLeft)
	_ = a.response.Body.Close()
	a.Delist()
	a.s.Done(a.req, a.response.StatusCode, web.Ended(a.err))
	return nil
}
