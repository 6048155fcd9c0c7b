//go:build unix

package server

import (
	"net"
	"os"
	"syscall"
)

// pair returns two ends of a connection within the process. They have descriptors, so that the end of one is seen like that of a client.
func pair() (ours, theirs net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		syscall.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "inside")
		end, wrong := net.FileConn(file)
		file.Close()
		if wrong != nil {
			err = wrong
			continue
		}
		ends[i] = end
	}
	if err != nil {
		for _, end := range ends {
			if end != nil {
				end.Close()
			}
		}
		return nil, nil, err
	}
	return ends[0], ends[1], nil
}
