//go:build unix

package pregel_test

import (
	"syscall"
	"testing"
)

// cpu reports the CPU time of an operation, which other work on the machine does not change.
func cpu(b *testing.B) func() {
	spent := func() int64 {
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
			return 0
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := spent()
	return func() { b.ReportMetric(float64(spent()-start)/float64(b.N), "cpu-ns/op") }
}
