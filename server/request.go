package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"understudy/access"
	"understudy/access/audit"
	"understudy/compat"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/idempotency"
	"understudy/internal/logctx"
	"understudy/run"
	"understudy/server/internal/connection"
)

// request is the state of one request outside of Fiber.
type request struct {
	id       string // x-request-id, or generated
	route    string // pattern of the route; "" when none matched
	begun    time.Time
	method   string
	bodyRead bool
	unwanted int64  // length of a body that is not waited for: see received
	streamed bool   // an open response writes the log line
	path     string // without the query; bounded
	reason   string // why it was refused; "" when it was not
	fix      string // what to change when no route has the path; "" when nothing is known

	headers     []slog.Attr // logged with the request
	thread, run string      // of the path, or created; "" when there is none
	temporary   bool        // the run leaves nothing that its client could ask for later
	span        trace.Span  // nil: there is none

	actor  *access.Actor // who sends it; nil: not known
	source string        // the address of its peer; "" when no credentials are needed
	// The resource of the path that does not exist, or not for the actor: thread, assistant or cron; "" when it does.
	absent, absentID string
}

// miss notes that the resource of the path is not there for who sends the request.
func (r *request) miss(c *fiber.Ctx) {
	for _, kind := range []string{"thread", "assistant", "cron"} {
		if x := idIn(c, kind+"_id"); x != "" {
			r.absent, r.absentID = kind, x
			return
		}
	}
}

// made notes the run that a request has created.
func (r *request) made(x *run.Run) {
	r.thread, r.run, r.temporary = string(x.Thread), string(x.ID), x.Kwargs.Temporary
}

type requestKey struct{}

func requestOf(c *fiber.Ctx) *request {
	if r, ok := c.Locals(requestKey{}).(*request); ok {
		return r
	}
	// Requests that fasthttp itself refuses have not passed enter.
	return &request{id: uuid.NewString(), begun: time.Now()}
}

// enter is the outermost handler, which applies to every request.
func (s *Server) enter(c *fiber.Ctx) error {
	connection.Answering(c.Context().Conn(), true)
	defer connection.Answering(c.Context().Conn(), false)
	r := &request{id: requestID(c.Get("X-Request-Id")), begun: time.Now(), method: c.Method(), path: bounded(c.Path(), maxPath), headers: logged(c, s.opts.Logged)}
	c.Locals(requestKey{}, r)
	s.startSpan(c, r)
	head, ok := framed(&c.Request().Header)
	if ok && head.Length > 0 && c.Request().Header.ContentLength() == 0 {
		r.unwanted = head.Length
	}
	if !ok {
		c.Context().SetConnectionClose()
		if err := s.fail(c, errFraming); err != nil {
			return err
		}
	} else if err := s.checkHost(c); err != nil {
		if err := s.fail(c, err); err != nil {
			return err
		}
	} else if insideOf(c) != nil || !s.cors(c) {
		if err := s.handle(c); err != nil {
			if err := s.fail(c, err); err != nil {
				return err
			}
		}
	}
	s.protectAnswer(c, r)
	if !r.bodyRead {
		s.finish(c)
	}
	if !r.streamed {
		s.compress(c)
		s.done(r, c.Response().StatusCode(), "")
	}
	return nil
}

// protectAnswer lets browsers take no answer for what it does not say it is, and keep none of someone who signed in. Answers of the application next to
// the API are its own.
func (s *Server) protectAnswer(c *fiber.Ctx, r *request) {
	if r.route == frontRoute {
		return
	}
	h := &c.Response().Header
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	if r.actor != nil && s.opts.SignIn != nil && s.opts.SignIn.Desk != nil && len(h.Peek(fiber.HeaderCacheControl)) == 0 {
		h.Set(fiber.HeaderCacheControl, "no-store")
	}
}

// handle runs the route, and turns a panic into an error.
func (s *Server) handle(c *fiber.Ctx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in a handler", "request_id", requestOf(c).id, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx := s.lifeOf(c)
	r := requestOf(c)
	ctx = logctx.With(ctx, slog.String("request_id", r.id))
	if r.span != nil {
		ctx = trace.ContextWithSpan(ctx, r.span)
	}
	if s.opts.Bind != nil {
		if ctx, err = s.opts.Bind(ctx, func(name string) string { return c.Get(name) }); err != nil {
			return err
		}
	}
	if insideOf(c) == nil {
		if answered, err := s.front(c, ctx); answered {
			return err
		}
	}
	if ctx, err = s.authenticate(c, ctx); err != nil {
		return err
	}
	c.SetUserContext(ctx)
	return c.Next()
}

