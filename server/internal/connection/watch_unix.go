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
		var b [5]byte
		_ = raw.Read(func(fd uintptr) bool {
			n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
				return false
			}
			gone = err != nil || n == 0 || goodbye(b[:n])
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

// goodbye reports whether bytes are the header of the record with which a TLS client closes: an alert, or since TLS 1.3 encrypted data as short
// as one. Plain HTTP begins with neither.
func goodbye(b []byte) bool {
	const alert, data, longest = 0x15, 0x17, 19
	return len(b) == 5 && b[1] == 3 && (b[0] == alert || b[0] == data && b[3] == 0 && b[4] <= longest)
}
