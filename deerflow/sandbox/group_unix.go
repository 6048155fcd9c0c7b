//go:build unix && !linux

package sandbox

import (
	"errors"
	"syscall"
)

// groupLives reports whether a group has processes.
func groupLives(pid int) bool { return !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) }
