package gateway

import (
	"errors"
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	domain "understudy/deerflow"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// feedbackHandlers serve what users think of runs.
type feedbackHandlers struct {
	*base
	*ownership
	*feeds
}

func (s *feedbackHandlers) routes() {
	const feedback = "/threads/{thread_id}/runs/{run_id}/feedback"
	s.handle("PUT", feedback, members, s.onExisting(s.rate))
	s.handle("POST", feedback, members, s.onExisting(s.rate))
	s.handle("GET", feedback, members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		list, err := s.DeerFlow.Feedback.FeedbackOf(c.UserContext(), who.id, id.Thread(t), id.Run(web.Param(c, "run_id")))
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedbacks(list))
	}))
	s.handle("GET", "/runs/{run_id}/feedback", members, s.anyRun(func(c *fiber.Ctx, who *caller, x *run.Run) error {
		list, err := s.DeerFlow.Feedback.FeedbackOf(c.UserContext(), who.id, x.Thread, x.ID)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedbacks(list))
	}))
	s.handle("GET", feedback+"/stats", members, s.ownThread(func(c *fiber.Ctx, _ *caller, t string) error {
		r := web.Param(c, "run_id")
		tally, err := s.DeerFlow.Feedback.TallyFeedback(c.UserContext(), id.Thread(t), id.Run(r))
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Tally(r, tally))
	}))
	s.handle("DELETE", feedback, members, s.onExisting(func(c *fiber.Ctx, who *caller, t string) error {
		list, err := s.DeerFlow.Feedback.FeedbackOf(c.UserContext(), who.id, id.Thread(t), id.Run(web.Param(c, "run_id")))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fault.New(fault.NotFound, "No feedback found for this run")
		}
		return s.unrate(c, list[0])
	}))
	s.handle("DELETE", feedback+"/{feedback_id}", members, s.onExisting(func(c *fiber.Ctx, who *caller, t string) error {
		f, r := web.Param(c, "feedback_id"), web.Param(c, "run_id")
		one, err := s.DeerFlow.Feedback.Feedback(c.UserContext(), f)
		switch {
		case fault.Is(err, fault.NotFound) || err == nil && one.User != who.id:
			return fault.Newf(fault.NotFound, "Feedback %s not found", f)
		case err != nil:
			return err
		case one.Thread != id.Thread(t) || one.Run != id.Run(r):
			return fault.Newf(fault.NotFound, "Feedback %s not found in run %s", f, r)
		}
		return s.unrate(c, one)
	}))
}

func (s *feedbackHandlers) unrate(c *fiber.Ctx, f domain.Feedback) error {
	err := s.DeerFlow.Feedback.DeleteFeedback(c.UserContext(), f.ID)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "No feedback found for this run")
	} else if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Success(""))
}

// rate sets what the caller thinks of a run.
func (s *feedbackHandlers) rate(c *fiber.Ctx, who *caller, t string) error {
	return s.form(c, func(f *deerflow.Form) error {
		rating := f.RequiredInt("rating", math.MinInt, math.MaxInt)
		comment, message := f.Text("comment", 0, maxText), f.Text("message_id", 0, 1000)
		if err := f.Err(); err != nil {
			return err
		}
		if rating != 1 && rating != -1 {
			return fault.New(fault.Invalid, "rating must be +1 or -1")
		}
		r, err := s.rated(c, who, t)
		if err != nil {
			return err
		}
		kept, err := s.DeerFlow.Feedback.PutFeedback(c.UserContext(), domain.Feedback{
			ID: string(id.NewRun()), Run: r, Thread: id.Thread(t), User: who.id, Message: message, Rating: rating, Comment: comment, CreatedAt: time.Now(),
		})
		if fault.Is(err, fault.NotFound) {
			return deerflow.NoThread(t)
		} else if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Feedback(kept))
	})
}

// rated returns the run of the path, whose answers the thread shows. The messages of a run may be there without it: they were imported, came with a branch, or the run was deleted.
func (s *feedbackHandlers) rated(c *fiber.Ctx, who *caller, t string) (id.Run, error) {
	r := web.Param(c, "run_id")
	x, err := s.findRun(c, "", r)
	if err == nil && string(x.Thread) == t {
		return x.ID, nil
	}
	if none := (*deerflow.Failure)(nil); err != nil && !errors.As(err, &none) || id.Canonical(r) != r {
		return "", err
	}
	_, missing := s.Events.Messages(c.UserContext(), eventstore.PageQuery{Thread: id.Thread(t), Run: id.Run(r), Limit: 1, Bytes: 1})
	switch {
	case missing == nil:
		return id.Run(r), nil
	case !fault.Is(missing, fault.NotFound):
		return "", missing
	case err != nil:
		return "", err
	}
	return "", s.elsewhere(c, who, x, t)
}
