// Package child runs Python programs in processes of their own, connected by a socket.
//
// The program is embedded and sent over the socket, so nothing is unpacked to disk. Frames are four bytes of length, big endian, then a message of the
// owner's own protocol. What the process prints arrives in two pipes. It ends with its family: the processes that it started.
package child

import (
	"bufio"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"sync"
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

const (
	frameBuffer = 64 << 10 // bytes

	exitWithin = time.Second            // for a process to exit when its socket is closed
	lastFrames = time.Second            // for reading what a process that has exited left in its socket
	lastLines  = 200 * time.Millisecond // and in its pipes
)

// Program is what a process runs.
type Program struct {
	Python  string   // interpreter
	Package string   // its __main__.main(socket) is called. The first frame to the process is Modules of this package
	Dir     string   // working directory
	Env     []string // complete environment
	// Setup returns the configuration as JSON, with server in its member "server" unless that is nil.
	Setup func(server *Address) string
}

// Process is a process that was started.
type Process struct {
	PID            int
	Stdout, Stderr *os.File // to read from

	Gone chan struct{} // after Attach: closed when no more frames come from it, because of ReadErr
	Left chan struct{} // after Attach: closed when it has ended, with WaitErr
	// ReadErr is the error of reading its frames, after Gone; WaitErr is that of exec.Cmd.Wait, after Left.
	ReadErr, WaitErr error
	// Forced reports, after End, that the process had closed its socket and had to be killed because it did not exit then.
	Forced bool

	cmd    *exec.Cmd
	link   *link
	family family
	wires  sync.WaitGroup // the goroutines of Attach
	out    *Outbox
}

// Start starts a process. The caller attaches, ends and closes it, all in the goroutine of Start, which keeps its thread until Close: on Linux the kernel
// kills a process when the thread that started it ends.
func Start(p Program) (_ *Process, err error) {
	runtime.LockOSThread()
	c := &Process{Gone: make(chan struct{}), Left: make(chan struct{})}
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

// Attach passes the frames of the process to read, until that returns an error, and writes out to it. It returns at once.
func (c *Process) Attach(out *Outbox, read func(frames *bufio.Reader) error) {
	c.out = out
	connected := make(chan net.Conn, 1)
	c.wires.Go(func() {
		defer close(c.Gone)
		defer close(connected)
		conn, err := c.link.connect()
		if err != nil {
			c.ReadErr = err
			return
		}
		connected <- conn
		c.ReadErr = read(bufio.NewReaderSize(conn, frameBuffer))
	})
	c.wires.Go(func() {
		if conn, ok := <-connected; ok {
			out.WriteTo(conn)
		}
	})
	c.wires.Go(func() { defer close(c.Left); c.WaitErr = c.cmd.Wait() })
}

// End ends the process if it runs, and its family. When it returns, Gone and Left are closed, and reads of the pipes end within lastLines.
func (c *Process) End() {
	select {
	case <-c.Left:
		// Its last frames are still to be read. Children of it may hold its socket: those in its family end now, others are not waited for.
		c.Kill()
		c.link.expectNone()
		select {
		case <-c.Gone:
		case <-time.After(lastFrames):
		}
	default:
	}

	gone := false
	select {
	case <-c.Gone:
		gone = true
	default:
	}
	// It exits when its socket closes. Its children die with its family.
	c.out.Close()
	c.link.close()
	timer := time.NewTimer(exitWithin)
	select {
	case <-c.Left:
	case <-timer.C:
		c.Forced = gone
		c.Kill()
		<-c.Left
	}
	timer.Stop()
	c.Kill()
	c.wires.Wait()
	// A stray grandchild may keep the pipes open forever.
	deadline := time.Now().Add(lastLines)
	_ = c.Stdout.SetReadDeadline(deadline)
	_ = c.Stderr.SetReadDeadline(deadline)
}

// Kill kills the process and those that it started. It may be called again when the process has ended, for the others.
func (c *Process) Kill() { c.family.kill() }

// Close releases what the server has of a process that has ended, and whose pipes are read.
func (c *Process) Close() {
	defer runtime.UnlockOSThread()
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
