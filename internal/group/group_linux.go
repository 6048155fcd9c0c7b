// Package group starts programs so that they end with all that they started.
package group

import "syscall"

// Attributes puts a program into a group of its own, so that Ctrl-C reaches only this process, and has the kernel kill it when this
// process dies.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Kill kills the group of a program, or the program where there are no groups.
func Kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
