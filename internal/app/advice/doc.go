// Package advice says what a person can do about the faults that keep a server from starting. The commands print it as their error, and doctor as
// a finding, so that both say the same.
package advice
