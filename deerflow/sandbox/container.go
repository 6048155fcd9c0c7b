package sandbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ContainerOptions let commands run in containers, one for each thread, in place of this machine. Files stay in the thread's folders, which are mounted.
type ContainerOptions struct {
	// Engines are addresses of Docker's API to try, in order: unix:///path or tcp://host:port. nil: DOCKER_HOST, else the usual sockets of Docker and Podman, else
	// the program podman, which serves the API while this server runs.
	Engines []string
	Lookup  func(name string) (string, bool) // of environment variables; nil: those of this process
	Image   string                           // has bash; "": DefaultImage
	Home    string                           // folder of all threads; distinguishes containers of servers on one machine
	Idle    time.Duration
	Most    int    // containers that are kept while nothing runs in them; 0: 3
	Network string // "": none
	Memory  string // a number of bytes, with k, m or g; "": 1g
	CPUs    string // "": 1
}

// Defaults of ContainerOptions.
const (
	DefaultImage = "python:3.13-slim"
	defaultIdle  = 10 * time.Minute
	defaultMost  = 3
	engineTime   = 2 * time.Minute // to start a container; an image may have to be fetched
	removeTime   = 30 * time.Second
	maxProcesses = 256
	lookAgain    = 2 * time.Second // at a command that prints nothing: it may have left something that holds its output
)

// Labels of all containers: their home, and the server that started them.
const (
	homeLabel   = "understudy.sandbox"
	serverLabel = "understudy.sandbox.server"
)

// containers runs commands in containers. It is safe for concurrent use.
type containers struct {
	o      ContainerOptions
	engine *docker
	served *service // the engine's API is served for this server; nil: it is not
	home   string   // value of homeLabel
	server string   // value of serverLabel
	memory int64    // bytes
	cpus   int64    // billionths of one
	log    *slog.Logger

	tidying chan struct{} // has room while one tidies
	tidied  atomic.Bool   // containers of an earlier server are gone

	ctx    context.Context //nolint:containedctx // of starts; has ended when the sandbox is closed
	stop   context.CancelFunc
	starts sync.WaitGroup

	mu   sync.Mutex
	live map[string]*container
}

// container is that of one thread.
type container struct {
	name, id string        // id: when it is ready; under containers.mu until then
	ready    chan struct{} // closed when it has started, or err says why not
	err      error
	busy     int // commands that run
	used     time.Time
	timer    *time.Timer // removes it; nil while it is busy
}

