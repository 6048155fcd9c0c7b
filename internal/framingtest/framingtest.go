// Package framingtest has requests whose framing servers read differently, for the tests of all that serve here.
package framingtest

import (
	"fmt"
	"strings"
)

const (
	head = "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	end  = "Connection: close\r\n\r\n"
	next = "GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
)

// Refused are requests that one server could take for two, or for another one, by what is odd about them. What follows must not be read as a request.
func Refused() map[string]string {
	return map[string]string{
		"two lengths, the first for the body":  head + fmt.Sprintf("Content-Length: 2\r\nContent-Length: %d\r\n\r\n{}", 2+len(next)) + next,
		"two lengths, the second for the body": head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: 2\r\n\r\n{}", 2+len(next)) + next,
		"a length that never comes":            head + "Content-Length: 2\r\nContent-Length: 3000\r\n\r\n{}",
		"two equal lengths":                    head + "Content-Length: 2\r\ncontent-length: 2\r\n\r\n{}" + next,
		"length and chunks":                    head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"chunks and length":                    head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"length and an unknown coding":         head + "Content-Length: 2\r\nTransfer-Encoding: xchunked\r\n\r\n{}" + next,
		"an unknown coding":                    head + "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"chunks that are not the last coding":  head + "Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"a coding before chunks":               head + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"identity before chunks":               head + "Transfer-Encoding: identity, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"identity and length":                  head + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}" + next,
		"chunks twice":                         head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + next,
		"a line with LF alone":                 head + "X-A: b\nContent-Length: 2\r\n\r\n{}" + next,
		"LF alone in all lines":                strings.ReplaceAll(head+"Content-Length: 2\r\n\r\n{}", "\r", ""),
		"LF alone at the end":                  head + "Content-Length: 2\r\n\n{}" + next,
		"CR alone in a value":                  head + "X-A: a\rContent-Length: 30\r\nContent-Length: 2\r\n\r\n{}" + next,
		"NUL in a value":                       head + "X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}" + next,
		"a control character in a value":       head + "X-A: a\x01b\r\nContent-Length: 2\r\n\r\n{}" + next,
		"DEL in a value":                       head + "X-A: a\x7fb\r\nContent-Length: 2\r\n\r\n{}" + next,
		"a folded line":                        head + "X-A: a\r\n Content-Length: 30\r\nContent-Length: 2\r\n\r\n{}" + next,
		"no name":                              head + ": a\r\nContent-Length: 2\r\n\r\n{}" + next,
		"no colon":                             head + "XA\r\nContent-Length: 2\r\n\r\n{}" + next,
		"a blank before the colon":             head + "Content-Length : 2\r\n\r\n{}" + next,
		"brackets in a name":                   head + "X(A): a\r\nContent-Length: 2\r\n\r\n{}" + next,
		"CR in the path":                       "GET /ok\rX HTTP/1.1\r\nHost: x\r\n\r\n" + next,
		"a control character in the path":      "GET /ok\x01 HTTP/1.1\r\nHost: x\r\n\r\n" + next,
	}
}

// Taken are requests that all servers read in the same way.
func Taken() map[string]string {
	return map[string]string{
		"a length":             head + "Content-Length:  2 \r\n" + end + "{}",
		"chunks":               head + "Transfer-Encoding: chunked\r\n" + end + "1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n",
		"chunks, capitals":     head + "Transfer-Encoding: CHUNKED\r\n" + end + "2\r\n{}\r\n0\r\nX-T: 1\r\n\r\n",
		"a tab and Latin":      head + "X-A: a\tb\xff\r\nContent-Length: 2\r\n" + end + "{}",
		"two of other headers": head + "X-A: 1\r\nX-A: 2\r\nContent-Length: 2\r\n" + end + "{}",
		"no headers at all":    "GET /ok HTTP/1.0\r\n\r\n",
	}
}
