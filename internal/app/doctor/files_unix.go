//go:build unix

package doctor

import "syscall"

// openFiles returns how many files the process may have open.
func openFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil //nolint:unconvert // other sizes on other machines
}