// newContainers looks for the engine. The error says why there are no containers.
func newContainers(o ContainerOptions, log *slog.Logger) (*containers, error) {
	o.Image, o.Network, o.Memory, o.CPUs = or(o.Image, DefaultImage), or(o.Network, "none"), or(o.Memory, "1g"), or(o.CPUs, "1")
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.Most <= 0 {
		o.Most = defaultMost
	}
	sum := sha256.Sum256([]byte(o.Home))
	c := &containers{o: o, home: hex.EncodeToString(sum[:8]), server: thisServer(), log: log, tidying: make(chan struct{}, 1), live: map[string]*container{}}
	var err error
	if c.memory, err = size(o.Memory); err != nil {
		return nil, fmt.Errorf("sandbox.memory: %w", err)
	}
	cpus, err := strconv.ParseFloat(o.CPUs, 64)
	if err != nil || cpus <= 0 || cpus > 10_000 {
		return nil, fmt.Errorf("sandbox.cpus: %q is no number of processors, such as 1 or 0.5", o.CPUs)
	}
	c.cpus = int64(cpus * 1e9)
	if c.engine, c.served, err = findEngine(o, log); err != nil {
		return nil, err
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// size returns the bytes of a text such as 512m.
func size(text string) (int64, error) {
	number, factor := strings.ToLower(strings.TrimSpace(text)), int64(1)
	number = strings.TrimSuffix(strings.TrimSuffix(number, "b"), "i") // also kb and kib
	for i, unit := range []string{"k", "m", "g", "t"} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, factor = n, 1<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<50)/factor {
		return 0, fmt.Errorf("%q is no amount of memory, such as 512m or 1g", text)
	}
	return n * factor, nil
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// tidy removes the containers of servers that died, for whose commands no run waits. It is done once, before the first container starts.
func (c *containers) tidy(ctx context.Context) error {
	if c.tidied.Load() {
		return nil
	}
	select { // an engine that does not answer holds up nothing but what waits for it
	case c.tidying <- struct{}{}:
		defer func() { <-c.tidying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.tidied.Load() {
		return nil
	}
	list, err := c.engine.list(ctx, homeLabel+"="+c.home)
	if err != nil {
		return err
	}
	for _, one := range list {
		if by := one.Labels[serverLabel]; by != c.server && livesHere(by) {
			continue // another server with the same home
		}
		if err := c.engine.remove(ctx, one.ID); err != nil {
			return err
		}
	}
	c.tidied.Store(true)
	return nil
}

// acquire returns the container of a thread, and starts it if there is none. done follows, unless there is an error.
func (c *containers) acquire(ctx context.Context, t *Thread) (*container, error) {
	if err := c.tidy(ctx); err != nil {
		return nil, fmt.Errorf("remove containers of an earlier server: %w", err)
	}
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return nil, errClosed
	}
	box, idle := c.live[t.id], (*container)(nil)
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
	if !found {
		spec := c.spec(t)
		c.starts.Go(func() { c.start(t.id, box, spec) })
	}
	c.mu.Unlock()
	c.remove(idle)
	select {
	case <-box.ready:
	case <-ctx.Done(): // the next command may find it
		c.done(t.id, box, false)
		return nil, context.Cause(ctx)
	}
	if box.err != nil { // of a start that was cut off, the container may be there
		c.done(t.id, box, true)
	}
	return box, box.err
}

var errClosed = errors.New("the sandbox is closed")

// start starts a container for a thread. It does not end with the run that needs it: an engine makes a container also when its client has gone.
func (c *containers) start(thread string, box *container, spec boxSpec) {
	defer close(box.ready)
	ctx, cancel := context.WithTimeout(c.ctx, engineTime)
	defer cancel()
	made, err := c.engine.start(ctx, box.name, spec)
	c.mu.Lock()
	box.id = made
	forgotten := c.live[thread] != box
	c.mu.Unlock()
	switch {
	case err != nil:
		box.err = fmt.Errorf("start a container: %w", err)
	case forgotten: // by close, which came before the container was there
		box.err = errClosed
		c.remove(box)
	default:
		c.log.Info("container started", "sandbox", thread, "container", box.name, "image", c.o.Image)
	}
}

// spec describes a container: without rights, network and more than its share of the machine.
func (c *containers) spec(t *Thread) boxSpec {
	s := boxSpec{
		Image: c.o.Image, Cmd: []string{"sleep", "infinity"}, User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), WorkingDir: Workspace, Env: []string{"HOME=" + Workspace},
		Labels: map[string]string{homeLabel: c.home, serverLabel: c.server},
	}
	h := &s.HostConfig
	h.NetworkMode, h.Memory, h.NanoCpus, h.PidsLimit = c.o.Network, c.memory, c.cpus, maxProcesses
	h.CapDrop, h.SecurityOpt, h.Init, h.AutoRemove = []string{"ALL"}, []string{"no-new-privileges"}, true, true
	if c.served != nil {
		h.Ulimits = ownLimits()
	}
	for _, m := range slices.Backward(t.mounts) { // outer folders first
		if m.root != nil { // else it does not exist
			h.Mounts = append(h.Mounts, mountSpec{Type: "bind", Source: m.Host, Target: m.Virtual, ReadOnly: !m.Write})
		}
	}
	return s
}

// evict forgets the container that has been idle longest, if there are too many, and returns it for remove; nil: there are not. The caller holds mu.
func (c *containers) evict() *container {
	oldest := ""
	for id, box := range c.live {
		if box.busy == 0 && (oldest == "" || box.used.Before(c.live[oldest].used)) {
			oldest = id
		}
	}
	if oldest == "" || len(c.live) < c.o.Most {
		return nil
	}
	return c.forget(oldest)
}

// forget returns a thread's container, for remove. The caller holds mu.
func (c *containers) forget(id string) *container {
	box := c.live[id]
	if box.timer != nil {
		box.timer.Stop()
	}
	delete(c.live, id)
	return box
}

// remove ends a container with all that runs in it; nil: none.
func (c *containers) remove(box *container) {
	if box == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTime) // it must end although the run has
	defer cancel()
	c.mu.Lock()
	id := or(box.id, box.name) // of a start that was cut off, the container may be there
	c.mu.Unlock()
	if err := c.engine.remove(ctx, id); err != nil {
		c.log.Warn("container not removed; remove it by hand", "container", box.name, "error", err)
	}
}

// done ends the use of a container. broken: a command was cut off, and ends with the container.
func (c *containers) done(id string, box *container, broken bool) {
	var gone *container
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
	var gone *container
	c.mu.Lock()
	if c.live[id] == box && box.busy == 0 {
		gone = c.forget(id)
	}
	c.mu.Unlock()
	c.remove(gone)
}

func (c *containers) close() {
	c.mu.Lock()
	c.stop() // under mu: no start begins after it
	var all []*container
	for id := range c.live {
		all = append(all, c.forget(id))
	}
	c.mu.Unlock()
	var ended sync.WaitGroup
	for _, box := range all {
		ended.Go(func() { c.remove(box) })
	}
	ended.Wait()
	c.starts.Wait()
	c.engine.close()
	c.served.end()
}

// run executes a command in the container of a thread.
func (c *containers) run(ctx context.Context, t *Thread, cmd Command) (string, error) {
	limited, cancel := context.WithTimeoutCause(ctx, cmd.Timeout, errTooLong)
	defer cancel()
	for range tries {
		box, started, err := c.begin(ctx, limited, t, cmd)
		if err != nil {
			return "", err
		}
		result, broken, err := c.follow(limited, t, box, started, cmd)
		if ctx.Err() != nil {
			result, broken, err = "", true, context.Cause(ctx)
		}
		c.done(t.id, box, broken || err != nil)
		if !errors.Is(err, errUnstarted) {
			return strings.TrimPrefix(result, "\n"), err
		}
		c.log.Info("container ended before a command could start in it", "sandbox", t.id, "container", box.name)
	}
	return "", errEnds
}

const tries = 3 // to start a command, in a new container each

var (
	errUnstarted = errors.New("the command was not started")
	errEnds      = errors.New("containers end as soon as they have started; the engine's log has the reason")
)

// unstarted reports whether the result of a command is that of the engine, which found its container ending. Docker accepts such a command, and says so in its output.
func (c *containers) unstarted(ctx context.Context, box *container, code int, result string) bool {
	const longest = 600 // of the engine's words
	switch {
	case code < 126 || code > 128 || len(result) > longest:
		return false
	case strings.Contains(result, "cannot exec in a stopped"):
		return true
	}
	// Other errors of the engine may be about the command.
	return (strings.Contains(result, "OCI runtime exec failed") || strings.Contains(result, "procReady not received")) && !c.engine.running(ctx, box.id)
}

var errTooLong = errors.New("the command takes too long")

// running is a command that has been started.
type running struct {
	id     string
	output io.ReadCloser
}

// begin starts a command in a container of the thread that is there: one may have ended since its last command. done follows, unless there is an error.
func (c *containers) begin(ctx, limited context.Context, t *Thread, cmd Command) (*container, running, error) {
	starting, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	spec := execSpec{Cmd: []string{"bash", "-c", limits + cmd.Text}, Env: cmd.Env, WorkingDir: Workspace}
	for range tries {
		box, err := c.acquire(starting, t)
		if ctx.Err() != nil {
			if err == nil {
				c.done(t.id, box, true)
			}
			return nil, running{}, context.Cause(ctx)
		}
		if err != nil {
			return nil, running{}, err
		}
		id, output, err := c.engine.exec(limited, box.id, spec)
		if err == nil {
			return box, running{id, output}, nil
		}
		c.done(t.id, box, true)
		if ctx.Err() != nil {
			return nil, running{}, context.Cause(ctx)
		}
		if !errors.Is(err, errGone) {
			return nil, running{}, fmt.Errorf("start a command in a container: %w", err)
		}
		c.log.Info("container has ended", "sandbox", t.id, "container", box.name)
	}
	return nil, running{}, errEnds
}

// follow reads the output of a command, and returns its result when it has ended or ctx has. broken: the container has to be removed, as what still runs in it.
func (c *containers) follow(ctx context.Context, t *Thread, box *container, r running, cmd Command) (result string, broken bool, err error) {
	out, errs := &capture{limit: 4*cmd.Characters + edge}, &capture{limit: 4*cmd.Characters + edge}
	read := make(chan error, 1)
	go func() { read <- demux(r.output, out, errs) }() // the end of the command, or that of output
	var failed error
	code, ended := c.wait(ctx, r.id, read, &failed)
	r.output.Close()
	if !ended {
		c.log.Debug("the output of a command was cut off", "container", box.name, "error", <-read)
	}
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTime)
	defer cancel()
	switch {
	case ctx.Err() != nil:
		result = present(t, out, errs, 0, cmd.Characters)
		return result + fmt.Sprintf("\nThe command was ended after %s: it ran too long. Run long commands in the background, with their output in a file.", cmd.Timeout), true, nil
	case code == nil:
		state, err := c.engine.execState(look, r.id)
		switch {
		case errors.Is(err, errGone): // and with it the command
			killed := 137
			code = &killed
		case err != nil:
			return "", true, fmt.Errorf("result of a command in a container: %w", err)
		default:
			code = state.ExitCode
		}
	}
	if code == nil {
		code = new(int)
	}
	if result = present(t, out, errs, *code, cmd.Characters); c.unstarted(look, box, *code, result) {
		return "", true, errUnstarted
	}
	if *code > 128 && !c.engine.running(look, box.id) {
		broken = true
		result = strings.TrimSuffix(result, "\n") + "\nThe container has ended, with all that ran in it; the next command has a new one."
	}
	if failed != nil && !broken {
		return "", true, fmt.Errorf("output of a command in a container: %w", failed)
	}
	return result, broken, nil
}

// wait waits until a command has ended. read is the end of its output, which something in the background may hold open: so the command is looked at now and then. ended
// reports that read was received; code is nil when it was.
func (c *containers) wait(ctx context.Context, id string, read <-chan error, failed *error) (code *int, ended bool) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case *failed = <-read:
			return nil, true
		case <-ctx.Done():
			return nil, false
		case <-tick.C:
			state, err := c.engine.execState(ctx, id)
			if err != nil || state.Running || state.ExitCode == nil {
				continue // if it has gone, its output ends, too
			}
			select {
			case *failed = <-read:
				return state.ExitCode, true
			case <-time.After(grace):
				return state.ExitCode, false
			case <-ctx.Done():
				return nil, false
			}
		}
	}
}

// Contained reports whether commands run in containers.
func (l *Local) Contained() bool { return l.boxes != nil }
