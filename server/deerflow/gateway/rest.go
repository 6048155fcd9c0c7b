package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"understudy/server/internal/web"
)

// known are the paths of the Gateway's API, with their methods.
type known struct{ paths []path }

type path struct {
	segments []string
	methods  []string
	who      []audience // of each method
}

func (k *known) add(method, pattern string, who audience) {
	segments := strings.Split(pattern, "/")
	i := slices.IndexFunc(k.paths, func(p path) bool { return slices.Equal(p.segments, segments) })
	if i < 0 {
		k.paths = append(k.paths, path{segments: segments})
		i = len(k.paths) - 1
	}
	k.paths[i].methods, k.paths[i].who = append(k.paths[i].methods, method), append(k.paths[i].who, who)
}

// find returns what a path below a prefix is; nil when there is no such path.
func (k *known) find(at string) *path {
	segments := strings.Split(at, "/")
	for i := range k.paths {
		if web.MatchesPath(k.paths[i].segments, segments) {
			return &k.paths[i]
		}
	}
	return nil
}

// rest answers what no route takes: another method of a path, a slash behind it, or nothing that exists. Callers without a session learn of public paths alone.
func (s *base) rest(prefix string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		at := strings.TrimPrefix(c.Path(), prefix)
		p, answer := s.known.find(at), func(*fiber.Ctx, *caller) error { return fiber.ErrNotFound }
		switch trimmed := strings.TrimRight(at, "/"); {
		case p != nil:
			answer = func(c *fiber.Ctx, _ *caller) error {
				c.Set(fiber.HeaderAllow, strings.Join(p.methods, ", "))
				return fiber.ErrMethodNotAllowed
			}
		case trimmed != at:
			if p = s.known.find(trimmed); p != nil {
				answer = func(c *fiber.Ctx, _ *caller) error { return slashless(c) }
			}
		}
		who := members
		if p != nil && p.who[0] == anybody {
			who = anybody
		}
		return s.gated(who, answer)(c)
	}
}

// slashless sends a client that put a slash behind a path to the route without it.
func slashless(c *fiber.Ctx) error {
	at, query, asked := strings.Cut(c.OriginalURL(), "?")
	at = strings.TrimRight(at, "/")
	if asked {
		at += "?" + query
	}
	c.Set(fiber.HeaderLocation, at)
	return c.SendStatus(http.StatusTemporaryRedirect)
}
