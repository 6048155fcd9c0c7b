//go:build unix && !linux

package mcp

import "syscall"

// processAttributes puts a server into a group of its own, so that Ctrl-C reaches only this process. The end of its stdin tells it that
// this process died.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
