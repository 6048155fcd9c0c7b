package sandbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// ContainerOptions let commands run in containers, one for each thread, in place of this machine. Files stay in the thread's folders, which are mounted.
type ContainerOptions struct {
	Engines []string // programs to try, in order; nil: docker, podman
	Image   string   // has bash; "": DefaultImage
	Home    string   // folder of all threads; distinguishes containers of servers on one machine
	Idle    time.Duration
	Most    int    // containers that are kept while nothing runs in them; 0: 3
	Network string // "": none
	Memory  string // as the engine writes it; "": 1g
	CPUs    string // "": 1
}

// Defaults of ContainerOptions.
const (
	DefaultImage = "python:3.13-slim"
	defaultIdle  = 10 * time.Minute
	defaultMost  = 3
	engineTime   = 2 * time.Minute // to start a container; an image may have to be pulled
	maxProcesses = "256"
)

// label is on all containers; its value names their home.
const label = "understudy.sandbox"

// containers runs commands in containers. It is safe for concurrent use.
type containers struct {
	o      ContainerOptions
	engine string // path of the program
	home   string // value of label
	log    *slog.Logger

	mu     sync.Mutex
	tidied bool // containers of an earlier server are gone
	live   map[string]*container
	closed bool
}

// container is that of one thread.
type container struct {
	name  string
	ready chan struct{} // closed when it has started, or err says why not
	err   error
	busy  int // commands that run
	used  time.Time
	timer *time.Timer // removes it; nil while it is busy
}

// newContainers looks for the engine. The error says why there are no containers.
func newContainers(o ContainerOptions, log *slog.Logger) (*containers, error) {
	if o.Engines == nil {
		o.Engines = []string{"docker", "podman"}
	}
	o.Image, o.Network, o.Memory, o.CPUs = or(o.Image, DefaultImage), or(o.Network, "none"), or(o.Memory, "1g"), or(o.CPUs, "1")
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.Most <= 0 {
		o.Most = defaultMost
	}
	var tried []error
	for _, name := range o.Engines {
		path, err := exec.LookPath(name)
		if err != nil {
			tried = append(tried, fmt.Errorf("%s is not installed", name))
			continue
		}
		sum := sha256.Sum256([]byte(o.Home))
		c := &containers{o: o, engine: path, home: hex.EncodeToString(sum[:8]), log: log, live: map[string]*container{}}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // at the start, or never
		_, err = c.call(ctx, "version")
		if cancel(); err == nil {
			return c, nil
		}
		tried = append(tried, fmt.Errorf("%s does not answer: %w", name, err))
	}
	return nil, errors.Join(tried...)
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// call runs the engine, and returns what it prints.
func (c *containers) call(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, c.engine, args...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(failed.Stderr) > 0 {
		err = errors.New(Head(strings.TrimSpace(Clean(string(failed.Stderr))), 500))
	}
	return strings.TrimSpace(string(out)), err
}

// tidy removes the containers of an earlier server, for whose commands no run waits. The caller holds mu.
func (c *containers) tidy(ctx context.Context) error {
	if c.tidied {
		return nil
	}
	ids, err := c.call(ctx, "ps", "--all", "--quiet", "--filter", "label="+label+"="+c.home)
	if err == nil && ids != "" {
		_, err = c.call(ctx, append([]string{"rm", "--force"}, strings.Fields(ids)...)...)
	}
	c.tidied = err == nil
	return err
}

// acquire returns the container of a thread, and starts it if there is none. done follows, unless there is an error.
func (c *containers) acquire(ctx context.Context, t *Thread) (*container, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errors.New("the sandbox is closed")
	}
	if err := c.tidy(ctx); err != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("remove containers of an earlier server: %w", err)
	}
	box, idle := c.live[t.id], ""
	found := box != nil
	if !found {
		idle = c.evict()
		sum := sha256.Sum256([]byte(t.id))
		box = &container{name: "understudy-" + c.home + "-" + hex.EncodeToString(sum[:6]) + "-" + strings.ToLower(rand.Text()[:6]), ready: make(chan struct{})}
		c.live[t.id] = box
	}
	if box.timer != nil {
		box.timer.Stop()
		box.timer = nil
	}
	box.busy++
	c.mu.Unlock()
	c.remove(idle)
	if !found {
		if _, err := c.call(ctx, c.start(box.name, t)...); err != nil {
			box.err = fmt.Errorf("start a container: %w", err)
		} else {
			c.log.Info("container started", "sandbox", t.id, "container", box.name, "image", c.o.Image)
		}
		close(box.ready)
	}
	if found {
		select {
		case <-box.ready:
		case <-ctx.Done():
			c.done(t.id, box, false)
			return nil, context.Cause(ctx)
		}
	}
	if box.err != nil { // of a start that was cut off, the container may be there
		c.done(t.id, box, true)
	}
	return box, box.err
}

