package server

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/id"
	"understudy/run"
	"understudy/run/spans"
	"understudy/server/internal/web"
)

// spanHandlers serve the spans of runs.
type spanHandlers struct{ runs Runs }

func (h *spanHandlers) routes(route register) {
	route("GET", "/understudy/runs/{run_id}/spans", h.list)
	route("GET", "/understudy/runs/{run_id}/otlp", h.otlp)
}

// spansOf returns whose spans a request is for, and which of them.
func spansOf(c *fiber.Ctx) (r id.Run, q compat.SpanQuery, err error) {
	if r, err = compat.RunID(web.Param(c, "run_id")); err == nil {
		q, err = compat.NewSpanQuery(func(name string) []string { return web.Queries(c, name) })
	}
	return r, q, err
}

// otlp answers with all spans of a run as a collector of OpenTelemetry takes them.
func (h *spanHandlers) otlp(c *fiber.Ctx) error {
	r, q, err := spansOf(c)
	if err != nil {
		return err
	}
	body, err := web.WhileConnected(c, func(ctx context.Context) ([]byte, error) {
		of, list, err := h.runs.Spans(ctx, r)
		if err != nil {
			return nil, err
		}
		return spans.OTLP(ctx, of, list, q.Content(), time.Now())
	})
	if err != nil {
		return err
	}
	return web.SendJSON(c, body)
}

// list answers with a page of the spans of a run, and the run.
func (h *spanHandlers) list(c *fiber.Ctx) error {
	r, q, err := spansOf(c)
	if err != nil {
		return err
	}
	var of *run.Run
	list, err := web.WhileConnected(c, func(ctx context.Context) (list []spans.Span, err error) {
		of, list, err = h.runs.Spans(ctx, r)
		return list, err
	})
	if err != nil {
		return err
	}
	return web.SendJSON(c, q.Append(nil, of, list))
}
