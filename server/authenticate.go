package server

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/access/audit"
	"understudy/internal/encryption"
	"understudy/internal/jsonobj"
	"understudy/server/internal/web"
)

// open are the paths that need no credentials; prefixes end with a slash.
var openPaths = []string{"/", "/ok", "/livez", "/readyz", "/info", "/metrics", "/docs", "/docs/", "/openapi.json", StudioPath, StudioPath + "/"}

// isOpen reports whether a path needs no credentials.
func (s *Server) isOpen(method, path string) bool {
	if s.opts.DeerFlow != nil && (path == "/health" || strings.HasPrefix(path, "/api/")) {
		return true // the Gateway has gates of its own
	}
	if s.opts.Ratings != nil && method == http.MethodPost && s.isRating(path) {
		return true // its address is the credential
	}
	if s.opts.MountPrefix != "" {
		path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, s.opts.MountPrefix), "/")
	}
	if s.opts.DeerFlow != nil && method == http.MethodGet && path == redocPath {
		return true
	}
	if method == http.MethodGet && strings.HasPrefix(path, "/ui/") {
		return true
	}
	if in := s.opts.SignIn; in != nil && method != http.MethodPost && strings.HasPrefix(path, SignInPath+"/") {
		return path == SignInPath+"/methods" || in.Desk != nil // of a browser that has no session yet
	}
	for _, p := range openPaths {
		if path == p || len(p) > 1 && strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

// isRating reports whether a path is an address for feedback.
func (s *Server) isRating(path string) bool {
	under := s.prefixes()
	if s.opts.MountPrefix != "" {
		under = []string{s.opts.MountPrefix}
	}
	return slices.ContainsFunc(under, func(prefix string) bool { return strings.HasPrefix(path, prefix+ratingPath) })
}

// errTwoCredentials: what stands in front of the server may have read the other one.
var errTwoCredentials = &access.Refusal{Status: http.StatusUnauthorized, Detail: jsonobj.Quote("More than one Authorization header")}

// authenticate finds out who sends a request, before anything about it can refuse it. A handshake of a WebSocket is refused without a body, as browsers show none.
// foresee returns what the request is going to ask, for a Gatekeeper, which reads a small request and at most one row of the database; nil: nothing is known of that.
func (s *Server) authenticate(c *fiber.Ctx, ctx context.Context, foresee func(*fiber.Ctx, context.Context) []access.Expected) (context.Context, error) { //nolint:revive // the context is that of the request
	if s.opts.Authenticator == nil || s.isOpen(c.Method(), c.Path()) {
		return ctx, nil
	}
	i := insideOf(c)
	if i != nil {
		if actor := i.actor(); actor != nil {
			if i.outer != nil {
				web.Of(c).Actor, web.Of(c).Source = actor, host(i.outer.client)
			}
			return access.Enter(ctx, actor, "http.app"), nil
		}
	}
	if s.opts.Inside != nil {
		if credential := c.Get(access.InsideHeader); credential != "" {
			if a := s.opts.Inside.Actor(credential); a != nil {
				web.Of(c).Actor, web.Of(c).Source = a, "a graph"
				return access.Enter(ctx, a, "a graph"), nil
			}
		}
	}
	r, used := s.credentials(c)
	defer s.release(used)
	if i != nil {
		r.Client, r.Scheme = i.outer.client, i.outer.scheme
	}
	req := web.Of(c)
	req.Source = host(r.Client)
	var actor *access.Actor
	var foreseen *access.Foreseen
	err := error(errTwoCredentials)
	if len(r.Header["Authorization"]) < 2 {
		if gatekeeper, ok := s.opts.Authenticator.(access.Gatekeeper); ok && foresee != nil {
			var answers []access.Answer
			actor, answers, err = gatekeeper.Admit(ctx, r, func() []access.Expected { return foresee(c, ctx) })
			foreseen = access.NewForeseen(answers)
		} else {
			actor, err = s.opts.Authenticator.Authenticate(ctx, r)
		}
	}
	if err != nil {
		refusal, ok := err.(*access.Refusal) //nolint:errorlint // a refusal is never wrapped
		if ok && refusal.Status < http.StatusInternalServerError {
			s.Audit.Add(audit.Entry{
				Event: audit.SignInFailed, Source: req.Source, Resource: s.patternFor(r.Method, pathOf(c)), Outcome: strconv.Itoa(refusal.Status), Detail: refusal.Audit,
			})
		}
		if ok && r.WebSocket {
			return nil, &access.Refusal{Status: http.StatusForbidden, Plain: "", Header: refusal.Header}
		}
		return nil, err
	}
	req.Actor = actor
	if i != nil {
		i.outer.found.Store(actor)
	}
	return access.EnterForeseen(ctx, actor, req.Source, foreseen), nil
}

// follow returns what reports whether the credentials of a request were withdrawn since they were accepted; nil if they cannot be.
func (s *Server) follow(c *fiber.Ctx) func(ctx context.Context) bool {
	return briefly(s.withdrawn(c))
}

// briefly limits how long a stream waits for an answer; nil stays nil.
func briefly(withdrawn func(ctx context.Context) bool) func(ctx context.Context) bool {
	if withdrawn == nil {
		return nil
	}
	return func(ctx context.Context) bool { // between the records of a stream, which a slow database is not to hold up for long
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		return withdrawn(ctx)
	}
}

// insider returns the actor of a request that the server itself, the application or a graph makes; nil: credentials say who makes it. That of a client whose
// response the application passes on is followed where that response is (frontHTTP).
func (s *Server) insider(c *fiber.Ctx) *access.Actor {
	if i := insideOf(c); i != nil && i.actor() != nil {
		return i.actor()
	}
	if credential := c.Get(access.InsideHeader); credential != "" && s.opts.Inside != nil {
		return s.opts.Inside.Actor(credential)
	}
	return nil
}

// askTime is how long a stream waits to learn whether its credentials were withdrawn. It asks again later.
const askTime = 2 * time.Second

func (s *Server) withdrawn(c *fiber.Ctx) func(ctx context.Context) bool {
	if withdrawn := web.Of(c).Withdrawn; withdrawn != nil {
		return withdrawn
	}
	of, ok := s.opts.Authenticator.(access.Revocable)
	if !ok || web.Of(c).Actor == nil || s.insider(c) != nil {
		return nil
	}
	r, used := s.credentials(c)
	defer s.release(used)
	return of.Follow(r)
}

// Encryption says in which context the content of a request is encrypted.
type Encryption interface {
	// Context returns the context of a request of an actor, nil without authentication, whose header says another one.
	Context(ctx context.Context, said encryption.Context, actor *access.Actor) (encryption.Context, error)
}

// encrypt puts into the context of a request what its content is encrypted in.
func (s *Server) encrypt(c *fiber.Ctx, ctx context.Context) (context.Context, error) { //nolint:revive // the context is that of the request
	if s.opts.Encryption == nil || s.isOpen(c.Method(), c.Path()) {
		return ctx, nil
	}
	said, err := encryption.ParseHeader(string(c.Request().Header.Peek(encryption.Header)))
	if err != nil {
		return nil, err
	}
	in, err := s.opts.Encryption.Context(ctx, said, access.From(ctx))
	if err != nil {
		return nil, err
	}
	return encryption.With(ctx, in), nil
}

// patternFor names the route of a request as the API describes it, so that paths of clients, of which there are any number, are few in the audit log.
func (s *Server) patternFor(method, path string) string {
	segments := strings.Split(path, "/")
	for _, p := range s.patterns {
		if p.method == method && p.matches(segments) {
			return method + " " + strings.Join(p.segments, "/")
		}
	}
	return "another path"
}

// host returns an address without its port.
func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

// credentials is requestFor with what the authenticator reads, which keeps nothing of it. Call release with used after that; it is nil for other authenticators.
func (s *Server) credentials(c *fiber.Ctx) (r *access.Request, used *selected) {
	few, ok := s.opts.Authenticator.(access.Selective)
	if !ok {
		return s.requestFor(c), nil
	}
	headers, address := few.Reads()
	if used, ok = s.selections.Get().(*selected); !ok {
		used = &selected{Request: access.Request{Header: make(http.Header, len(headers))}}
	}
	s.fill(c, &used.Request, address)
	for i, name := range headers {
		values := used.values[i][:0]
		for _, value := range c.Request().Header.PeekAll(name) {
			values = append(values, string(value))
		}
		used.values[i], used.Header[name] = values, values
	}
	return &used.Request, used
}

// maxSelected is how many headers a Selective may read.
const maxSelected = 8

// selected is what a Selective reads of a request. It is used again by the next one, whose headers have the same names: otherwise it would be a quarter of what
// authentication costs.
type selected struct {
	access.Request
	values [maxSelected][]string // of headers
}

// release lets other requests use what credentials returned, in which nothing secret stays.
func (s *Server) release(used *selected) {
	if used == nil {
		return
	}
	for _, values := range used.values {
		clear(values)
	}
	used.Request = access.Request{Header: used.Header}
	s.selections.Put(used)
}

// requestFor is what authentication sees of a request. It shares nothing with it, whose memory is used again.
func (s *Server) requestFor(c *fiber.Ctx) *access.Request {
	r := &access.Request{Header: http.Header{}}
	s.fill(c, r, true)
	c.Request().Header.VisitAll(func(name, value []byte) { r.Header.Add(string(name), string(value)) })
	return r
}

// fill sets everything of r but its headers, and without address what it is addressed to.
func (s *Server) fill(c *fiber.Ctx, r *access.Request, address bool) {
	r.Method, r.Client, r.WebSocket = c.Method(), s.client(c), strings.EqualFold(c.Get(fiber.HeaderUpgrade), "websocket")
	if address {
		r.Path, r.Query = pathOf(c), string(c.Context().QueryArgs().QueryString())
		r.Scheme, r.Host = s.addressed(c)
		r.Secure = r.Scheme == "https"
	}
}

// pathOf is the path of a request, decoded if it can be.
func pathOf(c *fiber.Ctx) string {
	if path, ok := decodedPath(c); ok {
		return path
	}
	return c.Path()
}
