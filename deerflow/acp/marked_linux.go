package acp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"understudy/internal/group"
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
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		found := false
		group.Processes(func(_ string, pid int) {
			found = group.KillIf(pid, func(dir string) bool { return group.HasVariable(dir, variable) }) || found
		})
		if !found {
			return
		}
	}
}
