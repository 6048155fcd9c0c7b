package serverurl

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
)

// speaksTLS are the answers, in lower case, of servers with TLS to plain HTTP: of Go, nginx, Apache and this program.
var speaksTLS = []string{"http request to an https server", "plain http request was sent to https port", "speaking plain http to an ssl-enabled server port", "this port has tls"}

const (
	writeHTTP  = "it has plain HTTP, not TLS; write http:// in place of https://"
	writeHTTPS = "it has TLS, not plain HTTP; write https:// in place of http://"
)

// Mismatch says that what listens at an address speaks another protocol than the address says, from the error of a request, and what to do; "" when the error has
// another cause.
func Mismatch(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, http.ErrSchemeMismatch), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return writeHTTP
	case errors.As(err, new(tls.RecordHeaderError)):
		return "what listens there does not speak TLS"
	case strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // a TLS alert
		return writeHTTPS
	case strings.Contains(err.Error(), "malformed HTTP"):
		return "what listens there does not speak HTTP"
	case errors.Is(err, io.EOF):
		return "what listens there closed the connection without an answer: it stopped, or does not speak HTTP"
	}
	return ""
}

// MismatchOf is Mismatch for an answer.
func MismatchOf(status int, body []byte) string {
	if status != http.StatusBadRequest {
		return ""
	}
	body = bytes.ToLower(body)
	for _, text := range speaksTLS {
		if bytes.Contains(body, []byte(text)) {
			return writeHTTPS
		}
	}
	return ""
}
