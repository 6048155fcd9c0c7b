package sandbox

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"understudy/internal/group"
)

// A mark is a limit of a command's processes by which they are found, whatever they do to their environment, their group and their session. The filter of system calls
// keeps them from changing it; without it they may. The limit is how long a process of real-time priority may compute without a pause, which nothing needs.
//
// It has a bit that no such limit has, 30 bits that name the server, and 32 random ones.
const (
	markLimit = unix.RLIMIT_RTTIME
	markBit   = 1 << 62
	markOwner = markBit>>32 - 1
)

// marks reports that processes are marked here.
const marks = true

func ownerOf(server string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(server)) // which has no error
	return h.Sum64() & markOwner
}

// newMark returns a mark for a command of a server.
func newMark(server string) uint64 {
	return markBit | ownerOf(server)<<32 | uint64(rand.Uint32()) //nolint:gosec // it need not be secret
}

// setMark marks a process, and so all that it starts from now on.
func setMark(pid int, mark uint64) error {
	if err := unix.Prlimit(pid, markLimit, &unix.Rlimit{Cur: mark, Max: mark}, nil); err != nil {
		return fmt.Errorf("mark a process: %w", err)
	}
	return nil
}

// markOf returns the mark of a process by its folder in /proc; 0: it has none, or is gone.
func markOf(dir string) uint64 {
	text, err := os.ReadFile(dir + "/limits")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("Max realtime timeout"))
	fields := bytes.Fields(rest[:max(0, bytes.IndexByte(rest, '\n'))])
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64) // the hard limit
	if err != nil || n>>62 != 1 {
		return 0
	}
	return n
}

// has reports whether a process belongs to a command: by its mark, or by a variable of its environment.
func (j *job) has(dir string) bool {
	if j.limit != 0 && markOf(dir) == j.limit {
		return true
	}
	return group.HasVariable(dir, marker+"="+j.mark)
}

// killMarked kills the processes of a command, those too that left its group.
func (j *job) killMarked() {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		found, last := false, lastPID()
		kill := func(pid int) {
			found = group.KillIf(pid, func(dir string) bool { return j.has(dir) && !ended(dir) }) || found
		}
		group.Processes(func(_ string, pid int) { kill(pid) })
		if now := lastPID(); !found && now == last {
			return
		}
		// One that starts another and ends, again and again, is never in a list that was read before: look at the newest.
		for range 200 {
			if pid := lastPID(); pid > 0 {
				kill(pid)
			}
		}
		if !found && !j.lives() {
			return
		}
	}
}

// lives reports whether a process of a command is there.
func (j *job) lives() (found bool) {
	for range 5 { // one that starts another and ends while the list is read may hide both
		last := lastPID()
		group.Processes(func(dir string, _ int) { found = found || j.has(dir) && !ended(dir) })
		if found || lastPID() == last {
			return found
		}
	}
	return false
}

// lastPID returns the ID of the process that started last in this namespace; 0: it is not known.
func lastPID() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[bytes.LastIndexByte(text, ' ')+1:])))
	if err != nil {
		return 0
	}
	return pid
}

// ended reports whether a process is gone, except for its result.
func ended(dir string) bool {
	pid, err := strconv.Atoi(filepath.Base(dir))
	return err != nil || startOf(pid) == ""
}

// orphaned returns a function that reports whether a process has the mark of a server that is not there. Those of other namespaces cannot be judged from here.
func orphaned() func(dir string) bool {
	space, err := os.Readlink("/proc/self/ns/pid")
	owners := sync.OnceValue(func() map[uint64]bool {
		all := map[uint64]bool{ownerOf(thisServer()): true}
		group.Processes(func(_ string, pid int) { all[ownerOf(fmt.Sprintf("%s/%d/%s", space, pid, startOf(pid)))] = true })
		return all
	})
	return func(dir string) bool {
		mark := markOf(dir)
		if err != nil || mark == 0 {
			return false
		}
		of, err := os.Readlink(dir + "/ns/pid")
		return err == nil && of == space && !owners()[mark>>32&markOwner]
	}
}
