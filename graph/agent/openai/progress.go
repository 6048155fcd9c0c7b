package openai

import "encoding/json"

// progress follows JSON that comes in pieces, and reads each byte once. It reports where a value ends, not whether the value is valid:
// arguments with raw newlines or single quotes are complete, too.
type progress struct {
	len     int  // bytes so far
	begun   bool // anything but white space has come
	quoted  bool // within a string
	escaped bool // the next character of the string is
	depth   int  // open arrays and objects
	ended   bool // a string, an array or an object has ended
	broken  bool // more follows its end
	plain   []byte
}

// maxPlain is how long a number, true, false or null may be.
const maxPlain = 64

func (p *progress) add(piece string) {
	p.len += len(piece)
	for i := range len(piece) {
		c := piece[i]
		blank := c == ' ' || c == '\t' || c == '\r' || c == '\n'
		switch {
		case p.quoted:
			switch {
			case p.escaped:
				p.escaped = false
			case c == '\\':
				p.escaped = true
			case c == '"':
				p.quoted, p.ended = false, p.depth == 0
			}
		case blank && (!p.begun || p.ended):
		case p.ended:
			p.broken = true
			return
		case len(p.plain) > 0 || !p.begun && c != '"' && c != '{' && c != '[':
			p.begun = true
			if len(p.plain) <= maxPlain {
				p.plain = append(p.plain, c)
			}
		default:
			p.begun = true
			switch c {
			case '"':
				p.quoted = true
			case '{', '[':
				p.depth++
			case '}', ']':
				p.depth--
				p.ended = p.depth == 0
			}
		}
	}
}

// complete reports whether a value has come, and nothing else.
func (p *progress) complete() bool {
	if len(p.plain) > 0 {
		return len(p.plain) <= maxPlain && json.Valid(p.plain)
	}
	return p.ended && !p.broken
}
