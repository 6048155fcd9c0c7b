package gateway

import (
	"os"
	"regexp"
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
	text, err := os.ReadFile("../../../docs/gateway.md")
	require.NoError(t, err)
	described := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /api[^`]*)` \\| (\\w+) \\|").FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, described, row[1], "twice")
		described[row[1]] = row[2]
	}
	require.Equal(t, served, described)
}
