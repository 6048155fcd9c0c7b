//go:build unix

package sandbox

import "syscall"

// processAttributes puts a shell into a group of its own, which ends as a whole.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
