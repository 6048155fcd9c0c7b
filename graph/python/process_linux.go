package python

import "syscall"

// processAttributes puts a worker into a group of its own, so that Ctrl-C reaches only the server, and has the kernel kill it when the
// server dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
