package python

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// processAttributes puts a worker into a group of its own, so that Ctrl-C reaches only the server, and makes the kernel kill it when
// the server dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// residentMemory returns the resident memory of a process in bytes; 0 when it has ended.
func residentMemory(pid int) int64 {
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
