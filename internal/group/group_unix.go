//go:build unix && !linux

package group

import "syscall"

// Attributes puts a program into a group of its own, so that Ctrl-C reaches only this process. A program learns from the end of its
// stdin that this process died.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Kill kills the group of a program, or the program where there are no groups.
func Kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
