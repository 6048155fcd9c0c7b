package server

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"understudy/compat"
	"understudy/internal/fault"
	"understudy/internal/header"
	"understudy/run"
)

// completer adds to requests for runs what is known of the HTTP request, and checks their webhooks.
type completer struct {
	logger       *slog.Logger
	passed       header.Filter // headers that runs see
	webhooks     bool          // they are enabled
	checkWebhook func(address string) error
	withheld     sync.Once // for the warning about a header withheld from runs
}

func newCompleter(o Options) *completer {
	return &completer{logger: o.Logger, passed: o.Configurable, webhooks: !o.Disable.Webhooks, checkWebhook: o.CheckWebhook}
}

// complete adds data of the HTTP request to a run request, and validates its webhook.
func (m *completer) complete(c *fiber.Ctx, req *run.Request) error {
	return m.completeFor(requestOf(c).id, m.configurable(c), req)
}

// completeFor is complete for a request of which only these parts are left.
func (m *completer) completeFor(requestID string, headers map[string]string, req *run.Request) error {
	req.RequestID, req.Headers = requestID, headers
	return m.check(req.Webhook)
}

// check validates the address of a webhook; "" is none.
func (m *completer) check(webhook string) error {
	switch {
	case webhook == "":
		return nil
	case !m.webhooks:
		return fault.New(fault.Unprocessable, "Webhooks are disabled")
	case m.checkWebhook != nil:
		return m.checkWebhook(webhook)
	}
	return nil
}

// configurable returns the headers that http.configurable_headers passes on to runs, by lower-case name; nil when it passes none.
func (m *completer) configurable(c *fiber.Ctx) map[string]string {
	headers := selected(c, m.passed)
	delete(headers, strings.ToLower(compat.OverlayHeader)) // meant for this server only
	if len(m.passed.Includes) > 0 {
		c.Request().Header.VisitAll(func(k, _ []byte) {
			if name := string(k); m.passed.Withholds(name) {
				m.withheld.Do(func() {
					m.logger.Warn("request header looks like a credential and is withheld from runs; to pass it, name it without a wildcard in http.configurable_headers",
						"header", strings.ToLower(name))
				})
			}
		})
	}
	return headers
}
