package web

import (
	"github.com/valyala/fasthttp"

	"understudy/internal/fault"
	"understudy/internal/framing"
)

// ErrFraming is the answer to a request whose boundaries different servers may see in different places. Behind a proxy that disagrees
// with this server, a client could smuggle a request into another client's connection.
var ErrFraming = fault.New(fault.Invalid, "Invalid HTTP request received.")

// errBroken is the answer to a body that ends before its last chunk.
var errBroken = fault.New(fault.Invalid, "The request body broke off")

// Framed returns what the head of a request says of its body. ok reports whether it defines its length in a single, unambiguous way. fasthttp
// also accepts ambiguous ones.
func Framed(h *fasthttp.RequestHeader) (head framing.Head, ok bool) {
	if !framing.Target(h.RequestURI()) {
		return head, false
	}
	return framing.Parse(h.RawHeaders())
}
