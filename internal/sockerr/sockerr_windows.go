package sockerr

import "golang.org/x/sys/windows"

// Errors of connect, listen and bind, for errors.Is.
const (
	InUse        = windows.WSAEADDRINUSE
	NotAvailable = windows.WSAEADDRNOTAVAIL
	Denied       = windows.WSAEACCES
	Refused      = windows.WSAECONNREFUSED
)
