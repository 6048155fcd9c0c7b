package server

import (
	"bytes"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"understudy/docs"
	"understudy/internal/docsite"
	"understudy/internal/fault"
)

// docsPolicy lets pages of the documentation load and ask only this server. The foreign scripts set styles.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; " +
	"base-uri 'self'; form-action 'none'; frame-ancestors 'none'"

// buildDocs returns a function that makes the documentation's site on its first call.
func (s *Server) buildDocs() func() (docsite.Site, error) {
	return sync.OnceValues(func() (docsite.Site, error) {
		return docsite.Build(docsite.Options{Docs: docs.Files, OpenAPI: s.openapi(), Version: s.opts.Version, Live: true})
	})
}

// docsRoutes registers the documentation and the description of the API. DeerFlow's Gateway has a second address for it, and its operator may hide all.
func (s *Server) docsRoutes() {
	if d := s.opts.DeerFlow; d != nil {
		if d.HideDocs {
			return
		}
		s.route("GET", redocPath, s.docs)
	}
	s.route("GET", "/openapi.json", s.showOpenAPI)
	s.route("GET", "/docs", s.docs)
	s.route("GET", "/docs/{page}", s.docs)
}

// redocPath is where the Gateway describes its API once more.
const redocPath = "/redoc"

// docs serves the documentation. Its first page is at /docs, as LangGraph Server's reference is.
func (s *Server) docs(c *fiber.Ctx) error {
	pages, err := s.pages()
	if err != nil {
		return err
	}
	name := c.Params("page")
	if name == "" {
		name = "index.html"
	}
	f, ok := pages[name]
	if !ok {
		return fault.New(fault.NotFound, "there is no such page; the first one is /docs")
	}
	body := f.Body
	if strings.HasSuffix(c.Path(), "/docs") || strings.HasSuffix(c.Path(), redocPath) { // links are relative to a folder, which this address lacks
		body = bytes.Replace(body, []byte("<head>"), []byte(`<head><base href="docs/">`), 1)
	}
	if f.Gzip {
		if accepts(c, "gzip") {
			c.Set(fiber.HeaderContentEncoding, "gzip")
		} else if body, err = f.Plain(); err != nil {
			return err
		}
		c.Vary(fiber.HeaderAcceptEncoding)
	}
	pageHeaders(c, f.Type, docsPolicy)
	return c.Send(body)
}

// OpenAPI returns the description of the API, as at /openapi.json.
func (s *Server) OpenAPI() []byte { return s.openapi() }

// pageHeaders sets the headers of a part of pages that this server has itself.
func pageHeaders(c *fiber.Ctx, contentType, policy string) {
	c.Set(fiber.HeaderContentType, contentType)
	c.Set(fiber.HeaderCacheControl, "no-cache")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set("Content-Security-Policy", policy)
	c.Set(fiber.HeaderXFrameOptions, "DENY") // for browsers without frame-ancestors
	c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	c.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// accepts reports whether a client has said that it reads an encoding. Those that say nothing, such as curl, often read none.
func accepts(c *fiber.Ctx, encoding string) bool {
	return c.Get(fiber.HeaderAcceptEncoding) != "" && c.AcceptsEncodings(encoding) == encoding
}
