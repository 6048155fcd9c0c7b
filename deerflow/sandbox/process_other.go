//go:build !unix

package sandbox

import (
	"os"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func groupLives(int) bool { return false }
