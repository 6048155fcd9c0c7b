// Package pytext writes JSON values as Python does. Texts for clients and models are LangChain's and LangGraph Server's, with values in Python's notation.
package pytext

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"understudy/internal/jsonobj"
)

// Repr formats JSON as Python's repr formats the value.
func Repr(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}"
	}
	return string(appendRepr(nil, gjson.ParseBytes(raw)))
}

func appendRepr(b []byte, v gjson.Result) []byte {
	switch {
	case v.IsObject(), v.IsArray():
		return appendNested(b, v, appendRepr, AppendQuoted)
	case v.Type == gjson.String:
		return AppendQuoted(b, v.Str)
	case v.Type == gjson.True:
		return append(b, "True"...)
	case v.Type == gjson.False:
		return append(b, "False"...)
	case v.Type == gjson.Null:
		return append(b, "None"...)
	}
	return append(b, v.Raw...)
}

// Dumps formats JSON as Python's json.dumps does, with spaces after commas and colons.
func Dumps(raw json.RawMessage) string {
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

// AppendQuoted writes text as Python's repr does.
func AppendQuoted(b []byte, s string) []byte {
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
