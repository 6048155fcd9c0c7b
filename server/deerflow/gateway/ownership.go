package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/deerflow/files"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
	"understudy/thread"
)

// ownership finds threads and runs for their owner. For everybody else they do not exist.
type ownership struct {
	Threads Threads
	Runs    Runs
}

// bare returns a thread of anybody without its values, which may be large: one of another user is answered otherwise than one that does not exist.
func (s *ownership) bare(ctx context.Context, t id.Thread) (*thread.View, error) {
	page, _, err := s.Threads.Search(access.With(ctx, access.System), thread.Search{Query: thread.Query{IDs: []id.Thread{t}, Limit: 1}, NoValues: true})
	if err == nil && len(page) == 0 {
		err = fault.New(fault.NotFound, "Thread not found")
	}
	if err != nil {
		return nil, err
	}
	return page[0], nil
}

// owned returns a thread of the caller, without its values.
func (s *ownership) owned(c *fiber.Ctx, who *caller, t string) (*thread.View, error) {
	v, err := s.bare(c.UserContext(), id.Thread(t))
	if fault.Is(err, fault.NotFound) || err == nil && !owns(who, v) {
		return nil, deerflow.NoThread(t)
	}
	return v, err
}

// ofPath is owned for the thread in the path. The audit log has who asked for one of another user.
func (s *ownership) ofPath(c *fiber.Ctx, who *caller, t string) (*thread.View, error) {
	v, err := s.owned(c, who, t)
	if none := (*deerflow.Failure)(nil); errors.As(err, &none) {
		web.Of(c).Miss(c)
	}
	return v, err
}

// checkOwner refuses another user's thread. exists: there is one, and it is the caller's.
func (s *ownership) checkOwner(c *fiber.Ctx, who *caller, t string) (exists bool, err error) {
	v, err := s.bare(c.UserContext(), id.Thread(t))
	switch {
	case fault.Is(err, fault.NotFound):
		return false, nil
	case err != nil:
		return false, err
	case !owns(who, v):
		web.Of(c).Miss(c)
		return false, deerflow.NoThread(t)
	}
	return true, nil
}

// existing lets a handler see a thread that exists and is the caller's. All others are not found, in the same words.
func (s *ownership) existing(h func(c *fiber.Ctx, who *caller, v *thread.View) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		t, err := threadOf(c)
		if err != nil {
			return err
		}
		v, err := s.ofPath(c, who, t)
		if err != nil {
			return err
		}
		return h(c, who, v)
	}
}

// onExisting is ownThread for what changes a thread, which has to exist.
func (s *ownership) onExisting(h func(c *fiber.Ctx, who *caller, t string) error) handler {
	return s.existing(func(c *fiber.Ctx, who *caller, v *thread.View) error { return h(c, who, string(v.ID)) })
}

// onThread reads the thread of the path before the body. It has to exist.
func (s *ownership) onThread(h handler) handler {
	return s.existing(func(c *fiber.Ctx, who *caller, _ *thread.View) error { return h(c, who) })
}

// ownThread lets a handler see a thread that is the caller's or has no owner.
func (s *ownership) ownThread(h func(c *fiber.Ctx, who *caller, t string) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		t, err := threadOf(c)
		if err != nil {
			return err
		}
		if _, err := s.checkOwner(c, who, t); err != nil {
			return err
		}
		return h(c, who, t)
	}
}

// threadOf reads the id of a thread from the path, in the Gateway's form.
func threadOf(c *fiber.Ctx) (string, error) {
	t := web.Param(c, "thread_id")
	if !files.IsThread(t) {
		return "", deerflow.Problems{deerflow.BadThread("path", "thread_id", t)}
	}
	return t, nil
}

func owns(who *caller, v *thread.View) bool {
	return ownerOf(v.Metadata) == who.id
}

// ownerOf returns whose a thread with this metadata is; "" when it has no owner.
func ownerOf(metadata json.RawMessage) string {
	return gjson.GetBytes(metadata, deerflow.OwnerKey).String()
}

// stamped returns metadata of a client with the owner in it, and without what the server alone may say.
func stamped(metadata json.RawMessage, owner string) json.RawMessage {
	o := jsonobj.Of(metadata)
	for _, key := range deerflow.ReservedKeys {
		o.Delete(key)
	}
	if owner != "" {
		o.SetText(deerflow.OwnerKey, owner)
	}
	return o.JSON()
}

// ensure returns the caller's thread with an id, made if there is none.
func (s *ownership) ensure(c *fiber.Ctx, who *caller, t id.Thread, metadata json.RawMessage) (v *thread.View, err error) {
	if v, err = s.Threads.Create(c.UserContext(), thread.New{ID: t, Metadata: stamped(metadata, who.id), IfExists: "do_nothing", NoValues: true}); err != nil && !fault.Is(err, fault.Conflict) {
		return nil, err
	}
	if err != nil || !owns(who, v) { // another user has it
		return nil, deerflow.NoThread(string(t))
	}
	return v, nil
}

// busy reports whether a run of a thread is pending or running.
func (s *ownership) busy(c *fiber.Ctx, t string) (bool, error) {
	for _, status := range []run.Status{run.Running, run.Pending} {
		list, err := s.Runs.List(c.UserContext(), id.Thread(t), run.Query{Status: status, Limit: 1, Bytes: 1})
		if fault.Is(err, fault.NotFound) {
			return false, nil
		} else if err != nil || len(list) > 0 {
			return len(list) > 0, err
		}
	}
	return false, nil
}

// findRun returns a run of a thread.
func (s *ownership) findRun(c *fiber.Ctx, t, r string) (*run.Run, error) {
	if id.Canonical(r) != r {
		return nil, deerflow.NoRun(r)
	}
	x, err := s.Runs.Get(c.UserContext(), id.Thread(t), id.Run(r))
	if fault.Is(err, fault.NotFound) {
		return nil, deerflow.NoRun(r)
	}
	return x, err
}

// ownRun lets a handler see a run of the caller's thread.
func (s *ownership) ownRun(h func(c *fiber.Ctx, who *caller, x *run.Run) error) handler {
	return s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		x, err := s.findRun(c, t, web.Param(c, "run_id"))
		if err != nil {
			return err
		}
		return h(c, who, x)
	})
}

// anyRun finds a run by its id alone. One on another user's thread is not found.
func (s *ownership) anyRun(h func(c *fiber.Ctx, who *caller, x *run.Run) error) handler {
	return func(c *fiber.Ctx, who *caller) error {
		x, err := s.findRun(c, "", web.Param(c, "run_id"))
		if err == nil {
			err = s.checkRun(c, who, x)
		}
		if err != nil {
			return err
		}
		return h(c, who, x)
	}
}

// elsewhere returns the error for a run that is not in thread t: if its own thread is another user's, the run does not exist for the caller.
func (s *ownership) elsewhere(c *fiber.Ctx, who *caller, x *run.Run, t string) error {
	if err := s.checkRun(c, who, x); err != nil {
		return err
	}
	return fault.Newf(fault.NotFound, "Run %s not found in thread %s", x.ID, t)
}

// checkRun refuses a run whose thread is not the caller's: for them there is no such run.
func (s *ownership) checkRun(c *fiber.Ctx, who *caller, x *run.Run) error {
	_, err := s.owned(c, who, string(x.Thread))
	if f := (*deerflow.Failure)(nil); errors.As(err, &f) && f.Status == http.StatusNotFound {
		return deerflow.NoRun(string(x.ID))
	}
	return err
}
