package gateway

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"understudy/access"
	"understudy/deerflow/settings"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/run"
	"understudy/run/cron"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// taskHandlers serve scheduled tasks.
type taskHandlers struct {
	*base
	*ownership
	Tasks Tasks
}

func (s *taskHandlers) routes() {
	const tasks, task = "/scheduled-tasks", "/scheduled-tasks/{task_id}"
	s.handle("GET", tasks, members, func(c *fiber.Ctx, who *caller) error { return s.listTasks(c, who, "") })
	s.handle("POST", tasks, members, s.createTask)
	s.handle("GET", task, members, s.ofTask(s.Tasks.TaskOf))
	s.handle("PATCH", task, members, s.patchTask)
	s.handle("POST", task+"/pause", members, s.ofTask(s.Tasks.PauseTask))
	s.handle("POST", task+"/resume", members, s.ofTask(s.Tasks.ResumeTask))
	s.handle("POST", task+"/trigger", members, s.triggerTask)
	s.handle("DELETE", task, members, func(c *fiber.Ctx, who *caller) error {
		name := web.Param(c, "task_id")
		if err := s.Tasks.DeleteTask(c.UserContext(), who.id, name); err != nil {
			return err
		}
		return sendTask(c, name, "deleted")
	})
	s.handle("GET", task+"/runs", members, s.occurrences)
	s.handle("GET", "/threads/{thread_id}/scheduled-tasks", members, s.ownThread(func(c *fiber.Ctx, who *caller, t string) error {
		return s.listTasks(c, who, id.Thread(t))
	}))
}

// sendTask answers what was done with a task.
func sendTask(c *fiber.Ctx, task, done string) error {
	o := &jsonobj.Object{}
	o.SetText("id", task)
	o.Set(done, json.RawMessage("true"))
	return web.SendJSON(c, o.JSON())
}

func (s *taskHandlers) listTasks(c *fiber.Ctx, who *caller, t id.Thread) error {
	list, err := s.Tasks.TasksOf(c.UserContext(), who.id, t)
	if err != nil {
		return err
	}
	return sendAll(c, list, deerflow.Task)
}

// sendAll answers with a list.
func sendAll[T any](c *fiber.Ctx, list []T, form func(T) json.RawMessage) error {
	dst := []byte{'['}
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, form(v)...)
	}
	return web.SendJSON(c, append(dst, ']'))
}

// ofTask answers with a task after something was done with it.
func (s *taskHandlers) ofTask(do func(ctx context.Context, account, task string) (*run.Cron, error)) handler {
	return func(c *fiber.Ctx, who *caller) error {
		t, err := do(c.UserContext(), who.id, web.Param(c, "task_id"))
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Task(t))
	}
}

func (s *taskHandlers) triggerTask(c *fiber.Ctx, who *caller) error {
	name := web.Param(c, "task_id")
	err := s.Tasks.TriggerTask(c.UserContext(), who.id, name)
	switch kind := fault.KindOf(err); {
	case err == nil:
		return sendTask(c, name, "triggered")
	case kind == fault.NotFound || kind == fault.Conflict || kind == fault.Internal || kind == fault.Unavailable:
		return err
	}
	return deerflow.Fail(http.StatusBadGateway, err.Error())
}

func (s *taskHandlers) occurrences(c *fiber.Ctx, who *caller) error {
	f := query(c, "limit", "offset")
	limit, offset := f.Int("limit", 50, 1, 200), f.Int("offset", 0, 0, 1<<31)
	if err := f.Err(); err != nil {
		return err
	}
	t, err := s.Tasks.TaskOf(c.UserContext(), who.id, web.Param(c, "task_id"))
	if err != nil {
		return err
	}
	list, err := s.Tasks.Occurrences(c.UserContext(), t, limit, offset)
	if err != nil {
		return err
	}
	return sendAll(c, list, deerflow.Occurrence)
}

// How many characters texts of tasks have at most: an account may have a thousand of them, which are listed at once.
const (
	maxTitle  = 200
	maxPrompt = 20_000
)

func unsupported(what string) error { return fault.New(fault.Unprocessable, "Unsupported "+what) }