// start returns the arguments that start a container: without rights, network and more than its share of the machine.
func (c *containers) start(name string, t *Thread) []string {
	args := []string{
		"run", "--detach", "--rm", "--init", "--name", name, "--label", label + "=" + c.home, "--network", c.o.Network, "--memory", c.o.Memory, "--cpus", c.o.CPUs,
		"--pids-limit", maxProcesses, "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()),
		"--workdir", Workspace, "--env", "HOME=" + Workspace,
	}
	for _, m := range slices.Backward(t.mounts) { // outer folders first
		if m.root == nil {
			continue // it does not exist
		}
		volume := m.Host + ":" + m.Virtual
		if !m.Write {
			volume += ":ro"
		}
		args = append(args, "--volume", volume)
	}
	return append(args, c.o.Image, "sleep", "infinity")
}

// evict forgets the container that has been idle longest, if there are too many, and returns its name for remove. The caller holds mu.
func (c *containers) evict() string {
	oldest := ""
	for id, box := range c.live {
		if box.busy == 0 && (oldest == "" || box.used.Before(c.live[oldest].used)) {
			oldest = id
		}
	}
	if oldest == "" || len(c.live) < c.o.Most {
		return ""
	}
	return c.forget(oldest)
}

// forget returns the name of a thread's container, for remove. The caller holds mu.
func (c *containers) forget(id string) string {
	box := c.live[id]
	if box.timer != nil {
		box.timer.Stop()
	}
	delete(c.live, id)
	return box.name
}

// remove ends a container with all that runs in it; "": none.
func (c *containers) remove(name string) {
	if name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // it must end although the run has
	defer cancel()
	if _, err := c.call(ctx, "rm", "--force", name); err != nil {
		c.log.Warn("container not removed; remove it by hand", "container", name, "error", err)
	}
}

// done ends the use of a container. broken: a command was cut off, and ends with the container.
func (c *containers) done(id string, box *container, broken bool) {
	gone := ""
	defer func() { c.remove(gone) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	box.busy--
	switch {
	case c.live[id] != box:
	case broken:
		gone = c.forget(id)
	case box.busy == 0:
		box.used = time.Now()
		box.timer = time.AfterFunc(c.o.Idle, func() { c.expire(id, box) })
	}
}

// expire removes a container that nothing has used for a while.
func (c *containers) expire(id string, box *container) {
	gone := ""
	c.mu.Lock()
	if c.live[id] == box && box.busy == 0 {
		gone = c.forget(id)
	}
	c.mu.Unlock()
	c.remove(gone)
}

func (c *containers) close() {
	c.mu.Lock()
	c.closed = true
	var all []string
	for id := range c.live {
		all = append(all, c.forget(id))
	}
	c.mu.Unlock()
	for _, name := range all {
		c.remove(name)
	}
}

// run executes a command in the container of a thread.
func (c *containers) run(ctx context.Context, t *Thread, cmd Command) (string, error) {
	box, err := c.alive(ctx, t)
	if err != nil {
		return "", err
	}
	args := []string{"exec", "--workdir", Workspace}
	for _, v := range cmd.Env {
		args = append(args, "--env", v)
	}
	args = append(args, box.name, "bash", "-c", limits+cmd.Text)
	program := exec.Command(c.engine, args...) //nolint:noctx // wait ends it with its group
	program.Env = os.Environ()
	j, err := t.launch(program, cmd, func(start func() error) error { return start() })
	if err != nil {
		c.done(t.id, box, true)
		return "", err
	}
	result, broken, err := t.wait(ctx, j, cmd)
	broken = broken || err != nil
	if !broken && j.code() != 0 && !c.running(ctx, box.name) {
		broken = true
		result = strings.TrimSuffix(result, "\n") + "\nThe container has ended, with all that ran in it; the next command has a new one."
	}
	c.done(t.id, box, broken)
	return result, err
}

// alive returns a container of a thread that is there: one may have ended since its last command. done follows, unless there is an error.
func (c *containers) alive(ctx context.Context, t *Thread) (*container, error) {
	starting, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	for range 3 {
		box, err := c.acquire(starting, t)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.done(t.id, box, true)
			}
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		case c.running(starting, box.name):
			return box, nil
		}
		c.log.Info("container has ended", "sandbox", t.id, "container", box.name)
		c.done(t.id, box, true)
	}
	return nil, errors.New("containers end as soon as they have started; the engine's log has the reason")
}

// running reports whether a container is there: a command, or a lack of memory, may have ended it.
func (c *containers) running(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	state, err := c.call(ctx, "inspect", "--format", "{{.State.Running}}", name)
	return err == nil && state == "true"
}

// Contained reports whether commands run in containers.
func (l *Local) Contained() bool { return l.boxes != nil }
