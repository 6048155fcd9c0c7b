package group

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Processes calls fn with the folder in /proc of each process but this one, and its ID.
func Processes(fn func(dir string, pid int)) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			fn(dir, pid)
		}
	}
}

// KillIf kills a process if own, which gets its folder in /proc, says so. Where the kernel can, it kills the process that own has seen, and not one that has got its ID since.
func KillIf(pid int, own func(dir string) bool) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	if !own(dir) {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		defer unix.Close(fd)
		return own(dir) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
	case errors.Is(err, unix.ESRCH):
		return false
	}
	return unix.Kill(pid, unix.SIGKILL) == nil // before Linux 5.3, and where containers forbid it
}

// HasVariable reports whether a process, by its folder in /proc, was started with a variable, NAME=value, and has not cleared it. A zombie has none.
func HasVariable(dir, variable string) bool {
	env, err := os.ReadFile(dir + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00"))
}
