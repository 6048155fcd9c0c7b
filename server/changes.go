package server

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/bridge"
	"understudy/compat"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/internal/web"
	"understudy/thread/changes"
)

// changeHandlers serve the route that reports which threads and runs change.
type changeHandlers struct {
	*web.Transport
	changes Changes
}

func (h *changeHandlers) routes(route register) {
	route("GET", "/understudy/changes", h.follow)
}

// changesBeat is how often the studio hears of a server on which nothing changes. Its pages name one that is silent for two and a half times as long.
const changesBeat = time.Second

func (h *changeHandlers) follow(c *fiber.Ctx) error {
	if err := h.Slot(); err != nil {
		return err
	}
	f, err := h.changes.Follow(c.UserContext())
	if err != nil {
		h.Slots.Give(1)
		return err
	}
	return h.BeatEvents(c, changeFollower{f}, func(*bridge.Record) bool { return false }, changesBeat)
}

// changeFollower makes records of batches of changes.
type changeFollower struct{ *changes.Follower }

func (f changeFollower) Next(ctx context.Context) ([]*bridge.Record, error) {
	b, err := f.Follower.Next(ctx)
	if err != nil {
		return nil, err
	}
	return []*bridge.Record{{Event: compat.ChangesEvent, Data: compat.AppendChanges(nil, b.Threads, b.Runs, b.All)}}, nil
}

func (changeFollower) Result(context.Context) (run.Result, error) {
	return run.Result{}, fault.New(fault.Internal, "changes have no result")
}

func (changeFollower) EnsureDurable(context.Context) error { return nil }

func (f changeFollower) Close(bool) { f.Follower.Close() }
