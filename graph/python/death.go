package python

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/internal/names"
)

// signals names the signals that end a process.
var signals = map[syscall.Signal]string{
	syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGILL: "SIGILL",
	syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT", syscall.SIGPIPE: "SIGPIPE", syscall.SIGTRAP: "SIGTRAP",
}

const lessMemory = "give the machine or its container more memory, or keep less in memory: fewer runs at a time (--jobs-per-worker), smaller values in the state"

const lessMemoryOfWorker = "let nodes keep less in memory, execute fewer runs at a time (--jobs-per-worker), or raise --worker-memory"

// closedSocket is why this server kills a worker that has closed its connection and does not exit.
var closedSocket = reason{"it had closed its connection to the server, and did not exit", "look for code that closes file descriptors (os.close, os.closerange) or stops the event loop"}

// deathOf describes how a worker ended. why is for which this server killed it, zero if it did not; outOfMemory: the kernel has killed a process
// for want of memory since the worker began.
func deathOf(err error, why reason, outOfMemory bool) (cause, fix string) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if why.text != "" {
			return "this server ended it: " + why.text, why.fix
		}
		return "it closed its connection to the server", closedSocket.fix
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	signalled := ok && status.Signaled()
	switch {
	case why.text != "" && (!signalled || status.Signal() == syscall.SIGKILL):
		return "this server ended it: " + why.text, why.fix
	case !signalled:
		return fmt.Sprintf("it left with exit code %d", exit.ExitCode()), "look for os._exit and for libraries that end the process, and raise an exception instead"
	}
	name := signals[status.Signal()]
	if name == "" {
		name = fmt.Sprintf("signal %d", status.Signal())
	}
	switch status.Signal() {
	case syscall.SIGKILL:
		if outOfMemory {
			return "the kernel killed it because memory ran out (SIGKILL)", lessMemory
		}
		return "it was killed (SIGKILL), as the kernel does when memory runs out", lessMemory
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return "it was sent " + name, "look for what sends signals to the processes of the server"
	}
	return fmt.Sprintf("it crashed in native code (%s, %s)", name, status.Signal()), "set PYTHONFAULTHANDLER=1 to see where in the log, and update the native packages that the node uses"
}

// died returns the error of the call when its worker has ended.
func (c *call) died(cause, fix string) error {
	return &graph.Death{Cause: cause, At: c.at(), Fix: fix}
}

// begins notes the checkpoint from which a run starts.
func (c *call) begins(tasks []byte, writes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks, c.wrote = tasks, writes
}

// wrote returns the IDs of tasks that have saved the writes of their end.
func wrote(writes []checkpointer.Write) (tasks []string) {
	for _, w := range writes {
		if !slices.Contains(tasks, w.TaskID) && w.Channel != "__interrupt__" && w.Channel != "__resume__" && w.Channel != "__error__" {
			tasks = append(tasks, w.TaskID)
		}
	}
	return tasks
}

// node notes that a node is called, or has ended.
func (c *call) node(name string, began bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if began {
		c.steps, c.step = append(c.steps, name), name
	} else if i := slices.Index(c.steps, name); i >= 0 {
		c.steps = slices.Delete(c.steps, i, i+1)
	}
}

// at returns where the run was: "in node a" if the run reports its nodes, or "in or after node a" according to the last saves; "" when nothing is
// known. A process that ends takes along what it has not sent yet, so that after the saves later nodes may have begun.
func (c *call) at() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.steps) > 0 {
		return nodes("in", c.steps)
	}
	if c.step != "" {
		return nodes("after", []string{c.step})
	}
	running, ended := c.unended()
	if len(running) > 0 {
		return nodes("in or after", running)
	}
	return nodes("after", ended)
}

// running returns the nodes that the run executes, as far as they are known.
func (c *call) running() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.Clone(c.steps)
	if len(list) == 0 && c.step == "" {
		list, _ = c.unended()
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// unended returns the nodes of the last checkpoint that have not saved the writes of their end, and those that have. The caller holds c.mu.
func (c *call) unended() (running, ended []string) {
	for _, t := range gjson.ParseBytes(c.tasks).Array() {
		switch name := t.Get("name").Str; {
		case name == "" || name == "__start__":
		case slices.Contains(c.wrote, t.Get("id").Str):
			ended = append(ended, name)
		default:
			running = append(running, name)
		}
	}
	return running, ended
}

// nodes returns a word with names of nodes; "" without any.
func nodes(word string, all []string) string {
	all = slices.Clone(all)
	slices.Sort(all)
	all = slices.Compact(all)
	switch len(all) {
	case 0:
		return ""
	case 1:
		return word + " node " + all[0]
	}
	return word + " nodes " + names.Some(all, maxNodes)
}

// maxNodes is how many nodes an error names.
const maxNodes = 5
