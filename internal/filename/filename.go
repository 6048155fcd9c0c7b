// Package filename judges names of files that come from strangers.
package filename

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Plain reports whether a name shows as it is in lists, logs and prompts: it has no control characters, ends of lines, and marks that turn the direction of what follows,
// which make gpj.exe of exe.jpg. Letters that are written from right to left are plain.
func Plain(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		switch {
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == unicode.ReplacementChar:
			return true
		}
		return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
	})
}

// Folded returns the same text for all names that are one file on disks which do not tell letters apart by case, or by how accents are composed.
func Folded(name string) string {
	return norm.NFC.String(strings.ToLower(norm.NFC.String(name)))
}
