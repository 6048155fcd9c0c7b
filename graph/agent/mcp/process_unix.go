//go:build unix && !linux

package mcp

import "syscall"

// processAttributes puts a server into a group of its own, so that Ctrl-C reaches only this process. It learns from the end of its
// stdin that this process died.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
