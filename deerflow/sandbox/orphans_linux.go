package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"understudy/internal/group"
)

// server is a variable of commands that names the server which started them: its namespace of processes, ID and start.
const server = "UNDERSTUDY_SANDBOX_SERVER"

// thisServer is the value of server for this process; "": it cannot be known.
func thisServer() string {
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	start := startOf(os.Getpid())
	if start == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", space, os.Getpid(), start)
}

// startOf returns when a process began, in ticks since the machine did; "": there is none.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may have any character
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// alive reports whether a server is, or cannot be judged from here.
func alive(name string) bool {
	parts := strings.Split(name, "/")
	own := strings.Split(thisServer(), "/")
	if len(parts) != 3 || len(own) != 3 || parts[0] != own[0] {
		return true
	}
	pid, err := strconv.Atoi(parts[1])
	return err != nil || startOf(pid) == parts[2]
}

// livesHere reports whether a server is a process that can be seen from here, and lives.
func livesHere(name string) bool {
	space, _, _ := strings.Cut(name, "/")
	own, _, _ := strings.Cut(thisServer(), "/")
	return name != "" && space == own && alive(name)
}

// killOrphans kills commands whose server died without ending them, and returns how many processes there were. Their runs are tried again: without this, what such a
// command does in the meantime happens twice.
func killOrphans() (n int) {
	marked := orphaned()
	group.Processes(func(_ string, pid int) {
		if group.KillIf(pid, func(dir string) bool { return (marked(dir) || ofDead(dir)) && !ended(dir) }) {
			n++
		}
	})
	return n
}

// ofDead reports whether the environment of a process names a server that is dead.
func ofDead(dir string) bool {
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return false
	}
	_, rest, found := bytes.Cut(append([]byte{0}, env...), []byte("\x00"+server+"="))
	name, _, _ := bytes.Cut(rest, []byte{0})
	return found && !alive(string(name))
}
