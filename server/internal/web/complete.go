package web

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

// Completer adds to requests for runs what is known of the HTTP request, and checks their webhooks.
type Completer struct {
	logger       *slog.Logger
	passed       header.Filter // headers that runs see
	Webhooks     bool          // they are enabled
	checkWebhook func(address string) error
	withheld     sync.Once // for the warning about a header withheld from runs
}

// NewCompleter returns a completer that passes these headers to runs. checkWebhook validates the address of a webhook; nil: all are allowed.
func NewCompleter(log *slog.Logger, passed header.Filter, webhooks bool, checkWebhook func(address string) error) *Completer {
	return &Completer{logger: log, passed: passed, Webhooks: webhooks, checkWebhook: checkWebhook}
}

// Complete adds data of the HTTP request to a run request, and validates its webhook.
func (m *Completer) Complete(c *fiber.Ctx, req *run.Request) error {
	return m.CompleteFor(Of(c).ID, m.Configurable(c), req)
}

// CompleteFor is complete for a request of which only these parts are left.
func (m *Completer) CompleteFor(requestID string, headers map[string]string, req *run.Request) error {
	req.RequestID, req.Headers = requestID, headers
	return m.Check(req.Webhook)
}

// Check validates the address of a webhook; "" is none.
func (m *Completer) Check(webhook string) error {
	switch {
	case webhook == "":
		return nil
	case !m.Webhooks:
		return fault.New(fault.Unprocessable, "Webhooks are disabled")
	case m.checkWebhook != nil:
		return m.checkWebhook(webhook)
	}
	return nil
}

// Configurable returns the headers that http.configurable_headers passes on to runs, by lower-case name; nil when it passes none.
func (m *Completer) Configurable(c *fiber.Ctx) map[string]string {
	headers := traced(c, m.passed, selected(c, m.passed))
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
