package deerflow

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"understudy/deerflow/account"
	"understudy/deerflow/files"
	"understudy/deerflow/skill"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Failure is a complete answer that is an error.
type Failure struct {
	Status int
	Detail json.RawMessage
	Header http.Header
}

func (f *Failure) Error() string { return string(f.Detail) }

// Answer returns the parts of the response.
func (f *Failure) Answer() (status int, header http.Header, body []byte) {
	h := http.Header{"Content-Type": {"application/json"}}
	for name, values := range f.Header {
		h[name] = values
	}
	o := &jsonobj.Object{}
	o.Set("detail", f.Detail)
	return f.Status, h, o.JSON()
}

// Fail is a refusal with a text.
func Fail(status int, text string) *Failure {
	return &Failure{Status: status, Detail: jsonobj.Quote(text)}
}

// Errors of the gates, in their order.
var (
	ErrNoCSRF    = Fail(http.StatusForbidden, "CSRF token missing. Include X-CSRF-Token header.")
	ErrCSRF      = Fail(http.StatusForbidden, "CSRF token mismatch.")
	ErrCrossSite = Fail(http.StatusForbidden, "Cross-site auth request denied.")
)

// NoThread is the refusal for a thread that the caller does not have, whether it exists or not.
func NoThread(thread string) *Failure {
	return Fail(http.StatusNotFound, "Thread "+thread+" not found")
}

// NoRun is the same for a run.
func NoRun(run string) *Failure { return Fail(http.StatusNotFound, "Run "+run+" not found") }

// Explain returns err as the Gateway answers it. Errors that it has no form of its own for stay as they are.
func Explain(err error) error {
	var p Problems
	var a *account.Error
	var refused *skill.Refused
	var locked *account.Locked
	switch {
	case errors.As(err, &p):
		return &Failure{Status: http.StatusUnprocessableEntity, Detail: p.JSON()}
	case errors.As(err, &a):
		o := &jsonobj.Object{}
		o.SetText("code", string(a.Code))
		o.SetText("message", a.Message)
		return &Failure{Status: statusOf(a.Kind), Detail: o.JSON()}
	case errors.As(err, &locked):
		f := Fail(http.StatusTooManyRequests, locked.Error())
		f.Header = http.Header{"Retry-After": {strconv.Itoa(int(math.Ceil(locked.Wait.Seconds())))}}
		return f
	case errors.As(err, &refused):
		return Fail(http.StatusBadRequest, refused.Reason)
	case errors.Is(err, files.ErrChanged):
		return Fail(http.StatusPreconditionFailed, "Artifact changed since it was read")
	case errors.Is(err, files.ErrNoEdit):
		return Fail(http.StatusUnsupportedMediaType, "Artifact is not an editable text file")
	}
	return err
}

func statusOf(k fault.Kind) int {
	switch k {
	case fault.Unauthorized:
		return http.StatusUnauthorized
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.Conflict:
		return http.StatusConflict
	}
	return http.StatusBadRequest
}
