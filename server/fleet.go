package server

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"understudy/bridge"
	"understudy/compat"
	"understudy/internal/fault"
	"understudy/internal/fleet"
	"understudy/run"
	"understudy/server/internal/web"
)

// fleetHandlers serve the servers of the database and their logs.
type fleetHandlers struct {
	*web.Transport
	fleet Fleet
}

func (h *fleetHandlers) routes(route register) {
	route("GET", "/understudy/servers", h.servers)
	route("GET", "/understudy/logs", h.logs)
	route("GET", "/understudy/logs/stream", h.follow)
}

func (h *fleetHandlers) servers(c *fiber.Ctx) error {
	list, err := web.WhileConnected(c, func(ctx context.Context) ([]fleet.Server, error) { return h.fleet.Servers(ctx) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendServers(nil, list))
}

func (h *fleetHandlers) logs(c *fiber.Ctx) error {
	q, err := compat.LogQuery(func(name string) []string { return web.Queries(c, name) })
	if err != nil {
		return err
	}
	list, err := web.WhileConnected(c, func(ctx context.Context) ([]fleet.Logged, error) { return h.fleet.Logs(ctx, q) })
	if err != nil {
		return err
	}
	return web.SendJSON(c, compat.AppendLogs(nil, list))
}

// follow streams the last lines, and those that follow.
func (h *fleetHandlers) follow(c *fiber.Ctx) error {
	q, err := compat.LogQuery(func(name string) []string { return web.Queries(c, name) })
	if err != nil {
		return err
	}
	if err := h.Slot(); err != nil {
		return err
	}
	f, first, err := h.fleet.Follow(c.UserContext(), q)
	if err != nil {
		h.Slots.Give(1)
		return err
	}
	return h.StreamEvents(c, &logFollower{f, first, false}, func(*bridge.Record) bool { return false })
}

// logFollower makes records of lines.
type logFollower struct {
	*fleet.Follower
	first []fleet.Logged
	begun bool
}

func (f *logFollower) Next(ctx context.Context) ([]*bridge.Record, error) {
	list := f.first
	if f.begun {
		var err error
		if list, err = f.Follower.Next(ctx); err != nil {
			return nil, err
		}
	}
	f.first, f.begun = nil, true
	return []*bridge.Record{{Event: compat.LogsEvent, Data: compat.AppendLogs(nil, list)}}, nil
}

func (*logFollower) Result(context.Context) (run.Result, error) {
	return run.Result{}, fault.New(fault.Internal, "logs have no result")
}

func (*logFollower) EnsureDurable(context.Context) error { return nil }

func (*logFollower) Close(bool) {}
