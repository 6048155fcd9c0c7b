//go:build !unix

package pregel_test

import "testing"

// cpu reports nothing where the CPU time is not known.
func cpu(*testing.B) func() { return func() {} }
