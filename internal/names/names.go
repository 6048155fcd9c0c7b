// Package names writes lists of names for messages.
package names

import (
	"fmt"
	"strings"
)

// Some returns the first names, at most so many, and how many more there are: "a, b and 3 more".
func Some(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
