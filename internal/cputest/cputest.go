// Package cputest measures what code costs in tests, on machines that do other work at the same time.
package cputest

import (
	"runtime"
	"time"
)

// Time returns the CPU time that fn takes. fn must not start goroutines, which are not counted. On systems without a clock per thread it is the elapsed time.
func Time(fn func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := now()
	fn()
	return now() - began
}
