// Package typo guesses what was meant by a misspelt name.
package typo

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Meant returns the one of some names that was likely meant, the first in the alphabet of those that are equally near; "" when none is near. Capitals do not
// count.
func Meant(name string, known []string) string {
	best, least := "", len(name)
	for _, k := range known {
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d <= most(name) && (d < least || d == least && best != "" && k < best) {
			best, least = k, d
		}
	}
	return best
}

// most is how many letters of a name may be wrong, missing or too many: one in three, at most two.
func most(name string) int { return min(2, max(1, (len(name)+1)/3)) }

// edits is how many letters of a are wrong, missing or too many for b; 1 if two of them changed places.
func edits(a, b string) int {
	d := levenshtein.ComputeDistance(a, b)
	if d == 2 && sorted(a) == sorted(b) {
		return 1
	}
	return d
}

func sorted(text string) string {
	letters := []rune(text)
	slices.Sort(letters)
	return string(letters)
}
