package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// palette writes colors, or nothing.
type palette bool

// colorsOf returns the palette of an output: colors on a terminal, unless NO_COLOR is set (no-color.org) or TERM is dumb. FORCE_COLOR turns them on
// elsewhere.
func colorsOf(w io.Writer) palette {
	switch {
	case os.Getenv("NO_COLOR") != "":
		return false
	case os.Getenv("FORCE_COLOR") != "" && os.Getenv("FORCE_COLOR") != "0":
		return true
	}
	return palette(isTerminal(w) && os.Getenv("TERM") != "dumb")
}

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	cyan   = "36"
)

func (p palette) paint(color, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// sgr is a color, sequence any other control sequence.
var (
	sgr      = regexp.MustCompile("^\x1b\\[[0-9;]*m")
	sequence = regexp.MustCompile("^\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\))")
)

// printable returns text from elsewhere without control characters, which could change the terminal. Colors stay where colors are shown.
func (p palette) printable(s string) string {
	clean := func(r rune) bool { return r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	painted := false
	for i := 0; i < len(s); {
		if code := sgr.FindString(s[i:]); code != "" {
			if p {
				b.WriteString(code)
				painted = true
			}
			i += len(code)
			continue
		}
		if other := sequence.FindString(s[i:]); other != "" {
			i += len(other)
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if clean(r) {
			b.WriteRune(r)
		}
		i += size
	}
	if painted {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
