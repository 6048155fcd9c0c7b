package acp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child has exited and leaves it to Wait to release its ID.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killMarked kills the processes that have a variable, NAME=value, in their environment, those too that left the group of their parent. It returns when there are none
// left, within three seconds.
func killMarked(variable string) {
	within := []byte("\x00" + variable + "\x00")
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
		for _, dir := range dirs {
			env, err := os.ReadFile(dir + "/environ") // of a zombie it is empty
			if err != nil || !bytes.Contains(append([]byte{0}, env...), within) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}
