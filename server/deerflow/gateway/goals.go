package gateway

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// goalHandlers serve what a thread works towards.
type goalHandlers struct {
	*base
	*ownership
	*states
}

func (s *goalHandlers) routes() {
	const goal = "/threads/{thread_id}/goal"
	show := func(c *fiber.Ctx, v json.RawMessage) error {
		o := &jsonobj.Object{}
		o.Set("goal", v)
		return web.SendJSON(c, o.JSON())
	}
	none := json.RawMessage("null")
	s.handle("GET", goal, members, s.ownThread(func(c *fiber.Ctx, _ *caller, t string) error {
		v, err := s.goalOf(c, id.Thread(t))
		if err != nil {
			return err
		}
		return show(c, v)
	}))
	s.handle("PUT", goal, members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		return s.form(c, func(f *deerflow.Form) error {
			objective, most := f.Required("objective", 1, 4000), f.Int("max_continuations", 8, 0, 8)
			if err := f.Err(); err != nil {
				return err
			}
			if objective = strings.Join(strings.Fields(objective), " "); objective == "" {
				return fault.New(fault.Unprocessable, "Goal objective must not be empty.")
			}
			v, err := s.ensure(c, who, id.Thread(t), nil)
			if err != nil {
				return err
			}
			now := deerflow.Stamp(time.Now())
			goal, err := json.Marshal(map[string]any{
				"objective": objective, "status": "active", "max_continuations": most, "continuation_count": 0, "created_at": now, "updated_at": now,
			})
			if err != nil {
				return err
			}
			if err := s.setGoal(c, v, goal); err != nil {
				return err
			}
			return show(c, goal)
		})
	}))
	s.handle("DELETE", goal, members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		have, err := s.goalOf(c, id.Thread(t))
		if err == nil && string(have) != string(none) {
			var v *thread.View
			if v, err = s.owned(c, who, t); err == nil {
				err = s.setGoal(c, v, none)
			}
		}
		if err != nil {
			return err
		}
		return show(c, none)
	}))
}

// goalOf returns the goal of a thread; null when it has none.
func (s *goalHandlers) goalOf(c *fiber.Ctx, t id.Thread) (json.RawMessage, error) {
	at, err := s.Threads.State(c.UserContext(), checkpointer.Key{Thread: t}, false)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	if err == nil {
		if goal := jsonobj.Of(at.Values).Get("goal"); goal != nil {
			return goal, nil
		}
	}
	return json.RawMessage("null"), nil
}

func (s *goalHandlers) setGoal(c *fiber.Ctx, v *thread.View, goal json.RawMessage) error {
	if busy, err := s.busy(c, string(v.ID)); err != nil {
		return err
	} else if busy {
		return fault.New(fault.Conflict, "Thread has a run in flight. Update state after the run finishes.")
	}
	values := &jsonobj.Object{}
	values.Set("goal", goal)
	_, err := s.write(c, v, thread.Place{Key: checkpointer.Key{Thread: v.ID}}, values.JSON(), "")
	return err
}
