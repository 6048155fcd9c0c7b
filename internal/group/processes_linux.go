package group

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
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

// HasVariable reports whether a process, by its folder in /proc, was started with a variable, NAME=value, and has not cleared it. A zombie has none.
func HasVariable(dir, variable string) bool {
	env, err := os.ReadFile(dir + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00"))
}
