package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/components"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server/internal/web"
)

// Components are the React components that graphs show in their clients.
type Components interface {
	// Bundle returns those of a graph, by its name; nil when it has none. It waits while they are made.
	Bundle(ctx context.Context, graph string) (*components.Bundle, error)
}

// escape is for attributes in quotes of either kind, with the entities of LangGraph Server.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;")

// componentPolicy is for an answer that is opened as a page, and not made a part of one.
const componentPolicy = "default-src 'none'; frame-ancestors 'none'"

func (s *Server) uiRoutes() {
	s.route("POST", "/ui/{graph}", s.component)
	s.route("GET", "/ui/{graph}", s.componentAsset)
	s.route("GET", "/ui/{graph}/{asset}", s.componentAsset)
}

func (s *Server) bundle(c *fiber.Ctx) (graph string, b *components.Bundle, err error) {
	graph = c.Params("graph")
	if unescaped, err := url.PathUnescape(graph); err == nil {
		graph = unescaped
	}
	if s.opts.Components == nil {
		return graph, nil, nil
	}
	b, err = s.opts.Components.Bundle(c.UserContext(), graph)
	return graph, b, err
}

// component answers with the tags that load a component into the shadow root that LoadExternalComponent has made.
func (s *Server) component(c *fiber.Ctx) error {
	graph, b, err := s.bundle(c)
	if err != nil {
		return err
	}
	if b == nil {
		return noUI(c)
	}
	name, err := componentName(c.Body())
	if err != nil {
		return err
	}
	base := escape.Replace(s.pageBase(c) + "/ui/" + url.PathEscape(graph) + "/")
	var tags []string
	for _, asset := range b.Names {
		if strings.HasSuffix(asset, ".css") {
			tags = append(tags, `<link rel="stylesheet" href="`+base+asset+`" />`)
		} else {
			tags = append(tags, `<script src="`+base+asset+`" onload='`+b.Global+`.render(`+escape.Replace(string(jsonobj.Quote(name)))+`, "{{shadowRootId}}")'></script>`)
		}
	}
	c.Set(fiber.HeaderContentType, "text/html")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set("Content-Security-Policy", componentPolicy)
	c.Vary("Sec-Fetch-Site")
	return c.SendString(strings.Join(tags, "\n"))
}

// pageBase is what comes before the paths of this server in a page that has asked it: nothing on a page from here, as on LangGraph Server, and the address of this
// server on pages from elsewhere, where paths would be theirs. Only the browser knows: a reverse proxy may have changed Host.
func (s *Server) pageBase(c *fiber.Ctx) string {
	switch c.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return "//" + string(c.Request().Host()) + s.opts.MountPrefix
	}
	return s.opts.MountPrefix
}

func componentName(body []byte) (string, error) {
	if !json.Valid(body) {
		return "", fault.New(fault.Unprocessable, "Invalid JSON in request body")
	}
	var request struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(body, &request); err != nil || request.Name == nil {
		return "", fault.New(fault.Unprocessable, `name is missing, or no string; send {"name": "weather"}`)
	}
	return *request.Name, nil
}

// componentAsset answers without credentials, as browsers send none with scripts and style sheets of other origins.
func (s *Server) componentAsset(c *fiber.Ctx) error {
	_, b, err := s.bundle(c)
	if err != nil {
		return err
	}
	if b == nil {
		return noUI(c)
	}
	a, ok := b.Assets[c.Params("asset")]
	if !ok {
		return fault.New(fault.NotFound, "Not Found")
	}
	c.Set(fiber.HeaderContentType, a.Type)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderCacheControl, "no-cache") // names stay when components change; ETag spares the transfer
	c.Set(fiber.HeaderETag, a.Tag)
	c.Vary(fiber.HeaderAcceptEncoding)
	if web.HasTag(c.Get(fiber.HeaderIfNoneMatch), a.Tag) {
		return c.SendStatus(http.StatusNotModified)
	}
	if a.Gzip != nil && accepts(c, "gzip") {
		c.Set(fiber.HeaderContentEncoding, "gzip")
		return c.Send(a.Gzip)
	}
	return c.Send(a.Body)
}

// noUI is the answer of LangGraph Server for graphs without components.
func noUI(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "text/plain; charset=utf-8") // a browser must not take the name for a page
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return c.Status(http.StatusNotFound).SendString("UI not found for graph '" + c.Params("graph") + "'")
}