func (s *taskHandlers) createTask(c *fiber.Ctx, who *caller) error {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return err
	}
	return s.form(c, func(f *deerflow.Form) error {
		t := f.Text("thread_id", 0, maxText)
		if t != nil && f.IsText("thread_id") {
			f.Thread("thread_id")
		}
		mode := f.TextOr("context_mode", deerflow.FreshThread, 0, maxText)
		n := cron.NewTask{Account: who.id, Assistant: id.DefaultAssistant(lead), Title: f.Required("title", 1, maxTitle), Prompt: f.Required("prompt", 1, maxPrompt)}
		kind := f.Required("schedule_type", 0, maxText)
		n.Spec, n.Timezone = f.RequiredDict("schedule_spec"), f.Required("timezone", 0, maxText)
		if err := f.Err(); err != nil {
			return err
		}
		if t != nil {
			n.Thread = id.Thread(*t)
		}
		if n.Fresh, err = s.taskMode(c, who, mode, n.Thread); err != nil {
			return err
		}
		if n.Once = kind == "once"; !n.Once && kind != "cron" {
			return unsupported("schedule_type")
		}
		if n.Payload, err = s.taskPayload(set, who, n.Prompt); err != nil {
			return err
		}
		made, err := s.Tasks.CreateTask(c.UserContext(), n)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Task(made))
	})
}

// taskMode reports whether each run of a task has a thread of its own. Else the thread has to be the caller's.
func (s *taskHandlers) taskMode(c *fiber.Ctx, who *caller, mode string, t id.Thread) (fresh bool, err error) {
	switch {
	case mode == deerflow.FreshThread:
		return true, nil
	case mode != deerflow.ReuseThread:
		return false, unsupported("context_mode")
	case t == "":
		return false, fault.New(fault.Unprocessable, "reuse_thread requires thread_id")
	}
	v, err := s.bare(c.UserContext(), t)
	if fault.Is(err, fault.NotFound) || err == nil && !owns(who, v) {
		return false, fault.New(fault.NotFound, "Thread not found")
	}
	return false, err
}

// taskPayload is the request of the runs of a task, as of a client that sends the prompt, and asks no questions, which would stay without an answer. The
// runs act as the caller, unless everybody is let in.
func (s *taskHandlers) taskPayload(set *settings.Settings, who *caller, prompt string) (json.RawMessage, error) {
	message := &jsonobj.Object{}
	message.SetText("role", "user")
	message.SetText("content", prompt)
	o := &jsonobj.Object{}
	o.Set("input", json.RawMessage(`{"messages":[`+string(message.JSON())+`]}`))
	o.Set("context", json.RawMessage(`{"non_interactive":true}`))
	o.SetText("on_disconnect", "continue")
	b, err := deerflow.ReadRun(o.JSON(), set, who.id, "")
	if err != nil {
		return nil, err
	}
	payload := jsonobj.Of(b.LangGraph)
	config := jsonobj.Of(payload.Get("config"))
	config.Set("metadata", stamped(nil, who.id)) // of the threads that are made
	if !s.DeerFlow.Open {
		configurable := jsonobj.Of(config.Get("configurable"))
		access.Write(configurable, who.actor())
		config.Set("configurable", configurable.JSON())
	}
	payload.Set("config", config.JSON())
	return payload.JSON(), nil
}

func (s *taskHandlers) patchTask(c *fiber.Ctx, who *caller) error {
	set, err := s.DeerFlow.Settings()
	if err != nil {
		return err
	}
	return s.form(c, func(f *deerflow.Form) error {
		mode, t := f.Text("context_mode", 0, maxText), f.Text("thread_id", 0, maxText)
		if t != nil && f.IsText("thread_id") {
			f.Thread("thread_id")
		}
		p := cron.TaskPatch{Title: f.Text("title", 1, maxTitle), Prompt: f.Text("prompt", 1, maxPrompt), Timezone: f.Text("timezone", 0, maxText)}
		if f.Raw("schedule_spec") != nil {
			p.Spec = f.Dict("schedule_spec")
		}
		if err := f.Err(); err != nil {
			return err
		}
		name := web.Param(c, "task_id")
		was, err := s.Tasks.TaskOf(c.UserContext(), who.id, name)
		if err != nil {
			return err
		}
		if err := cron.Mutable(was); err != nil {
			return err
		}
		now := was.Task.Thread
		if t != nil {
			now = id.Thread(*t)
			p.Thread = &now
		}
		effective := deerflow.ReuseThread
		switch {
		case mode != nil:
			effective = *mode
		case was.Task.Fresh:
			effective = deerflow.FreshThread
		}
		fresh, err := s.taskMode(c, who, effective, now)
		if err != nil {
			return err
		}
		p.Fresh = &fresh
		if p.Prompt != nil {
			if p.Payload, err = s.taskPayload(set, who, *p.Prompt); err != nil {
				return err
			}
		}
		changed, err := s.Tasks.UpdateTask(c.UserContext(), who.id, name, p)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Task(changed))
	})
}
