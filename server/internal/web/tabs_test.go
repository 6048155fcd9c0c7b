package web

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
)

// A browser whose streams take all of its connections is named once a minute, with what to do; streams that end make room, and leave nothing behind.
func TestTabs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		all := tabs{log: slog.New(slog.NewTextHandler(&log, nil))}
		lines := func() int { return strings.Count(log.String(), "further requests of its pages wait") }
		for range browserConnections - 1 {
			all.begin("one")
			all.begin("two")
			all.begin("")
		}
		require.Zero(t, lines())
		all.begin("one")
		require.Equal(t, 1, lines())
		require.Contains(t, log.String(), `transport: \"websocket\"`)
		all.begin("two")
		all.end("one")
		all.begin("one")
		require.Equal(t, 1, lines(), "not more than once a minute")
		time.Sleep(tabsAgain)
		all.end("one")
		all.begin("one")
		require.Equal(t, 2, lines())
		for range browserConnections {
			all.end("one")
			all.end("two")
			all.end("")
		}
		require.Empty(t, all.open)
	})
}

// Only browsers that connect directly are counted: other clients have no such limit, and a proxy may have HTTP/2 towards them.
func TestBrowserOf(t *testing.T) {
	t.Parallel()
	app := fiber.New()
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString(browserOf(c)) })
	of := func(headers map[string]string) string {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		for header, value := range headers {
			if header == "" {
				continue
			}
			req.Header.Set(header, value)
		}
		res, err := app.Test(req)
		require.NoError(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return body.String()
	}
	for name, headers := range map[string]map[string]string{
		"another client":       {"User-Agent": "curl"},
		"behind a proxy":       {"Sec-Fetch-Mode": "cors", "X-Forwarded-For": "1.2.3.4"},
		"behind another proxy": {"Sec-Fetch-Mode": "cors", "Via": "2 caddy"},
	} {
		require.Empty(t, of(headers), name)
	}
	browser := func(header, value string) string {
		return of(map[string]string{"Sec-Fetch-Mode": "cors", "User-Agent": "Chrome", header: value})
	}
	require.True(t, strings.HasPrefix(browser("", ""), "0.0.0.0\nChrome\nexample.com\n"))
	seen := map[string]string{}
	for _, by := range [][2]string{{"", ""}, {"User-Agent", "Firefox"}, {"Cookie", "access_token=ann"}, {"Cookie", "access_token=ben"}, {"Authorization", "Bearer ann"}} {
		one := browser(by[0], by[1])
		require.Equal(t, one, browser(by[0], by[1]))
		require.NotContains(t, seen, one, "%s: %s is another browser", by[0], by[1])
		require.NotContains(t, one, "ann", "credentials are not kept")
		seen[one] = by[1]
	}
}
