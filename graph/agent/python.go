package agent

import (
	"strconv"
	"strings"

	"understudy/internal/pytext"
)

// errorRepr returns an error as the repr of an exception.
func errorRepr(err error) string {
	return ErrorName(err) + "(" + string(pytext.AppendQuoted(nil, err.Error())) + ")"
}

// ErrorName returns the name of an error as clients of Python know it: RuntimeError unless an error says otherwise, as pregel.Error does.
func ErrorName(err error) string {
	if named, ok := err.(interface{ ErrorName() string }); ok {
		return named.ErrorName()
	}
	if wrapped, ok := err.(interface{ Unwrap() error }); ok {
		if inner := wrapped.Unwrap(); inner != nil {
			if name := ErrorName(inner); name != plainError {
				return name
			}
		}
	}
	return plainError
}

const plainError = "RuntimeError"

// quoteList returns a list of names for texts: a, b, c.
func quoteList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}
