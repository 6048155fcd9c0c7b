//go:build unix && !openbsd

package memlimit

import (
	"math"
	"syscall"
)

// addressSpace returns the limit of the process's address space (ulimit -v); 0: there is none.
func addressSpace() int64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &l); err != nil || uint64(l.Cur) > math.MaxInt64/2 {
		return 0
	}
	return int64(l.Cur)
}
