//go:build unix

package sandbox

import "syscall"

// processAttributes puts a shell into a session of its own, whose group ends as a whole. It has no terminal: that of the server is not its own to read or write.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
