// Package seedtest says how often random tests repeat: seldom before a landing, and often in make test-all.
package seedtest

import "os"

// Variable is the environment variable that make test-all sets, so that tests repeat in full.
const Variable = "UNDERSTUDY_TEST_ALL"

// least is the fewest seeds: one seed is a case, not a class of them.
const least = 3

// Seeds returns how many of the seeds 0, 1, 2… a test tries: all, or a quarter of them.
func Seeds(all uint64) uint64 {
	if InFull() {
		return all
	}
	return max(all/4, min(all, least))
}

// InFull reports whether tests repeat in full. A test of all combinations may otherwise leave out those that others nearly cover.
func InFull() bool { return os.Getenv(Variable) != "" }
