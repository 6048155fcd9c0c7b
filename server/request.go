package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/gofiber/fiber/v2"
	"go.opentelemetry.io/otel/trace"

	"understudy/access"
	"understudy/compat"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/cursor"
	"understudy/internal/idempotency"
	"understudy/internal/logctx"
	"understudy/server/internal/connection"
	"understudy/server/internal/web"
)

// enter is the outermost handler, which applies to every request.
func (s *Server) enter(c *fiber.Ctx) error {
	connection.Answering(c.Context().Conn(), true)
	defer connection.Answering(c.Context().Conn(), false)
	r := web.Begin(c, s.opts.Logged)
	if strings.Contains(c.Path(), ratingPath) { // also where nothing is served, as behind a wrong prefix
		r.HidePath()
	}
	s.StartSpan(c, r)
	head, ok := web.Framed(&c.Request().Header)
	if ok && head.Length > 0 && c.Request().Header.ContentLength() == 0 {
		r.Unwanted = head.Length
	}
	if !ok {
		c.Context().SetConnectionClose()
		if err := s.fail(c, web.ErrFraming); err != nil {
			return err
		}
	} else if err := s.checkHost(c); err != nil {
		if err := s.fail(c, err); err != nil {
			return err
		}
	} else if err := s.awaitLoaded(c); err != nil {
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
	s.Unused(r)
	if !r.BodyRead {
		s.Finish(c)
	}
	if !r.Streamed {
		s.Compress(c)
		s.Done(r, c.Response().StatusCode(), "")
	}
	return nil
}

// protectAnswer sets nosniff, and no-store on answers to users who signed in. The application next to the API sets the headers of its own answers.
func (s *Server) protectAnswer(c *fiber.Ctx, r *web.Request) {
	if r.Route == frontRoute {
		return
	}
	h := &c.Response().Header
	h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	if r.Actor != nil && s.opts.SignIn != nil && s.opts.SignIn.Desk != nil && len(h.Peek(fiber.HeaderCacheControl)) == 0 {
		h.Set(fiber.HeaderCacheControl, "no-store")
	}
}

// handle runs the route, and turns a panic into an error.
func (s *Server) handle(c *fiber.Ctx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("panic in a handler", "request_id", web.Of(c).ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx := s.lifeOf(c)
	r := web.Of(c)
	ctx = logctx.With(ctx, slog.String("request_id", r.ID))
	if r.Span != nil {
		ctx = trace.ContextWithSpan(ctx, r.Span)
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
	if ctx, err = s.authenticate(c, ctx, s.foresee); err != nil {
		return err
	}
	if ctx, err = s.encrypt(c, ctx); err != nil {
		return err
	}
	c.SetUserContext(ctx)
	return c.Next()
}

// chooseOverlay stores the request's choice of transcripts in its context.
func chooseOverlay(c *fiber.Ctx) error {
	choice, err := overlayOf(c)
	if err != nil {
		return err
	}
	c.SetUserContext(overlay.With(c.UserContext(), choice))
	return nil
}

func overlayOf(c *fiber.Ctx) (overlay.Choice, error) {
	return compat.Overlay(web.Given(c, compat.OverlayParam), web.Given(c, compat.MarkersParam), c.Get(compat.OverlayHeader))
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

// queriesOf returns what reads a parameter of a query, with the places in lists that cursors has sealed opened.
func queriesOf(c *fiber.Ctx, cursors *cursor.Sealer) func(name string) []string {
	return func(name string) []string {
		values := web.Queries(c, name)
		if name != "before" && name != "after" {
			return values
		}
		opened := make([]string, len(values))
		for i, v := range values {
			opened[i] = cursors.Open(v)
		}
		return opened
	}
}
