package server

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/jsonobj"
	"understudy/server/internal/web"
)

// systemRoutes are health and discovery. Health remains when the others are disabled, because monitoring needs it.
func (s *Server) systemRoutes(meta bool) {
	s.route("GET", "/ok", s.ok)
	s.route("GET", "/livez", s.live)
	s.route("GET", "/readyz", s.ready)
	root := []string{""}
	if s.opts.MountPrefix != "" { // of what is at the root, this stays
		s.routeUnder(root, "GET", "/ok", s.ok)
		s.routeUnder(root, "GET", "/livez", s.live)
		s.routeUnder(root, "GET", "/readyz", s.ready)
	}
	if !meta {
		return
	}
	s.route("GET", "/", s.home)
	if s.opts.MountPrefix != "" {
		s.routeUnder(root, "GET", "/", s.home)
		s.routeUnder(root, "GET", s.opts.MountPrefix, func(c *fiber.Ctx) error {
			to := s.opts.MountPrefix + "/"
			if q := c.Context().URI().QueryString(); len(q) > 0 {
				to += "?" + string(q)
			}
			return c.Redirect(to, fiber.StatusTemporaryRedirect)
		})
		root = append(root, s.opts.MountPrefix)
	}
	s.route("GET", "/info", s.info)
	// Under one path only: a proxy that hides it does not have to know the aliases of the API.
	s.routeUnder(root, "GET", "/metrics", s.showMetrics)
	s.docsRoutes()
}

func (s *Server) info(c *fiber.Ctx) error {
	b := jsonobj.AppendText([]byte(`{"version":`), s.opts.APIVersion)
	b = append(b, `,"langgraph_py_version":`...)
	if v := s.opts.LangGraphVersion(); v != "" {
		b = jsonobj.AppendText(b, v)
	} else {
		b = append(b, "null"...)
	}
	b = jsonobj.AppendText(append(b, `,"understudy_version":`...), s.opts.Version)
	b = strconv.AppendBool(append(b, `,"understudy_doctor":`...), s.opts.Doctor != nil)
	b = strconv.AppendBool(append(b, `,"flags":{"assistants":`...), !s.opts.Disable.Assistants)
	b = strconv.AppendBool(append(b, `,"crons":`...), !s.opts.Disable.Runs && s.opts.Crons != nil)
	b = append(b, `,"langsmith":false,"langsmith_tracing_replicas":false,"langsmith_tracing_session_on_runs":false}`...)
	b = append(b, `,"host":{"kind":"self-hosted","project_id":null,"host_revision_id":null,"revision_id":null,"tenant_id":null}}`...)
	return web.SendJSON(c, b)
}
