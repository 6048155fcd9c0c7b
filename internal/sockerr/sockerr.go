// Package sockerr names errors of sockets, which on Windows are not those of package syscall.
package sockerr
