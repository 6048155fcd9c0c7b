// Package shell writes words of commands that a person copies into a shell.
package shell

import "strings"

// Quote returns text as one word: as it is, or in single quotes where a shell would split or change it.
func Quote(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\r\n'\"\\$&;()<>|*?[]{}!#~`") {
		return "'" + Inside(s) + "'"
	}
	return s
}

// Inside returns text for the inside of single quotes.
func Inside(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }
