package web

import (
	"hash/maphash"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
)

// browserConnections is how many connections a browser opens to one origin with HTTP/1.1, for all of its tabs. Each stream keeps one, and what the pages send
// besides waits in silence.
const browserConnections = 6

// tabsAgain is the interval between log lines about full browsers.
const tabsAgain = time.Minute

// tabs counts the streams of each browser, so that the log can explain why its pages wait. An entry lives as long as a stream.
type tabs struct {
	log *slog.Logger

	mu     sync.Mutex
	open   map[string]int
	logged time.Time
}

// browserOf identifies the browser that connects directly with HTTP/1.1; "" if it is none, or a proxy may use other connections towards it.
func browserOf(c *fiber.Ctx) string {
	for _, header := range []string{fiber.HeaderVia, fiber.HeaderXForwardedFor, fiber.HeaderForwarded} {
		if c.Get(header) != "" {
			return ""
		}
	}
	if c.Get("Sec-Fetch-Mode") == "" { // only browsers send it
		return ""
	}
	// Users who share an address, such as that of an office, differ in their credentials.
	credentials := strconv.FormatUint(maphash.String(browserSeed, c.Get(fiber.HeaderCookie)+"\n"+c.Get(fiber.HeaderAuthorization)+"\n"+c.Get("X-Api-Key")), 16)
	return strings.Join([]string{c.Context().RemoteIP().String(), c.Get(fiber.HeaderUserAgent), c.Get(fiber.HeaderHost), credentials}, "\n")
}

// browserSeed makes digests of credentials useless elsewhere.
var browserSeed = maphash.MakeSeed()

// begin counts a stream of a browser, and logs when no further request of it can arrive.
func (t *tabs) begin(browser string) {
	if browser == "" {
		return
	}
	t.mu.Lock()
	if t.open == nil {
		t.open = map[string]int{}
	}
	t.open[browser]++
	warn := t.open[browser] >= browserConnections && time.Since(t.logged) >= tabsAgain
	if warn {
		t.logged = time.Now()
	}
	t.mu.Unlock()
	if warn {
		client, _, _ := strings.Cut(browser, "\n")
		t.log.Warn("a browser has as many streams open as it opens connections; further requests of its pages wait until one ends", "client", client,
			"streams", browserConnections, "fix", `if several users without credentials share this address, nothing; else close tabs, put a proxy with HTTP/2 in front, or let pages of event streaming use transport: "websocket" (docs/frontend.md)`)
	}
}

// end takes back what begin counted.
func (t *tabs) end(browser string) {
	if browser == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[browser]--; t.open[browser] <= 0 {
		delete(t.open, browser)
	}
}
