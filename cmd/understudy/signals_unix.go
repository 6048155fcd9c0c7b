//go:build !windows

package main

import (
	"os"
	"syscall"
)

// reopenSignals are sent after logs were rotated, to servers that write files.
var reopenSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}
