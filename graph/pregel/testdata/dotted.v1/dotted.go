// Package dotted has a dot in the last element of its path.
package dotted

// Note does nothing.
func Note() {}
