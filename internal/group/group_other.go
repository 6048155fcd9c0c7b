//go:build !unix

package group

import (
	"os"
	"syscall"
)

// Attributes returns nothing: there are no groups here.
func Attributes() *syscall.SysProcAttr { return nil }

// Kill kills the group of a program, or the program where there are no groups.
func Kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
