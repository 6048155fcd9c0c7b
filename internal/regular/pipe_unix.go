//go:build unix

package regular

import "syscall"

// pipeWithoutReader is the error of opening a pipe for writing that has no reader.
const pipeWithoutReader = syscall.ENXIO
