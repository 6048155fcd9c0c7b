//go:build unix

package connection

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// descriptor returns the number of a connection's file; -1 when it has none.
func descriptor(c net.Conn) int {
	number := -1
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { number = int(fd) })
		}
	}
	return number
}

// crowding reports whether the process has more than most files open, and whether some of those have numbers from most on. Numbers are below limit, and fd is
// one of them.
func crowding(fd, most, limit int) (tooMany, high bool) {
	above := 0
	for n := most; n < limit; n++ {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil { //nolint:gosec // not negative
			above++
		}
	}
	// As many numbers must be free below most: the system returns the lowest free one.
	var taken []int
	defer func() {
		for _, n := range taken {
			_ = unix.Close(n)
		}
	}()
	for len(taken) < above {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) //nolint:gosec // not negative
		if err != nil {
			return true, true
		}
		taken = append(taken, n)
		if n >= most {
			return true, true
		}
	}
	return false, above > 0
}
