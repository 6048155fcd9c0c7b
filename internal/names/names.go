// Package names writes names of files, and lists of names, for messages.
package names

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Some returns the first names, at most so many, and how many more there are: "a, b and 3 more".
func Some(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// From returns a file as seen from a folder if it is below that, and otherwise as it is.
func From(dir, file string) string {
	if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return file
}
