package gateway

import (
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
)

// docs/gateway.md has every route, with who may use it, and no other.
func TestReference(t *testing.T) {
	t.Parallel()
	served := map[string]string{}
	b := register(Options{
		Tasks: struct{ Tasks }{},
		Route: func([]string, string, string, fiber.Handler) {},
		Rest:  func(string, fiber.Handler) {},
	})
	for _, p := range b.paths {
		for i, method := range p.methods {
			served[method+" /api"+strings.Join(p.segments, "/")] = [...]string{anybody: "anyone", members: "user", admins: "admin"}[p.who[i]]
		}
	}
	described := map[string]string{}
	for _, o := range Reference() {
		key := o.Method + " " + o.Path
		require.NotContains(t, described, key, "twice")
		require.NotEmpty(t, o.Tag, key)
		require.NotEmpty(t, o.Summary, key)
		described[key] = o.Who
	}
	require.Equal(t, served, described)
}

// What a row says of a request is known as its parameters and its body.
func TestRequestsOfReference(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]Operation{
		"| `POST /api/a` | user | `{b, c: 1 or -1, …}`; the same |":                    {Method: "POST", Path: "/api/a", Who: "user", Summary: "{b, c: 1 or -1, …}; the same", Body: []string{"b", "c"}},
		"| `GET /api/a` | user | `?limit`, `before_seq`; `{data, more}` |":             {Method: "GET", Path: "/api/a", Who: "user", Summary: "?limit, before_seq; {data, more}", Query: []string{"limit", "before_seq"}},
		"| `POST /api/a/{b}` | admin | `?action=x` or `y`, `?wait` |":                  {Method: "POST", Path: "/api/a/{b}", Who: "admin", Summary: "?action=x or y, ?wait", Query: []string{"action", "wait"}},
		"| `GET /api/a/*` | anyone | a file by its path, `mnt/user-data/…`; `?down` |": {Method: "GET", Path: "/api/a/*", Who: "anyone", Summary: "a file by its path, mnt/user-data/…; ?down", Query: []string{"down"}},
		"| `POST /api/a` | user | multipart `files`; `{done}` |":                       {Method: "POST", Path: "/api/a", Who: "user", Summary: "multipart files; {done}", Form: "multipart/form-data", Body: []string{"files"}},
		"| `POST /api/a` | anyone | form `name`, `word`; cookies |":                    {Method: "POST", Path: "/api/a", Who: "anyone", Summary: "form name, word; cookies", Form: "application/x-www-form-urlencoded", Body: []string{"name", "word"}},
		"| `POST /api/a` | user | a run (1); its events |":                             {Method: "POST", Path: "/api/a", Who: "user", Summary: "a run; its events"},
	} {
		want.Tag = "Things"
		require.Equal(t, []Operation{want}, readReference("## Things\n\n"+row+"\n"))
	}
}
