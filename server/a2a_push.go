package server

import (
	"errors"
	"slices"

	"github.com/gofiber/fiber/v2"

	"understudy/assistant"
	"understudy/internal/fault"
	"understudy/run/webhook"
	"understudy/server/a2a"
	"understudy/server/internal/web"
)

// withPush returns a list of configurations with another one, in place of that with its ID. The list is not changed.
func withPush(list []webhook.Push, p webhook.Push) []webhook.Push {
	list = slices.DeleteFunc(slices.Clone(list), func(had webhook.Push) bool { return had.ID == p.ID })
	return append(list, p)
}

// errEnded ends a change of a run that has ended since its task was read.
var errEnded = errors.New("the run has ended meanwhile")

// pushConfig answers the methods for the push notifications of a task.
func (h *a2aHandlers) pushConfig(c *fiber.Ctx, call a2a.Call, a *assistant.Assistant) error {
	if !h.Webhooks {
		return a2a.NoPush()
	}
	task, config := call.PushPlace()
	ctx := c.UserContext()
	key, t, err := h.namedTask(ctx, call, a, task)
	if err != nil {
		return err
	}
	name := call.Params.Get(config).String()
	find := func(list []webhook.Push) int {
		return slices.IndexFunc(list, func(p webhook.Push) bool { return p.ID == name || name == "" && call.Method == a2a.GetPush })
	}
	change := func(fn func([]webhook.Push) ([]webhook.Push, error)) error {
		for {
			err := h.runs.SetPush(ctx, key.Thread, t.Last.ID, func(list []webhook.Push, over bool) ([]webhook.Push, error) {
				if over != t.Last.Status.Over() {
					return nil, errEnded
				}
				return fn(list)
			})
			switch {
			case fault.Is(err, fault.NotFound):
				return a2a.NoTask(key.String())
			case !errors.Is(err, errEnded):
				return err
			}
			if _, t, err = h.namedTask(ctx, call, a, task); err != nil {
				return err
			}
		}
	}
	var result []byte
	switch call.Method {
	case a2a.SetPush:
		p, err := call.ReadPush(call.PushOf())
		if err != nil {
			return err
		}
		p.Task = key.String()
		if err := change(func(list []webhook.Push) ([]webhook.Push, error) {
			if t.State().Terminal() { // nothing would ever be sent
				return withPush(list, p), a2a.EndedTask()
			}
			return withPush(list, p), nil
		}); err != nil {
			return err
		}
		result = call.AppendPush(nil, key, &p)
	case a2a.GetPush:
		at := find(t.Last.Kwargs.Push)
		if at < 0 {
			return a2a.NoPushConfig()
		}
		result = call.AppendPush(nil, key, &t.Last.Kwargs.Push[at])
	case a2a.ListPush:
		result = call.AppendPushList(nil, key, t.Last.Kwargs.Push)
	case a2a.DeletePush:
		if err := change(func(list []webhook.Push) ([]webhook.Push, error) {
			at := find(list)
			if at < 0 {
				return nil, a2a.NoPushConfig()
			}
			return slices.Delete(slices.Clone(list), at, at+1), nil
		}); err != nil {
			return err
		}
		result = []byte("null")
	}
	return web.SendJSON(c, call.AppendResult(nil, result))
}
