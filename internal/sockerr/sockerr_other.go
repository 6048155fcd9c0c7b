//go:build !windows

package sockerr

import "syscall"

// Errors of connect, listen and bind, for errors.Is.
const (
	InUse        = syscall.EADDRINUSE
	NotAvailable = syscall.EADDRNOTAVAIL
	Denied       = syscall.EACCES
	Refused      = syscall.ECONNREFUSED
)
