// Package cputest measures what code costs in tests, on machines that do other work at the same time.
package cputest

import (
	"runtime"
	"time"
)

// Time returns how much time of a processor a function takes that starts no goroutines. Where that cannot be told it is the time that passes.
func Time(fn func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := now()
	fn()
	return now() - began
}
