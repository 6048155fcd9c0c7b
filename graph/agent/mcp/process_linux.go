package mcp

import "syscall"

// processAttributes puts a server into a group of its own, so that Ctrl-C reaches only this process, and has the kernel kill it when this
// process dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
