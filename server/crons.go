package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

func (s *Server) cronRoutes() {
	if s.opts.Crons == nil {
		return
	}
	s.route("POST", "/runs/crons", func(c *fiber.Ctx) error { return s.createCron(c, "") })
	s.route("POST", "/threads/{thread_id}/runs/crons", withThread(s.createCron))
	s.route("POST", "/runs/crons/search", s.searchCrons)
	s.route("POST", "/runs/crons/count", s.countCrons)
	s.route("GET", "/runs/crons/{cron_id}", s.withCron(func(c *fiber.Ctx, i id.Cron) error {
		return s.oneCron(c)(s.opts.Crons.Get(c.UserContext(), i))
	}))
	s.route("PATCH", "/runs/crons/{cron_id}", s.withCron(s.patchCron))
	s.route("DELETE", "/runs/crons/{cron_id}", s.withCron(func(c *fiber.Ctx, i id.Cron) error {
		if err := s.opts.Crons.Delete(c.UserContext(), i); err != nil {
			return err
		}
		return sendNothing(c)
	}))
}

func (s *Server) withCron(h func(*fiber.Ctx, id.Cron) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		i, err := compat.CronID(param(c, "cron_id"))
		if err != nil {
			return err
		}
		return h(c, i)
	}
}

func (s *Server) oneCron(c *fiber.Ctx) func(*run.Cron, error) error {
	return func(x *run.Cron, err error) error {
		if err != nil {
			return err
		}
		return sendJSON(c, compat.AppendCron(nil, x, nil))
	}
}

func (s *Server) createCron(c *fiber.Ctx, t id.Thread) error {
	return s.withBody(c, func(body []byte) error {
		n, err := compat.NewCron(body, t)
		if err != nil {
			return err
		}
		if err := s.checkCronWebhook(n.Payload["webhook"]); err != nil {
			return err
		}
		return s.oneCron(c)(s.opts.Crons.Create(c.UserContext(), n))
	})
}

// checkCronWebhook validates the webhook of a payload, so that a bad one is refused now and does not fail at night.
func (s *Server) checkCronWebhook(raw []byte) error {
	address := compat.Text(raw)
	switch {
	case address == "":
		return nil
	case s.opts.Disable.Webhooks:
		return fault.New(fault.Unprocessable, "Webhooks are disabled")
	case s.opts.CheckWebhook != nil:
		return s.opts.CheckWebhook(address)
	}
	return nil
}

func (s *Server) patchCron(c *fiber.Ctx, i id.Cron) error {
	return s.withBody(c, func(body []byte) error {
		p, err := compat.PatchCron(body)
		if err != nil {
			return err
		}
		if err := s.checkCronWebhook(p.Payload["webhook"]); err != nil {
			return err
		}
		return s.oneCron(c)(s.opts.Crons.Update(c.UserContext(), i, p))
	})
}

func (s *Server) searchCrons(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		q, cols, err := compat.SearchCrons(body)
		if err != nil {
			return err
		}
		more := false
		page, err := reading(c, func(ctx context.Context) (page []*run.Cron, err error) {
			page, more, err = s.opts.Crons.Search(ctx, q)
			return page, err
		})
		if err != nil {
			return err
		}
		paginate(c, q.Limit, q.Offset, len(page), more)
		return sendJSON(c, compat.AppendList(nil, page, func(dst []byte, x *run.Cron) []byte { return compat.AppendCron(dst, x, cols) }))
	})
}

func (s *Server) countCrons(c *fiber.Ctx) error {
	return s.withBody(c, func(body []byte) error {
		q, err := compat.CountCrons(body)
		if err != nil {
			return err
		}
		return sendCount(c)(reading(c, func(ctx context.Context) (int, error) { return s.opts.Crons.Count(ctx, q) }))
	})
}
