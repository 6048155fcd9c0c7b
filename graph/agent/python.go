package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
)

// Texts for clients and models are LangChain's, with arguments in Python's notation.

// pyRepr formats JSON as Python's repr formats the value.
func pyRepr(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}"
	}
	return string(appendRepr(nil, gjson.ParseBytes(raw)))
}

func appendRepr(b []byte, v gjson.Result) []byte {
	switch {
	case v.IsObject(), v.IsArray():
		return appendNested(b, v, appendRepr, appendQuoted)
	case v.Type == gjson.String:
		return appendQuoted(b, v.Str)
	case v.Type == gjson.True:
		return append(b, "True"...)
	case v.Type == gjson.False:
		return append(b, "False"...)
	case v.Type == gjson.Null:
		return append(b, "None"...)
	}
	return append(b, v.Raw...)
}

// pyDumps formats JSON as Python's json.dumps does, with spaces after commas and colons.
func pyDumps(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}"
	}
	return string(appendDumps(nil, gjson.ParseBytes(raw)))
}

func appendDumps(b []byte, v gjson.Result) []byte {
	if v.IsObject() || v.IsArray() {
		return appendNested(b, v, appendDumps, jsonobj.AppendText)
	}
	if v.Type == gjson.String {
		return jsonobj.AppendText(b, v.Str)
	}
	return append(b, v.Raw...)
}

func appendNested(b []byte, v gjson.Result, item func([]byte, gjson.Result) []byte, key func([]byte, string) []byte) []byte {
	open, end := byte('['), byte(']')
	if v.IsObject() {
		open, end = '{', '}'
	}
	b = append(b, open)
	first := true
	v.ForEach(func(k, v gjson.Result) bool {
		if !first {
			b = append(b, ", "...)
		}
		first = false
		if open == '{' {
			b = append(key(b, k.String()), ": "...)
		}
		b = item(b, v)
		return true
	})
	return append(b, end)
}

// appendQuoted writes text as Python's repr does.
func appendQuoted(b []byte, s string) []byte {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	b = append(b, byte(quote))
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == ' ' || unicode.IsPrint(r):
			b = append(b, string(r)...)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return append(b, byte(quote))
}

// errorRepr returns an error as the repr of an exception.
func errorRepr(err error) string {
	return errorName(err) + "(" + string(appendQuoted(nil, err.Error())) + ")"
}

// errorName returns the name of an error for clients.
func errorName(err error) string {
	if named, ok := err.(interface{ ErrorName() string }); ok {
		return named.ErrorName()
	}
	if wrapped, ok := err.(interface{ Unwrap() error }); ok {
		if inner := wrapped.Unwrap(); inner != nil {
			if name := errorName(inner); name != plainError {
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
