//go:build unix && !linux

package child

import "syscall"

// attributes puts a worker into a group of its own, so that Ctrl-C reaches only the server. Here it learns of the server's death
// only from the end of its socket.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// ResidentMemory is not available here: no limit is enforced.
func ResidentMemory(int) int64 { return 0 }

// OOMKills is not known here.
func OOMKills() int64 { return 0 }
