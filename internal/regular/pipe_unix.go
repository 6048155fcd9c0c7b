//go:build unix

package regular

import "syscall"

// noOtherEnd is the error of opening a socket, and for writing a pipe that has no reader.
const noOtherEnd = syscall.ENXIO
