//go:build !linux

package python

import "syscall"

// processAttributes puts a worker into a group of its own, so that Ctrl-C reaches only the server. Here nothing but the end of its socket
// tells it that the server died.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// residentMemory is not known here: no limit is enforced.
func residentMemory(int) int64 { return 0 }
