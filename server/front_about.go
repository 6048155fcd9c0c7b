package server

import (
	"encoding/json"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/gate"
	"understudy/internal/jsonobj"
	"understudy/server/internal/web"
)

// frontKnown is what the server has made of the description of an application. It is made again when another version of the application is in service.
type frontKnown struct {
	about   *gate.Application
	cors    *CORS // nil: it configures none
	openapi []byte
}

type frontCache struct{ atomic.Pointer[frontKnown] }

// about returns what is known of the application; nil: there is none, or it is not loaded yet.
func (s *Server) about() *frontKnown {
	if s.opts.App == nil {
		return nil
	}
	about := s.opts.App.Application()
	if about == nil {
		return nil
	}
	k := s.fronts.Load()
	if k == nil || k.about != about {
		k = &frontKnown{about: about, cors: corsOfApp(about.CORS), openapi: s.openapi()}
		if about.OpenAPI != nil {
			k.openapi = mergeOpenAPI(about.OpenAPI, s.openapi())
		}
		s.fronts.Store(k)
	}
	return k
}

// corsOptions are those of http.cors, else those of a CORSMiddleware of the application.
func (s *Server) corsOptions() *CORS {
	if len(s.opts.CORS.AllowMethods) == 0 { // http.cors has some
		if k := s.about(); k != nil && k.cors != nil {
			return k.cors
		}
	}
	return &s.opts.CORS
}

// corsOfApp reads the options of Starlette's CORSMiddleware; nil when there are none.
func corsOfApp(raw json.RawMessage) *CORS {
	if len(raw) == 0 {
		return nil
	}
	var c struct {
		AllowOrigins     []string `json:"allow_origins"`
		AllowOriginRegex string   `json:"allow_origin_regex"`
		AllowMethods     []string `json:"allow_methods"`
		AllowHeaders     []string `json:"allow_headers"`
		AllowCredentials bool     `json:"allow_credentials"`
		ExposeHeaders    []string `json:"expose_headers"`
		MaxAge           int      `json:"max_age"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return nil
	}
	out := &CORS{
		AllowOrigins: c.AllowOrigins, AllowMethods: c.AllowMethods, AllowHeaders: append(c.AllowHeaders, safeHeaders...), AllowCredentials: c.AllowCredentials,
		ExposeHeaders: c.ExposeHeaders, MaxAge: time.Duration(c.MaxAge) * time.Second,
	}
	if len(out.AllowMethods) == 0 {
		out.AllowMethods = []string{fiber.MethodGet}
	}
	if len(c.AllowOrigins) == 0 && c.AllowOriginRegex == "" {
		out.AllowOriginRegex = regexp.MustCompile(`^$`) // no origin
	}
	if c.AllowOriginRegex != "" {
		re, err := regexp.Compile(`^(?:` + c.AllowOriginRegex + `)$`)
		if err != nil { // Python knows more than Go: let no origin in rather than all
			re = regexp.MustCompile(`^$`)
		}
		out.AllowOriginRegex = re
	}
	return out
}

// showOpenAPI answers with the description of the API, and of a FastAPI application.
func (s *Server) showOpenAPI(c *fiber.Ctx) error {
	if k := s.about(); k != nil {
		return web.SendJSON(c, k.openapi)
	}
	return web.SendJSON(c, s.openapi())
}

// mergeOpenAPI puts the paths and components of the API into the description of an application. Where both have a name, the application's counts, as its
// routes come first.
func mergeOpenAPI(app, api []byte) []byte {
	out := jsonobj.Of(app)
	for _, key := range []string{"paths", "tags", "components", "servers", "security"} {
		theirs, ours := out.Get(key), json.RawMessage(gjson.GetBytes(api, key).Raw)
		switch {
		case len(ours) == 0:
		case len(theirs) == 0:
			out.Set(key, ours)
		case key == "paths":
			out.Set(key, jsonobj.Merge(ours, theirs))
		case key == "components":
			parts := jsonobj.Of(theirs)
			jsonobj.Of(ours).Each(func(part string, value json.RawMessage) {
				if own := parts.Get(part); len(own) > 0 {
					value = jsonobj.Merge(value, own)
				}
				parts.Set(part, value)
			})
			out.Set(key, parts.JSON())
		case key == "tags":
			out.Set(key, mergeTags(ours, theirs))
		}
	}
	return out.JSON()
}

// mergeTags returns the tags of the API and then those of an application, each name once, as the application describes it.
func mergeTags(api, app json.RawMessage) json.RawMessage {
	all := &jsonobj.Object{}
	for _, list := range []json.RawMessage{api, app} {
		for _, tag := range gjson.ParseBytes(list).Array() {
			all.Set(tag.Get("name").String(), json.RawMessage(tag.Raw))
		}
	}
	out := []byte{'['}
	all.Each(func(_ string, tag json.RawMessage) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, tag...)
	})
	return append(out, ']')
}
