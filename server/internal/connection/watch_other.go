//go:build !unix

package connection

import "net"

// Watch is a no-op here: a client that has left is noticed when a heartbeat cannot be written.
func Watch(net.Conn, func()) (stop func()) { return func() {} }
