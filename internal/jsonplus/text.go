package jsonplus

import (
	"encoding/binary"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// appendString appends text as a JSON string: UTF-8 unescaped, NUL as U+FFFD, a lone surrogate as `?`, other bytes that are
// no UTF-8 as U+FFFD.
func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	dst = appendText(dst, s)
	return append(dst, '"')
}

// appendText is appendString without the quotes.
func appendText(dst, s []byte) []byte {
	done, i := 0, 0
	for i < len(s) {
		// Eight bytes at a time while none of them needs care: most text is plain ASCII.
		if i+8 <= len(s) && plain8(binary.LittleEndian.Uint64(s[i:])) {
			i += 8
			continue
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			dst = append(dst, s[done:i]...)
			if i+2 < len(s) && c == 0xed && s[i+1]&0xe0 == 0xa0 && s[i+2]&0xc0 == 0x80 {
				dst = append(dst, '?')
				i += 3
			} else {
				dst = append(dst, "\uFFFD"...)
				i++
			}
			done = i
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[done:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case 0:
			dst = append(dst, "\uFFFD"...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		done = i
	}
	return append(dst, s[done:]...)
}

// plain8 reports whether eight bytes are ASCII that a JSON string holds unescaped.
func plain8(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^(ones*'"'), w^(ones*'\\')
	return (w|(w-ones*' ')|(quote-ones)|(slash-ones))&highs == 0
}
