// Package framing checks where requests begin and end: that their heads say so in one way only. Servers read odd heads differently, and behind another one
// that sees another end a client could put words into the mouth of the next.
package framing

import (
	"bytes"
)

// Head is what the head of a message says of its body.
type Head struct {
	Length  int64 // -1: it has none
	Chunked bool
	Upgrade bool // the connection may be used for another protocol after it
}

// Parse reads header lines, from behind the first line to the empty line that ends them. ok is false when they could be read differently: a line that does not
// end with CR LF or is folded, a name that is no token, a control character, more than one length, a coding other than chunked.
func Parse(raw []byte) (h Head, ok bool) {
	h.Length = -1
	lengths, codings := 0, 0
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 1 || raw[end-1] != '\r' {
			return h, false
		}
		line := raw[:end-1]
		raw = raw[end+1:]
		if len(line) == 0 {
			return h, len(raw) == 0 && lengths+codings <= 1
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 1 {
			return h, false
		}
		name, value := line[:colon], line[colon+1:]
		for _, c := range name {
			if !isToken(c) {
				return h, false
			}
		}
		for _, c := range value {
			if c < ' ' && c != '\t' || c == 0x7f {
				return h, false
			}
		}
		switch {
		case named(name, "content-length"):
			lengths++
			if h.Length, ok = digits(bytes.Trim(value, " \t")); !ok {
				return h, false
			}
		case named(name, "transfer-encoding"):
			codings++
			// Another coding before it would have to be decoded: a body that was only freed of its chunks means something else.
			if !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
				return h, false
			}
			h.Chunked = true
		case named(name, "upgrade"):
			h.Upgrade = true
		}
	}
	return h, lengths+codings <= 1
}

func named(name []byte, lower string) bool {
	return len(name) == len(lower) && bytes.EqualFold(name, []byte(lower))
}

// digits reads a length: digits alone, of no more than 18.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0 && len(b) <= 18
}

// Target reports whether a request line, or a part of one, has no control characters.
func Target(line []byte) bool {
	for _, c := range line {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether c may stand in the name of a header.
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}
