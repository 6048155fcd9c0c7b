package gateway

import (
	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
	"understudy/server/internal/web"
	"understudy/thread"
)

// absentHandlers answer for parts of the Gateway that are switched off there unless they are configured, and that this server does not have: the web UI
// asks for them, and hides what is not there.
type absentHandlers struct {
	*base
	*ownership
}

func (s *absentHandlers) routes() {
	absent := func(text string) handler {
		return func(*fiber.Ctx, *caller) error { return fault.New(fault.NotFound, text) }
	}
	s.handle("POST", "/webhooks/{source}", anybody, absent("Not Found")) // as the Gateway without a secret: senders have no session

	const tasks = "/threads/{thread_id}/mcp-tasks"
	s.handle("GET", tasks, members, s.ownThread(func(c *fiber.Ctx, _ *caller, _ string) error {
		f := query(c, "limit")
		f.Int("limit", 50, 1, 100)
		if err := f.Err(); err != nil {
			return err
		}
		return web.SendJSON(c, []byte("[]"))
	}))
	noTask := s.ownThread(func(*fiber.Ctx, *caller, string) error { return fault.New(fault.NotFound, "MCP task not found") })
	s.handle("GET", tasks+"/{task_id}", members, noTask)
	s.handle("POST", tasks+"/{task_id}/cancel", members, noTask)
	s.handle("POST", "/threads/{thread_id}/browser/navigate", members, s.existing(func(*fiber.Ctx, *caller, *thread.View) error {
		return fault.New(fault.NotFound, "Browser automation is not enabled")
	}))

	const lark = "/integrations/lark"
	s.handle("GET", lark+"/status", members, func(c *fiber.Ctx, _ *caller) error { return web.SendJSON(c, []byte(noLark)) })
	s.handle("POST", lark+"/install", admins, absent(larkText))
	for _, route := range []string{"/config/start", "/config/complete", "/config/credentials", "/auth/start", "/auth/complete"} {
		s.handle("POST", lark+route, members, absent(larkText))
	}
}

const larkText = "lark-cli is not available on this server"

// noLark is the status of the integration where it is not installed.
const noLark = `{"installed":false,"version":"","manifest_version":null,"latest_available_version":null,"runtime_version_mismatch":false,"app_configured":false,"app_id":null,"app_brand":null,` +
	`"skills_expected":0,"skills_installed":0,"installed_skills":[],"enabled_skills":[],"install_path":"","cli":{"available":false,"path":null,"version":null,"error":"` + larkText + `"},` +
	`"auth":{"status":"unavailable","message":"` + larkText + `","user":null,"verified":false},"sandbox_runtime_mode":"none","sandbox_runtime_ready":false,"sandbox_runtime_detail":null}`