// done counts and logs a finished request.
func (t *transport) done(r *request, status int, ended string) {
	took := time.Since(r.begun)
	route := r.route
	if route == "" {
		route = noRoute
	}
	t.metrics.request(r.method, route, status, took)
	t.endSpan(r, route, status, ended)
	if r.absent != "" && r.actor != nil && r.actor != access.System {
		t.audit.AddHidden(audit.Entry{
			Event: audit.Denied, Identity: r.actor.Identity, Source: r.source, Resource: r.method + " " + route + " of " + r.absent + " " + r.absentID,
			Outcome: strconv.Itoa(http.StatusNotFound), Detail: "it belongs to another identity",
		}, r.absent, r.absentID)
	}
	attrs := []slog.Attr{
		slog.String("request_id", r.id), slog.String("method", r.method), slog.String("route", route),
		slog.Int("status", status), logctx.Took(took),
	}
	if r.path != "" && r.path != route {
		attrs = append(attrs, slog.String("path", r.path))
	}
	if r.reason != "" && t.logReasons {
		attrs = append(attrs, slog.String("reason", r.reason))
	}
	if r.fix != "" {
		attrs = append(attrs, slog.String("fix", r.fix))
	}
	if r.thread != "" {
		attrs = append(attrs, slog.String("thread_id", r.thread))
	}
	if r.run != "" {
		attrs = append(attrs, slog.String("run_id", r.run))
	}
	if ended != "" {
		attrs = append(attrs, slog.String("ended", ended))
	}
	if len(r.headers) > 0 {
		attrs = append(attrs, slog.GroupAttrs("headers", r.headers...))
	}
	level := slog.LevelInfo
	if probes[r.route] || r.method == fiber.MethodOptions && status < http.StatusBadRequest {
		level = slog.LevelDebug // probes come every few seconds, preflights with most requests of a page
	}
	ctx := context.Background() // the request's own context has ended
	if r.span != nil {
		ctx = trace.ContextWithSpan(ctx, r.span)
	}
	t.log.LogAttrs(ctx, level, "request", attrs...)
}

// Bounds of what a request puts into its log line.
const maxPath, maxReason = 256, 1024

// bounded returns a copy of s of at most n bytes, as valid UTF-8 without line ends.
func bounded(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(strings.ToValidUTF8(strings.Clone(s), "?"))
}

// probes are the routes that monitoring polls every few seconds.
var probes = map[string]bool{"/ok": true, "/livez": true, "/readyz": true, "/metrics": true}

// requestID returns the client's id of its request, if it is fit for logs and metadata.
func requestID(given string) string {
	if given == "" || len(given) > 256 {
		return uuid.NewString()
	}
	for i := range len(given) {
		if given[i] < ' ' || given[i] > '~' {
			return uuid.NewString()
		}
	}
	return given
}

// chooseOverlay stores the request's choice of transcripts in its context.
func chooseOverlay(c *fiber.Ctx) error {
	choice, err := compat.Overlay(given(c, compat.OverlayParam), given(c, compat.MarkersParam), c.Get(compat.OverlayHeader))
	if err != nil {
		return err
	}
	c.SetUserContext(overlay.With(c.UserContext(), choice))
	return nil
}

// idempotencyKey returns the key of a request that creates something: body is what it asks for, in thread t; nil when it has none.
func idempotencyKey(c *fiber.Ctx, kind string, t id.Thread, body []byte) (*idempotency.Key, error) {
	if c.Request().Header.Peek(idempotency.Header) == nil {
		return nil, nil
	}
	return idempotency.New(c.Get(idempotency.Header), owner(c.UserContext()), []byte(kind), []byte(t), body)
}

// repeated notes in the response that it shows what an earlier request has created.
func repeated(c *fiber.Ctx, key *idempotency.Key) {
	if key != nil && key.Repeated {
		c.Set(idempotency.Repeated, "true")
		expose(c, strings.ToLower(idempotency.Repeated))
	}
}

// owner is who sends a request, where the server knows it.
func owner(ctx context.Context) string {
	if actor := access.From(ctx); actor != nil {
		return actor.Identity
	}
	return ""
}

// param returns a parameter of the path.
func param(c *fiber.Ctx, name string) string {
	v := c.Params(name)
	if u, err := url.PathUnescape(v); err == nil {
		return u
	}
	return v
}

// given returns the value of a query parameter; nil when it is absent.
func given(c *fiber.Ctx, name string) *string {
	args := c.Context().QueryArgs()
	if !args.Has(name) {
		return nil
	}
	v := string(args.Peek(name))
	return &v
}

// queries returns all values of a query parameter.
func queries(c *fiber.Ctx, name string) []string {
	var list []string
	for _, b := range c.Context().QueryArgs().PeekMulti(name) {
		list = append(list, string(b))
	}
	return list
}

// sendJSON answers with JSON. The bytes are not copied.
func sendJSON(c *fiber.Ctx, body []byte) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}

// sendNothing answers 204.
func sendNothing(c *fiber.Ctx) error {
	c.Status(fiber.StatusNoContent).Response().ResetBody()
	return nil
}
