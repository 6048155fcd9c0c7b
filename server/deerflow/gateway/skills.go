package gateway

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/deerflow/files"
	"understudy/deerflow/skill"
	"understudy/internal/fault"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// skillHandlers serve skills.
type skillHandlers struct {
	*base
	*ownership
}

func (s *skillHandlers) routes() {
	s.handle("GET", "/skills", members, func(c *fiber.Ctx, who *caller) error {
		list, err := s.DeerFlow.Skills.List(who.id)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Skills(list))
	})
	s.handle("POST", "/skills/install", admins, s.installSkill)
	s.handle("POST", "/skills/reload", admins, func(c *fiber.Ctx, _ *caller) error {
		// Skills are read at each use.
		return web.SendJSON(c, deerflow.Of(struct {
			Success bool   `json:"success"`
			Scope   string `json:"scope"`
			Message string `json:"message"`
		}{true, "process", "Skills are read again with the next run."}))
	})
	s.handle("GET", "/skills/custom", members, func(c *fiber.Ctx, who *caller) error {
		list, err := s.DeerFlow.Skills.List(who.id)
		if err != nil {
			return err
		}
		own := []*skill.Skill{}
		for _, one := range list {
			if one.Category == skill.Custom {
				own = append(own, one)
			}
		}
		return web.SendJSON(c, deerflow.Skills(own))
	})
	s.handle("GET", "/skills/custom/{name}", admins, s.showSkill)
	s.handle("PUT", "/skills/custom/{name}", admins, func(c *fiber.Ctx, who *caller) error {
		return s.form(c, func(f *deerflow.Form) error {
			content := f.Required("content", 0, maxForm)
			if err := f.Err(); err != nil {
				return err
			}
			if err := s.DeerFlow.Skills.Edit(c.UserContext(), who.id, web.Param(c, "name"), content); err != nil {
				return err
			}
			return s.showSkill(c, who)
		})
	})
	s.handle("DELETE", "/skills/custom/{name}", admins, func(c *fiber.Ctx, who *caller) error {
		if err := s.DeerFlow.Skills.Delete(who.id, web.Param(c, "name")); err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Success(""))
	})
	s.handle("GET", "/skills/custom/{name}/history", admins, func(c *fiber.Ctx, who *caller) error {
		list, err := s.DeerFlow.Skills.History(who.id, web.Param(c, "name"))
		if err != nil {
			return err
		}
		if list == nil {
			list = []skill.Change{}
		}
		return web.SendJSON(c, deerflow.Of(map[string]any{"history": list}))
	})
	s.handle("POST", "/skills/custom/{name}/rollback", admins, func(c *fiber.Ctx, who *caller) error {
		return s.form(c, func(f *deerflow.Form) error {
			index := f.Int("history_index", -1, -1<<30, 1<<30)
			if err := f.Err(); err != nil {
				return err
			}
			if err := s.DeerFlow.Skills.Rollback(c.UserContext(), who.id, web.Param(c, "name"), index); err != nil {
				return err
			}
			return s.showSkill(c, who)
		})
	})
	s.handle("GET", "/skills/{name}", members, func(c *fiber.Ctx, who *caller) error {
		one, err := s.DeerFlow.Skills.Find(who.id, web.Param(c, "name"))
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Skill(one))
	})
	s.handle("PUT", "/skills/{name}", admins, func(c *fiber.Ctx, who *caller) error {
		return s.form(c, func(f *deerflow.Form) error {
			on := f.RequiredBool("enabled")
			if err := f.Err(); err != nil {
				return err
			}
			one, err := s.DeerFlow.Skills.Switch(who.id, web.Param(c, "name"), on)
			if err != nil {
				return err
			}
			return web.SendJSON(c, deerflow.Skill(one))
		})
	})
}

func (s *skillHandlers) showSkill(c *fiber.Ctx, who *caller) error {
	one, content, err := s.DeerFlow.Skills.Read(who.id, web.Param(c, "name"))
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.SkillText(one, content))
}

// installSkill installs an archive that lies among the files of a thread.
func (s *skillHandlers) installSkill(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		t, p := f.Required("thread_id", 0, 1024), f.Required("path", 0, 4096)
		if f.Err() == nil {
			f.Thread("thread_id")
		}
		if err := f.Err(); err != nil {
			return err
		}
		if _, err := s.checkOwner(c, who, t); err != nil {
			return err
		}
		name, err := files.Name(p)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(name, ".skill") {
			return fault.New(fault.Invalid, "File must have the suffix .skill")
		}
		missing := fault.Newf(fault.NotFound, "Skill file not found: %s", p)
		thread, err := s.DeerFlow.Home.Thread(who.id, t, false)
		if errors.Is(err, fs.ErrNotExist) {
			return missing
		} else if err != nil {
			return err
		}
		defer thread.Close()
		archive, info, err := thread.Open(name, p)
		if fault.Is(err, fault.NotFound) {
			return missing
		} else if err != nil {
			return err
		}
		defer archive.Close()
		installed, err := s.DeerFlow.Skills.Install(c.UserContext(), who.id, archive, info.Size())
		if err != nil {
			return err
		}
		return web.SendJSON(c.Status(http.StatusOK), deerflow.Of(struct {
			Success bool   `json:"success"`
			Name    string `json:"skill_name"`
			Message string `json:"message"`
		}{true, installed, "Skill '" + installed + "' installed successfully"}))
	})
}
