//go:build unix

package connection

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// Watch calls left when the peer closes the connection, which fasthttp does not report. It peeks, so that bytes of a next request stay
// in the buffer. Once there are some, it cannot see the bytes after them, and the watch ends.
//
// stop ends the watch and returns when it is over. It must be called before anything else reads from the connection.
func Watch(conn net.Conn, left func()) (stop func()) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return func() {}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() {}
	}
	_ = conn.SetReadDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		gone := false
		var b [1]byte
		_ = raw.Read(func(fd uintptr) bool {
			n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
				return false
			}
			gone = err != nil || n == 0
			return true
		})
		if gone {
			left()
		}
	}()
	return func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = conn.SetReadDeadline(time.Time{})
	}
}
