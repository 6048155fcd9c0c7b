//go:build !unix

package server

import "net"

// pair returns two ends of a connection within the process.
func pair() (ours, theirs net.Conn, err error) {
	ours, theirs = net.Pipe()
	return ours, theirs, nil
}
