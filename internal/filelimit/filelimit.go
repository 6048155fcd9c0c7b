// Package filelimit knows how many files, connections and pipes included, this process may have open, and what to do when they are too few.
package filelimit

import (
	"errors"
	"fmt"
	"syscall"
)

// Fix is the advice for a limit that is too low.
const Fix = "raise the limit on open files: ulimit -n 65536, or LimitNOFILE=65536 of a systemd unit"

const (
	leastReserve, mostReserve = 48, 256 // a worker takes ten while it starts, and several may start at once
	// What a server with SQLite has open before the first client connects, what it has open for each Python worker, and a few clients.
	filesOfServer, filesOfWorker, someClients = 32, 4, 8
)

// Limit returns how many files the process may have open; 0 when that is not limited, or unknown.
func Limit() uint64 { return limit() }

// Reserve is how many files of this limit are kept for other uses than clients: starting workers, databases, requests to models.
func Reserve(limit uint64) uint64 { return min(max(limit/16, leastReserve), mostReserve) }

// Needed is the lowest limit with which a server with this many Python workers can serve a few clients.
func Needed(workers int) uint64 {
	return filesOfServer + leastReserve + someClients + filesOfWorker*uint64(max(workers, 0)) //nolint:gosec // not negative
}

// Exhausted explains an error of the system that reports too many open files; "" for other errors.
func Exhausted(err error) (why, fix string) {
	switch {
	case errors.Is(err, syscall.EMFILE):
		if n := Limit(); n > 0 {
			return fmt.Sprintf("the limit of %d open files and connections is reached", n), Fix
		}
		return "the limit on open files and connections is reached", Fix
	case errors.Is(err, syscall.ENFILE):
		return "the limit on open files of the whole machine is reached", "raise fs.file-max (sysctl), or end programs that have many files open"
	}
	return "", ""
}
