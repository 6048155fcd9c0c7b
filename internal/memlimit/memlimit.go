// Package memlimit keeps the Go runtime within the memory limit of its container. Otherwise Go lets garbage grow to the size of the live heap,
// and the kernel kills a server whose live heap would have fit.
package memlimit

import (
	"bufio"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Reserve is the memory for other things in the same container.
type Reserve struct {
	Workers     int
	WorkerBytes int64 // of one worker; 0: DefaultWorkerBytes
}

const (
	// databaseBytes is for SQLite, whose memory Go does not count: page caches of the writer and the readers, and sorting.
	databaseBytes = 128 << 20
	// DefaultWorkerBytes is the memory of a worker that has imported LangGraph and a graph of usual size.
	DefaultWorkerBytes = 128 << 20
	// leastShare is the minimum share of Go: a quarter of the limit, whatever is reserved.
	leastShare = 4
)

// Set sets the memory limit of the Go runtime from that of the container, unless the environment has GOMEMLIMIT. It returns both; 0: none, or not
// set.
func Set(r Reserve) (container, set int64) {
	if _, given := os.LookupEnv("GOMEMLIMIT"); given {
		return 0, 0
	}
	if container = Container(os.DirFS("/")); container == 0 {
		return 0, 0
	}
	set = r.of(container)
	debug.SetMemoryLimit(set)
	return container, set
}

// LeastSpace is the least address space to start with. The Go runtime reserves 0.7 GB before the program runs, and threads, SQLite's mapped pages and the heap
// come on top. What is missing later ends the process with a trace of the Go runtime, which no program can catch.
const LeastSpace = 2 << 30

// AddressSpace returns the limit of this process's address space (RLIMIT_AS, `ulimit -v`), which its workers have too; 0: there is none.
func AddressSpace() int64 { return addressSpace() }

// Fits reports whether a limit of the container covers the reserve in addition to Go's minimum share; needed is the smallest limit that does.
func (r Reserve) Fits(limit int64) (needed int64, fits bool) {
	worker := r.WorkerBytes
	if worker == 0 {
		worker = DefaultWorkerBytes
	}
	needed = (databaseBytes + int64(r.Workers)*worker) * 20 / 13 // nine tenths of it less the reserve are a quarter
	return needed, limit >= needed
}

// of returns the part of a limit for Go.
func (r Reserve) of(limit int64) int64 {
	worker := r.WorkerBytes
	if worker == 0 {
		worker = DefaultWorkerBytes
	}
	return max(limit/leastShare, limit*9/10-databaseBytes-int64(r.Workers)*worker)
}

// Share returns an n-th of the memory limit of the Go runtime, and most when that is less or there is no limit.
func Share(n, most int64) int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return most
	}
	return min(limit/n, most)
}

// Container returns the memory limit of the control group that this process is in, and of those above it, of version 2 or 1; 0: there is none.
func Container(root fs.FS) int64 {
	f, err := root.Open("proc/self/cgroup")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	least := int64(0)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, name := "", ""
		switch controllers := "," + parts[1] + ","; {
		case parts[0] == "0" && parts[1] == "":
			dir, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(controllers, ",memory,"):
			dir, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path may be that of the host, where nothing is mounted: the root is its own group then.
		for group := path.Join("/", parts[2]); ; group = path.Dir(group) {
			if n := read(root, path.Join(dir, group, name)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if group == "/" {
				break
			}
		}
	}
	return least
}

// read returns the limit in a file; 0 when there is none. Version 1 has a huge number when there is none.
func read(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= 1<<60 {
		return 0
	}
	return n
}
