package server

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/id"
	"understudy/run"
	"understudy/run/cron"
	"understudy/server/internal/web"
)

// cronHandlers serve crons.
type cronHandlers struct {
	*web.Transport
	*web.Completer
	crons Crons
}

func (h *cronHandlers) routes(route register) {
	if h.crons == nil {
		return
	}
	route("POST", "/runs/crons", func(c *fiber.Ctx) error { return h.createCron(c, "") })
	route("POST", "/threads/{thread_id}/runs/crons", withThread(h.createCron))
	route("POST", "/runs/crons/search", h.searchCrons)
	route("POST", "/runs/crons/count", h.countCrons)
	route("GET", "/runs/crons/{cron_id}", withCron(func(c *fiber.Ctx, i id.Cron) error {
		return h.oneCron(c)(h.crons.Get(c.UserContext(), i))
	}))
	route("GET", "/understudy/crons/{cron_id}/times", withCron(h.times))
	route("PATCH", "/runs/crons/{cron_id}", withCron(h.patchCron))
	route("DELETE", "/runs/crons/{cron_id}", withCron(func(c *fiber.Ctx, i id.Cron) error {
		if err := h.crons.Delete(c.UserContext(), i); err != nil {
			return err
		}
		return web.SendNothing(c)
	}))
}

// times lists when a cron makes its next runs.
func (h *cronHandlers) times(c *fiber.Ctx, i id.Cron) error {
	n, err := compat.TimesQuery(func(name string) []string { return web.Queries(c, name) })
	if err != nil {
		return err
	}
	x, err := h.crons.Get(c.UserContext(), i)
	if err != nil {
		return err
	}
	times, err := cron.Upcoming(x, time.Now(), n)
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendTimes(nil, x.Timezone, times))
}

func withCron(h func(*fiber.Ctx, id.Cron) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		i, err := compat.CronID(web.Param(c, "cron_id"))
		if err != nil {
			return err
		}
		return h(c, i)
	}
}

func (h *cronHandlers) oneCron(c *fiber.Ctx) func(*run.Cron, error) error {
	return func(x *run.Cron, err error) error {
		if err != nil {
			return err
		}
		return web.SendJSON(c, compat.AppendCron(nil, x, nil))
	}
}

func (h *cronHandlers) createCron(c *fiber.Ctx, t id.Thread) error {
	return h.WithBody(c, func(body []byte) error {
		n, err := compat.NewCron(body, t)
		if err != nil {
			return err
		}
		if err := h.checkCronWebhook(n.Payload["webhook"]); err != nil {
			return err
		}
		return h.oneCron(c)(h.crons.Create(c.UserContext(), n))
	})
}

// checkCronWebhook validates the webhook of a payload, so that a bad one is refused now and does not fail at night.
func (h *cronHandlers) checkCronWebhook(raw []byte) error {
	return h.Check(compat.Text(raw))
}

func (h *cronHandlers) patchCron(c *fiber.Ctx, i id.Cron) error {
	return h.WithBody(c, func(body []byte) error {
		p, err := compat.PatchCron(body)
		if err != nil {
			return err
		}
		if err := h.checkCronWebhook(p.Payload["webhook"]); err != nil {
			return err
		}
		return h.oneCron(c)(h.crons.Update(c.UserContext(), i, p))
	})
}

func (h *cronHandlers) searchCrons(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, cols, err := compat.SearchCrons(body)
		if err != nil {
			return err
		}
		more := false
		page, err := web.WhileConnected(c, func(ctx context.Context) (page []*run.Cron, err error) {
			page, more, err = h.crons.Search(ctx, q)
			return page, err
		})
		if err != nil {
			return err
		}
		paginate(c, q.Limit, q.Offset, len(page), more)
		return web.SendJSON(c, compat.AppendList(nil, page, func(dst []byte, x *run.Cron) []byte { return compat.AppendCron(dst, x, cols) }))
	})
}

func (h *cronHandlers) countCrons(c *fiber.Ctx) error {
	return h.WithBody(c, func(body []byte) error {
		q, err := compat.CountCrons(body)
		if err != nil {
			return err
		}
		return sendCount(c)(web.WhileConnected(c, func(ctx context.Context) (int, error) { return h.crons.Count(ctx, q) }))
	})
}
