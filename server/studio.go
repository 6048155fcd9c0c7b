package server

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
	"understudy/studio"
)

// StudioPath is where the pages are, below the mount prefix.
const StudioPath = "/studio"

// studioRoutes serve the pages. They hold no data: what they show they request from the API, with the credentials of their reader.
func (s *Server) studioRoutes() {
	prefix := s.opts.MountPrefix
	s.routeUnder([]string{prefix}, "GET", StudioPath, func(c *fiber.Ctx) error {
		return c.Redirect(prefix+StudioPath+"/", fiber.StatusTemporaryRedirect)
	})
	s.routeUnder([]string{prefix}, "GET", StudioPath+"/", s.studio)
	s.app.Get(prefix+StudioPath+"/*", s.studio)
}

// home is the answer of the root: the pages for a browser, if there are any, and otherwise what LangGraph Server says.
func (s *Server) home(c *fiber.Ctx) error {
	if s.opts.Studio && !s.opts.Disable.UI && strings.Contains(c.Get(fiber.HeaderAccept), "text/html") {
		c.Vary(fiber.HeaderAccept)
		return c.Redirect(s.opts.MountPrefix+StudioPath+"/", fiber.StatusTemporaryRedirect)
	}
	return sendJSON(c, []byte(`{"ok":true}`))
}

func (s *Server) studio(c *fiber.Ctx) error {
	requestOf(c).route = StudioPath
	f, ok := studio.Find(c.Params("*"))
	if !ok {
		return fault.New(fault.NotFound, "there is no such page; the first one is /studio/")
	}
	c.Set(fiber.HeaderContentType, f.Type)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set("Content-Security-Policy", studio.Policy)
	c.Set(fiber.HeaderXFrameOptions, "DENY") // for browsers without frame-ancestors
	c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	c.Set("Cross-Origin-Opener-Policy", "same-origin")
	c.Set(fiber.HeaderCacheControl, "no-cache")
	if f.Immutable {
		c.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
	}
	if strings.HasPrefix(f.Type, "text/html") {
		body, err := studio.Document(s.opts.MountPrefix + StudioPath + "/")
		if err != nil {
			return err
		}
		return c.Send(body)
	}
	c.Vary(fiber.HeaderAcceptEncoding)
	if accepts(c, "br") {
		c.Set(fiber.HeaderContentEncoding, "br")
		return c.Send(f.Brotli)
	}
	body, err := f.Plain()
	if err != nil {
		return err
	}
	return c.Send(body)
}
