package web

import (
	"context"
	"errors"
	"net/http"
	"syscall"

	"github.com/gofiber/fiber/v2"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/bridge"
	"understudy/internal/fault"
	"understudy/server/internal/connection"
)

// ErrShutdown is the cause of streams and requests that end because the server does.
var ErrShutdown = errors.New("the server shuts down")

// statuses maps the kinds of faults to HTTP statuses.
var statuses = map[fault.Kind]int{
	fault.Internal:      http.StatusInternalServerError,
	fault.Invalid:       http.StatusBadRequest,
	fault.Unauthorized:  http.StatusUnauthorized,
	fault.Forbidden:     http.StatusForbidden,
	fault.NotFound:      http.StatusNotFound,
	fault.Conflict:      http.StatusConflict,
	fault.TooLarge:      http.StatusRequestEntityTooLarge,
	fault.Unprocessable: http.StatusUnprocessableEntity,
	fault.NotSupported:  http.StatusNotImplemented,
	fault.Unavailable:   http.StatusServiceUnavailable,
	fault.Upstream:      http.StatusBadGateway,
	fault.Lost:          http.StatusConflict,
}

// ErrLeft is the cause of requests that end because the client closed the connection.
var ErrLeft = connection.ErrLeft

// Answerer is an error that contains the complete answer of an upstream server.
type Answerer interface {
	error
	Answer() (status int, header http.Header, body []byte)
}

// Explain returns the status and the text for an error, and whether to log it: our own faults are logged, clients' are
// not.
func Explain(err error) (status int, text string, worth bool) {
	var fe *fiber.Error
	var f *fault.Error
	var r *access.Refusal
	switch {
	case errors.As(err, &r):
		return r.Status, r.Text(), r.Status >= 500
	case isFull(err):
		return http.StatusServiceUnavailable, textFull, true
	case errors.As(err, &f):
		status = statuses[f.Kind]
		if f.Kind == fault.Internal {
			return status, http.StatusText(status), true
		}
		return status, f.Message, f.Kind == fault.Unavailable || f.Kind == fault.Upstream || f.Kind == fault.Lost
	case errors.As(err, &fe):
		return fe.Code, http.StatusText(fe.Code), fe.Code >= 500
	case errors.Is(err, bridge.ErrInterrupted):
		return http.StatusServiceUnavailable, "Live streams are interrupted, try again", false
	case errors.Is(err, ErrShutdown), errors.Is(err, bridge.ErrClosed):
		return http.StatusServiceUnavailable, "The server is shutting down", false
	case errors.Is(err, ErrLeft), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable), false
	}
	return http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError), true
}

const textFull = "The disk is full: nothing can be saved until there is room"

// isFull reports whether a file could not be written because its disk is full, or the quota on it is used up, and nothing says it better.
func isFull(err error) bool {
	return fault.KindOf(err) == fault.Internal && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// PlainReason returns the text of a body {"detail": "…"}, or any other body as it is.
func PlainReason(body []byte) string {
	if detail := gjson.GetBytes(body, "detail"); gjson.ValidBytes(body) && detail.Type == gjson.String {
		return detail.Str
	}
	return string(body)
}
