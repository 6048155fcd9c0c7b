package sandbox

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// podmanLimit is what podman sets for open files and for processes, when it runs as root and is not asked for other limits.
const podmanLimit = 1 << 20

// ownLimits are the limits of this process where they are lower than those that podman sets: in a container of its own the server may not raise them, and without
// these nothing could be started there. Podman lowers its own limit of processes to the number of IDs.
func ownLimits() (list []ulimit) {
	for name, of := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var l unix.Rlimit
		if unix.Getrlimit(of, &l) != nil {
			continue
		}
		most := min(l.Max, podmanLimit)
		if of == unix.RLIMIT_NPROC {
			text, err := os.ReadFile("/proc/sys/kernel/pid_max")
			if ids, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
				most = min(most, ids)
			}
		}
		if most < podmanLimit {
			list = append(list, ulimit{Name: name, Soft: int64(most), Hard: int64(most)})
		}
	}
	return list
}
