// Package typo guesses what was meant by a misspelt name.
package typo

import "github.com/agnivade/levenshtein"

// most is how many letters may be wrong, missing or too many.
const most = 2

// Meant returns the one of some names that was likely meant, the first in the alphabet of those that are equally near; "" when none is near.
func Meant(name string, known []string) string {
	best, least := "", most+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(name, k); d < len(name) && (d < least || d == least && best != "" && k < best) {
			best, least = k, d
		}
	}
	return best
}
