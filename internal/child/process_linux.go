package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// attributes puts a worker into a group of its own, so that Ctrl-C reaches only the server, and makes the kernel kill it when
// the server dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// ResidentMemory returns the resident memory of a process in bytes; 0 when it has ended.
func ResidentMemory(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// OOMKills returns how many processes of this container, or of this server's group, the kernel has killed for want of memory; 0 when that is unknown.
func OOMKills() int64 {
	path := "/sys/fs/cgroup"
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		if _, group, ok := bytes.Cut(bytes.TrimSpace(own), []byte("0::")); ok {
			path += string(group)
		}
	}
	text, err := os.ReadFile(path + "/memory.events")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if n, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			count, _ := strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
			return count
		}
	}
	return 0
}
