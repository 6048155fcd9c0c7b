// Package fault adds to errors a kind, which package server maps to a status, and a message for the client.
package fault

import (
	"errors"
	"fmt"
)

// Kind classifies an error in words of the domain. Only package server maps it to HTTP.
type Kind int

const (
	Internal      Kind = iota // a bug or a broken machine; its text is never shown
	Invalid                   // the request makes no sense (400)
	Unauthorized              // no valid credentials (401)
	Forbidden                 // not allowed (403)
	NotFound                  // nothing with this id (404)
	Conflict                  // conflicts with the current state (409)
	TooLarge                  // more than is accepted (413)
	Unprocessable             // well-formed, but violates the schema (422)
	NotSupported              // known, but not supported by this server (501)
	Unavailable               // temporarily unavailable; try again (503)
	Upstream                  // an upstream server failed (502)
	Lost                      // it was stored, and cannot be read any more (409)
)

// Error is an error with a kind, a message for the client, and a cause that the client does not see.
type Error struct {
	Kind    Kind
	Message string
	Cause   error
}

// New makes an error whose message may be shown to a client.
func New(kind Kind, message string) *Error { return &Error{Kind: kind, Message: message} }

// Newf is New with formatting. A %w operand becomes the hidden cause too.
func Newf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// Wrap returns err with a kind and a public message.
func Wrap(kind Kind, message string, err error) *Error {
	return &Error{Kind: kind, Message: message, Cause: err}
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

// KindOf returns the kind of the outermost Error in err's chain; Internal if there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// Is reports whether err is of the kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}
