// Package child runs Python programs in processes of their own, connected by a socket.
//
// The program is embedded and sent over the socket, so nothing is unpacked to disk. Frames are four bytes of length, big endian, then a message of the
// owner's own protocol. What the process prints arrives in two pipes. It ends with its family: the processes that it started.
package child

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"
)

//go:embed boot.py
var boot string

// shared are modules that every package gets.
//
//go:embed shared/*.py
var shared embed.FS

// setupVariable is the environment variable with the setup of a process, which it removes at its start.
const setupVariable = "UNDERSTUDY_WORKER"

// Modules returns the first frame of a process: the modules of its package by name, from the Python files in dir. It panics if there are none.
func Modules(files fs.FS, dir string) []byte {
	modules := map[string]string{}
	add := func(files fs.FS, dir string) {
		names, err := fs.Glob(files, path.Join(dir, "*.py"))
		if err != nil || len(names) == 0 {
			panic("child: no Python files in " + dir)
		}
		for _, name := range names {
			text, err := fs.ReadFile(files, name)
			if err != nil {
				panic("child: embedded program: " + err.Error())
			}
			modules[strings.TrimSuffix(path.Base(name), ".py")] = string(text)
		}
	}
	add(shared, "shared")
	add(files, dir)
	out, err := json.Marshal(modules)
	if err != nil {
		panic("child: embedded program: " + err.Error())
	}
	return out
}

// Program is what a process runs.
type Program struct {
	Python  string   // interpreter
	Package string   // its __main__.main(socket) is called. The first frame to the process is Modules of this package
	Dir     string   // working directory
	Env     []string // complete environment
	// Setup returns the configuration as JSON, with server in its member "server" unless that is nil.
	Setup func(server *Address) string
}

// Process is a process that was started. Close it.
type Process struct {
	PID            int
	Stdout, Stderr *os.File // to read from

	cmd    *exec.Cmd
	link   *link
	family family
}

// Start starts a process. On Linux the kernel kills it when the thread of the caller ends: lock the goroutine to its thread until Wait has returned.
func Start(p Program) (_ *Process, err error) {
	c := &Process{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.link, err = newLink(); err != nil {
		return nil, fmt.Errorf("socket for a worker: %w", err)
	}
	var outEnd, errEnd *os.File
	if c.Stdout, outEnd, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("pipe for a worker: %w", err)
	}
	defer outEnd.Close()
	if c.Stderr, errEnd, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("pipe for a worker: %w", err)
	}
	defer errEnd.Close()

	c.cmd = exec.Command(p.Python, "-c", boot, p.Package) //nolint:noctx // its owner ends it in order
	c.cmd.Dir = p.Dir
	c.cmd.Env = append(append([]string{}, p.Env...), setupVariable+"="+p.Setup(c.link.address()))
	c.cmd.Stdout, c.cmd.Stderr = outEnd, errEnd
	c.cmd.ExtraFiles = c.link.inherited()
	c.cmd.SysProcAttr = attributes()
	err = c.cmd.Start()
	c.link.started()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	c.PID, c.family = c.cmd.Process.Pid, familyOf(c.cmd.Process)
	return c, nil
}

// Connect returns the connection of the process. It waits for it until ExpectNone or Hangup.
func (c *Process) Connect() (net.Conn, error) { return c.link.connect() }

// ExpectNone ends Connect: the process has ended.
func (c *Process) ExpectNone() { c.link.expectNone() }

// Hangup closes the connection, which asks the process to end.
func (c *Process) Hangup() { c.link.close() }

// Wait returns when the process has ended, with the error of exec.Cmd.Wait. Call it once.
func (c *Process) Wait() error { return c.cmd.Wait() }

// Kill kills the process and those that it started. It may be called again when the process has ended, for the others.
func (c *Process) Kill() { c.family.kill() }

// lastLines is the time for reading what is left in the pipes of a process that has ended.
const lastLines = 200 * time.Millisecond

// Drain makes reads of the pipes end after a moment: a stray grandchild may keep them open forever.
func (c *Process) Drain() {
	deadline := time.Now().Add(lastLines)
	_ = c.Stdout.SetReadDeadline(deadline)
	_ = c.Stderr.SetReadDeadline(deadline)
}

// Close releases what the server has of a process that has ended.
func (c *Process) Close() {
	if c.link != nil {
		c.link.close()
	}
	for _, pipe := range []*os.File{c.Stdout, c.Stderr} {
		if pipe != nil {
			pipe.Close()
		}
	}
	if c.PID != 0 {
		c.family.close()
	}
}
