package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/within"
	"understudy/server/internal/web"
)

// Check tests a condition without which requests should not be sent to this server.
type Check func(ctx context.Context) error

// checkTime is the time limit for all checks of one answer together.
const checkTime = 2 * time.Second

var errNoAnswer = fault.Newf(fault.Unavailable, "no answer within %s", checkTime)

// within returns the result of a check, or the cause of ctx as soon as it ends.
func (check Check) within(ctx context.Context) error {
	_, err := within.Do(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, check(ctx) })
	return err
}

// checks holds the last results, so that only changes are logged.
type checks struct {
	began time.Time // of the server
	mu    sync.Mutex
	last  map[string]health
}

// health is the last result of a check.
type health int

const (
	neverAsked health = iota
	notYet            // it has not passed, in a server that started just now
	fails
	passes
)

// startTime is how long a server that starts is expected not to be ready.
const startTime = time.Minute

// isProbe reports whether a request asks about the health of the server.
func (s *Server) isProbe(c *fiber.Ctx) bool {
	switch strings.TrimPrefix(c.Path(), s.opts.MountPrefix) {
	case "/ok", "/livez", "/readyz":
		return true
	}
	return false
}

// awaitLoaded holds a request until what it may need is loaded. Probes are answered at once, metrics too where no middleware of an application may be around
// them, and so is what the application asks while it starts.
func (s *Server) awaitLoaded(c *fiber.Ctx) error {
	if s.opts.Loaded == nil || insideOf(c) != nil || s.isProbe(c) || s.opts.App == nil && strings.TrimPrefix(c.Path(), s.opts.MountPrefix) == "/metrics" {
		return nil
	}
	if err := s.opts.Loaded(s.lifeOf(c)); err != nil {
		return fault.Wrap(fault.Unavailable, "The server is starting, try again", err)
	}
	return nil
}

// ok is the health route of LangGraph Server. check_db must be a number; for other text the error is Python's.
func (s *Server) ok(c *fiber.Ctx) error {
	if c.Context().QueryArgs().Has("check_db") {
		ask, err := nonzero(c.Query("check_db"))
		if err != nil {
			return err
		}
		if ask && s.opts.CheckDB != nil {
			ctx, cancel := context.WithTimeoutCause(c.UserContext(), checkTime, errNoAnswer)
			defer cancel()
			if err := s.opts.CheckDB.within(ctx); err != nil {
				return fault.Wrap(fault.Unavailable, "The storage does not respond", err)
			}
		}
	}
	if s.opts.Disable.Meta {
		return web.SendJSON(c, []byte(`{"ok":true}`))
	}
	return web.SendJSON(c, []byte(allFine))
}

// allFine is what LangGraph Server says of itself while it works. Its services are those of its own processes.
const allFine = `{"ok":true,"services":{}}`

// nonzero reads an integer in the ASCII syntax of Python's int, and reports whether it is not 0.
func nonzero(text string) (bool, error) {
	digits := strings.TrimSpace(text)
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		digits = digits[1:]
	}
	other, before := false, byte('_')
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (c != '_' || before == '_') {
			before = '_'
			break
		}
		other = other || c > '0' && c <= '9'
		before = c
	}
	if before == '_' {
		return false, fault.Newf(fault.Invalid, "invalid literal for int() with base 10: '%s'", strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text))
	}
	return other, nil
}

// live answers while the process is able to. It has no checks.
func (s *Server) live(c *fiber.Ctx) error { return web.SendJSON(c, []byte(`{"live":true}`)) }

// ready reports whether requests should be sent here.
func (s *Server) ready(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeoutCause(c.UserContext(), checkTime, errNoAnswer)
	defer cancel()
	results := map[string]chan error{}
	for name, check := range s.opts.Checks {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- check.within(ctx) }()
	}
	all := s.Requests.Err() == nil && !s.draining.Load()
	b := append([]byte(`,"checks":{"draining":`), strconv.Quote(map[bool]string{true: "ok", false: "failed"}[all])...)
	for _, name := range slices.Sorted(maps.Keys(results)) {
		err := <-results[name]
		b = jsonobj.AppendText(append(jsonobj.AppendText(append(b, ','), name), ':'), outcome(err))
		if IsRemark(err) {
			err = nil
		}
		s.noteCheck(name, err)
		all = all && err == nil
	}
	if !all {
		c.Status(fiber.StatusServiceUnavailable)
		c.Set(fiber.HeaderRetryAfter, "1")
	}
	return web.SendJSON(c, append(append(strconv.AppendBool([]byte(`{"ready":`), all), b...), `}}`...))
}

// Remark is what a check that passes says all the same, such as why requests may take long. Clients see it.
type Remark string

func (r Remark) Error() string { return string(r) }

// IsRemark reports whether an error of a check is a Remark.
func IsRemark(err error) bool {
	var r Remark
	return errors.As(err, &r)
}

// outcome returns the text of a check's result for the answer: of a failure only what clients may see.
func outcome(err error) string {
	var f *fault.Error
	switch {
	case err == nil:
		return "ok"
	case IsRemark(err):
		return "ok: " + err.Error()
	case errors.As(err, &f) && f.Kind == fault.Unavailable:
		return "failed: " + f.Message
	}
	return "failed"
}

// noteCheck logs a check whose result changed, with the complete error, which may contain host names. That a server which starts is not ready yet is no warning.
func (s *Server) noteCheck(name string, err error) {
	s.checks.mu.Lock()
	defer s.checks.mu.Unlock()
	was, now := s.checks.last[name], fails
	switch {
	case err == nil:
		now = passes
	case was <= notYet && time.Since(s.checks.began) < startTime:
		now = notYet
	}
	if now == was {
		return
	}
	s.checks.last[name] = now
	switch now {
	case notYet:
		s.Log.Info("not ready yet", "check", name, "error", err)
	case fails:
		s.Log.Warn("not ready", "check", name, "error", err)
	case passes:
		if was != neverAsked {
			s.Log.Info("ready", "check", name)
		}
	}
}
