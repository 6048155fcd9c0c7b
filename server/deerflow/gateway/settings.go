package gateway

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	domain "understudy/deerflow"
	"understudy/deerflow/settings"
	"understudy/internal/fault"
	"understudy/server/deerflow"
	"understudy/server/internal/web"
)

// channelNames are the chat programs that DeerFlow knows. None is served here yet.
var channelNames = []string{"buzz", "dingtalk", "discord", "feishu", "github", "slack", "telegram", "wechat", "wecom"}

// settingsHandlers serve the settings, MCP servers, suggestions, and the state of channels.
type settingsHandlers struct {
	*base
	*ownership
}

func (s *settingsHandlers) routes() {
	s.handle("GET", "/models", members, s.withSettings(func(c *fiber.Ctx, set *settings.Settings) error {
		return web.SendJSON(c, deerflow.Models(set))
	}))
	s.handle("GET", "/models/{name}", members, s.withSettings(func(c *fiber.Ctx, set *settings.Settings) error {
		m := set.Model(web.Param(c, "name"))
		if m == nil {
			return fault.Newf(fault.NotFound, "Model '%s' not found", web.Param(c, "name"))
		}
		return web.SendJSON(c, deerflow.Model(m))
	}))
	s.handle("GET", "/features", members, s.withSettings(func(c *fiber.Ctx, set *settings.Settings) error {
		return web.SendJSON(c, deerflow.Of(map[string]any{
			"agents_api": set.AgentsAPI, "browser_control": settings.Switch{}, "mcp_tasks": settings.Switch{},
		}))
	}))
	s.handle("GET", "/suggestions/config", members, s.withSettings(func(c *fiber.Ctx, set *settings.Settings) error {
		return web.SendJSON(c, deerflow.Of(struct {
			Enabled bool `json:"enabled"`
			Max     int  `json:"max_suggestions"`
		}{set.Suggestions.Enabled, set.Suggestions.Max}))
	}))
	s.handle("POST", "/threads/{thread_id}/suggestions", members, s.ownThread(s.suggest))
	s.handle("POST", "/input-polish", members, s.polish)
	s.handle("GET", "/mcp/config", admins, s.showServers)
	s.handle("PUT", "/mcp/config", admins, s.setServers)
	s.handle("PATCH", "/mcp/config", admins, s.switchServer)
	s.handle("POST", "/mcp/cache/reset", admins, func(c *fiber.Ctx, _ *caller) error {
		// The file is read again when it changes.
		return web.SendJSON(c, deerflow.Success("MCP tools are loaded again with the next run."))
	})
	s.channelRoutes()
}

func (s *settingsHandlers) withSettings(h func(*fiber.Ctx, *settings.Settings) error) handler {
	return func(c *fiber.Ctx, _ *caller) error {
		set, err := s.DeerFlow.Settings()
		if err != nil {
			return err
		}
		return h(c, set)
	}
}

// maxTurns bounds the messages that suggestions are made from.
const maxTurns = 200

func (s *settingsHandlers) suggest(c *fiber.Ctx, _ *caller, _ string) error {
	return s.form(c, func(f *deerflow.Form) error {
		if !f.Has("messages") {
			f.Fail("messages", "missing", "Field required")
		}
		var turns []domain.Turn
		f.Each("messages", func(i int, e gjson.Result) {
			f.Fields("messages", i, e, "role", "content")
			turns = append(turns, domain.Turn{Role: e.Get("role").Str, Content: e.Get("content").Str})
		})
		n, model := f.Int("n", 3, 1, 5), f.Text("model_name", 0, 200)
		if err := f.Err(); err != nil {
			return err
		}
		name := ""
		if model != nil {
			name = *model
		}
		list, err := s.DeerFlow.Suggest(c.UserContext(), turns[max(0, len(turns)-maxTurns):], n, name)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(map[string]any{"suggestions": list}))
	})
}

func (s *settingsHandlers) polish(c *fiber.Ctx, _ *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		text := f.Required("text", 0, maxForm)
		f.Text("locale", 0, maxText)
		f.Text("thread_id", 0, maxText)
		if err := f.Err(); err != nil {
			return err
		}
		next, err := s.DeerFlow.Polish(c.UserContext(), text)
		if err != nil {
			return err
		}
		return web.SendJSON(c, deerflow.Of(struct {
			Text    string `json:"rewritten_text"`
			Changed bool   `json:"changed"`
		}{next, next != text}))
	})
}

func (s *settingsHandlers) showServers(c *fiber.Ctx, _ *caller) error {
	list, err := s.DeerFlow.Extensions.Servers()
	if err != nil {
		return err
	}
	return web.SendJSON(c, deerflow.Of(map[string]any{"mcp_servers": list}))
}

func (s *settingsHandlers) setServers(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		if !f.Has("mcp_servers") {
			f.Fail("mcp_servers", "missing", "Field required")
		}
		next := f.Object("mcp_servers")
		if err := f.Err(); err != nil {
			return err
		}
		if err := s.DeerFlow.Extensions.SetServers(next, s.DeerFlow.Commands); err != nil {
			return err
		}
		return s.showServers(c, who)
	})
}

func (s *settingsHandlers) switchServer(c *fiber.Ctx, who *caller) error {
	return s.form(c, func(f *deerflow.Form) error {
		name, on := f.Required("server_name", 1, 200), f.RequiredBool("enabled")
		if err := f.Err(); err != nil {
			return err
		}
		if err := s.DeerFlow.Extensions.Enable(name, on); err != nil {
			return err
		}
		return s.showServers(c, who)
	})
}

// channelRoutes say that no chat program is connected: channels are programs of their own, which use the API.
func (s *settingsHandlers) channelRoutes() {
	s.handle("GET", "/channels", members, func(c *fiber.Ctx, _ *caller) error {
		c.Set(fiber.HeaderLocation, c.Path()+"/")
		return c.SendStatus(http.StatusTemporaryRedirect)
	})
	s.handle("GET", "/channels/", members, func(c *fiber.Ctx, _ *caller) error {
		type state struct {
			Enabled bool `json:"enabled"`
			Running bool `json:"running"`
		}
		all := map[string]state{}
		for _, n := range channelNames {
			all[n] = state{}
		}
		return web.SendJSON(c, deerflow.Of(map[string]any{"service_running": false, "channels": all}))
	})
	s.handle("POST", "/channels/{name}/restart", admins, func(*fiber.Ctx, *caller) error {
		return fault.New(fault.Unavailable, "Channel service is not running")
	})
	off := func(*fiber.Ctx, *caller) error {
		return fault.New(fault.Invalid, "Channel connections are disabled")
	}
	s.handle("POST", "/channels/{name}/runtime-config", admins, off)
	s.handle("DELETE", "/channels/{name}/runtime-config", admins, off)
	s.handle("POST", "/channels/{name}/connect", members, off)
	s.handle("DELETE", "/channels/connections/{connection_id}", members, off)
	s.handle("GET", "/channels/providers", members, func(c *fiber.Ctx, _ *caller) error {
		return web.SendJSON(c, []byte(`{"enabled":false,"providers":[]}`))
	})
	s.handle("GET", "/channels/connections", members, func(c *fiber.Ctx, _ *caller) error {
		return web.SendJSON(c, []byte(`{"connections":[]}`))
	})
}
