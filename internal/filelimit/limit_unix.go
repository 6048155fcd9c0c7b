//go:build unix

package filelimit

import (
	"math"
	"syscall"
)

func limit() uint64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || uint64(l.Cur) > math.MaxInt32 { //nolint:unconvert // other sizes on other machines
		return 0
	}
	return uint64(l.Cur) //nolint:unconvert // as above
}
