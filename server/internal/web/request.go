package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"understudy/access"
	"understudy/access/audit"
	"understudy/id"
	"understudy/internal/header"
	"understudy/internal/logctx"
	"understudy/internal/logs"
	"understudy/run"
)

// Request is the state of one request outside of Fiber.
type Request struct {
	ID       string // x-request-id, or generated
	Route    string // pattern of the route; "" when none matched
	begun    time.Time
	method   string
	BodyRead bool
	Unwanted int64  // length of a body that is not waited for: see received
	Streamed bool   // an open response writes the log line
	path     string // without the query; bounded
	Reason   string // why it was refused; "" when it was not
	Fix      string // what to change when no route has the path; "" when nothing is known

	headers     []slog.Attr // logged with the request
	Thread, Run string      // of the path, or created; "" when there is none
	temporary   bool        // the run leaves nothing that its client could ask for later
	Span        trace.Span  // nil: there is none

	Actor *access.Actor // who sends it; nil: not known
	// Withdrawn reports whether the credentials of the request, which were accepted, were withdrawn since; nil: the authenticator of the server knows.
	Withdrawn func(ctx context.Context) bool
	Source    string // the address of its peer; "" when no credentials are needed
	early     *early // nil: its body is not read, or was handed over
	// The resource of the path that does not exist, or not for the actor: thread, assistant or cron; "" when it does.
	absent, absentID string
}

// Miss notes that the resource of the path is not there for who sends the request.
func (r *Request) Miss(c *fiber.Ctx) {
	for _, kind := range []string{"thread", "assistant", "cron"} {
		if x := PathID(c, kind+"_id"); x != "" {
			r.absent, r.absentID = kind, x
			return
		}
	}
}

// Made notes the run that a request has created.
func (r *Request) Made(x *run.Run) {
	r.Thread, r.Run, r.temporary = string(x.Thread), string(x.ID), x.Kwargs.Temporary
}

// HidePath leaves the path out of the log: it has a credential.
func (r *Request) HidePath() { r.path = "" }

type requestKey struct{}

// Begin notes a request, with the headers that are logged with it.
func Begin(c *fiber.Ctx, logs header.Filter) *Request {
	r := &Request{ID: requestID(c.Get("X-Request-Id")), begun: time.Now(), method: c.Method(), path: Bounded(c.Path(), MaxPath), headers: logged(c, logs)}
	c.Locals(requestKey{}, r)
	return r
}

// Of returns the state of a request that Begin has noted.
func Of(c *fiber.Ctx) *Request {
	if r, ok := c.Locals(requestKey{}).(*Request); ok {
		return r
	}
	// Requests that fasthttp itself refuses have not passed enter.
	return &Request{ID: uuid.NewString(), begun: time.Now()}
}

// Done counts and logs a finished request.
func (t *Transport) Done(r *Request, status int, ended string) {
	took := time.Since(r.begun)
	route := r.Route
	if route == "" {
		route = NoRoute
	}
	t.Metrics.request(r.method, route, status, took)
	t.endSpan(r, route, status, ended)
	if r.absent != "" && r.Actor != nil && r.Actor != access.System {
		t.Audit.AddHidden(audit.Entry{
			Event: audit.Denied, Identity: r.Actor.Identity, Source: r.Source, Resource: r.method + " " + route + " of " + r.absent + " " + r.absentID,
			Outcome: strconv.Itoa(http.StatusNotFound), Detail: "it belongs to another identity",
		}, r.absent, r.absentID)
	}
	attrs := []slog.Attr{
		slog.String("request_id", r.ID), slog.String("method", r.method), slog.String("route", route),
		slog.Int("status", status), logctx.Took(took),
	}
	if r.path != "" && r.path != route {
		attrs = append(attrs, slog.String("path", r.path))
	}
	if r.Reason != "" && t.logReasons {
		attrs = append(attrs, slog.String("reason", r.Reason))
	}
	if r.Fix != "" {
		attrs = append(attrs, slog.String("fix", r.Fix))
	}
	if r.Thread != "" {
		attrs = append(attrs, slog.String("thread_id", r.Thread))
	}
	if r.Run != "" {
		attrs = append(attrs, slog.String("run_id", r.Run))
	}
	if ended != "" {
		attrs = append(attrs, slog.String("ended", ended))
	}
	if len(r.headers) > 0 {
		attrs = append(attrs, slog.GroupAttrs("headers", r.headers...))
	}
	level := slog.LevelInfo
	if Probes[r.Route] || r.method == fiber.MethodOptions && status < http.StatusBadRequest {
		level = slog.LevelDebug // probes come every few seconds, preflights with most requests of a page
	}
	ctx := context.Background() // the request's own context has ended
	if r.Span != nil {
		ctx = trace.ContextWithSpan(ctx, r.Span)
	}
	t.Log.LogAttrs(ctx, level, logs.Request, attrs...)
}

// Bounds of what a request puts into its log line.
const MaxPath, MaxReason = 256, 1024

// Bounded returns a copy of s of at most n bytes, as valid UTF-8 without line ends.
func Bounded(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(strings.ToValidUTF8(strings.Clone(s), "?"))
}

// Probes are the routes that monitoring polls every few seconds.
var Probes = map[string]bool{"/ok": true, "/livez": true, "/readyz": true, "/metrics": true}

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

// Param returns a parameter of the path.
func Param(c *fiber.Ctx, name string) string { return Unescaped(c.Params(name)) }

// Unescaped returns a segment of a path without percent signs; as it is, if it is not valid.
func Unescaped(v string) string {
	if u, err := url.PathUnescape(v); err == nil {
		return u
	}
	return v
}

// Given returns the value of a query parameter; nil when it is absent.
func Given(c *fiber.Ctx, name string) *string {
	args := c.Context().QueryArgs()
	if !args.Has(name) {
		return nil
	}
	v := string(args.Peek(name))
	return &v
}

// Queries returns all values of a query parameter.
func Queries(c *fiber.Ctx, name string) []string {
	var list []string
	for _, b := range c.Context().QueryArgs().PeekMulti(name) {
		list = append(list, string(b))
	}
	return list
}

// SendJSON answers with JSON. The bytes are not copied.
func SendJSON(c *fiber.Ctx, body []byte) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}

// SendNothing answers 204.
func SendNothing(c *fiber.Ctx) error {
	c.Status(fiber.StatusNoContent).Response().ResetBody()
	return nil
}

// PathID returns an id in the path if it is valid, so that arbitrary text from clients does not get into logs.
func PathID(c *fiber.Ctx, name string) string { return id.Canonical(c.Params(name)) }

// Unlocate removes the headers of locate when the run was not created.
func Unlocate(c *fiber.Ctx) {
	c.Response().Header.Del("Content-Location")
	c.Response().Header.Del(fiber.HeaderLocation)
}
