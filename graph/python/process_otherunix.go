//go:build unix && !linux

package python

import "syscall"

// processAttributes puts a worker into a group of its own, so that Ctrl-C reaches only the server. Here it learns of the server's death
// only from the end of its socket.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// residentMemory is not available here: no limit is enforced.
func residentMemory(int) int64 { return 0 }

// oomKills is not known here.
func oomKills() int64 { return 0 }
