package server

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/fault"
	"understudy/internal/serverurl"
	"understudy/server/internal/web"
	"understudy/studio"
)

// StudioPath is where the pages are, below the mount prefix.
const StudioPath = "/studio"

// studioRoutes serve the pages. They hold no data: what they show they request from the API, with the credentials of their reader.
func (s *Server) studioRoutes() {
	base := s.opts.MountPrefix + StudioPath + "/"
	document := sync.OnceValues(func() (tagged, error) {
		body, err := studio.Document(base)
		return tagged{body, fmt.Sprintf(`"%.16x"`, sha256.Sum256(body))}, err
	})
	page := func(c *fiber.Ctx) error {
		web.Of(c).Route = StudioPath
		if !studio.Built { // an answer, because a missing path with a slash behind it would be looked for without
			return web.SendJSON(c.Status(http.StatusNotFound), compat.AppendDetail(nil, "this program has no studio: it was built with the tag nostudio"))
		}
		return sendStudio(c, document)
	}
	under := []string{s.opts.MountPrefix}
	s.routeUnder(under, "GET", StudioPath, func(c *fiber.Ctx) error { return c.Redirect(base, fiber.StatusTemporaryRedirect) })
	s.routeUnder(under, "GET", StudioPath+"/", page)
	s.app.Get(base+"*", page)
}

// showsStudio reports whether browsers can be led to the pages.
func (s *Server) showsStudio() bool { return studio.Built && s.opts.Studio && !s.opts.Disable.UI }

// home is the answer of the root: the pages for a browser, if there are any, and otherwise what LangGraph Server says.
func (s *Server) home(c *fiber.Ctx) error {
	if s.showsStudio() && strings.Contains(c.Get(fiber.HeaderAccept), "text/html") {
		c.Vary(fiber.HeaderAccept)
		return c.Redirect(s.opts.MountPrefix+StudioPath+"/", fiber.StatusTemporaryRedirect)
	}
	return web.SendJSON(c, []byte(allFine))
}

// tagged is a document and the tag by which browsers know that they have it.
type tagged struct {
	body []byte
	tag  string
}

// pageAddress matches the addresses of pages below /studio/.
var pageAddress = regexp.MustCompile(`^(?:` + serverurl.StudioPages + `)?/?$`)

// sendStudio answers with a part of the pages, or with the document that they share.
func sendStudio(c *fiber.Ctx, document func() (tagged, error)) error {
	f, ok := studio.Find(c.Params("*"))
	if !ok {
		return fault.New(fault.NotFound, "there is no such page; the first one is /studio/")
	}
	if f.Document {
		c.Vary(fiber.HeaderAccept)
	}
	if f.Document && !pageAddress.MatchString(c.Params("*")) && !strings.Contains(c.Get(fiber.HeaderAccept), "text/html") {
		// A client that has the address of the pages for that of the API could not read a page.
		return fault.New(fault.NotFound, "there are pages for browsers at /studio/; the API is at the same URL without /studio and what follows it")
	}
	pageHeaders(c, f.Type, studio.Policy)
	if f.Document {
		d, err := document()
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderETag, d.tag)
		if web.HasTag(c.Get(fiber.HeaderIfNoneMatch), d.tag) {
			return c.SendStatus(http.StatusNotModified)
		}
		return c.Send(d.body)
	}
	if f.Immutable {
		c.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
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
