package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Command is what a shell is to do, with its bounds.
type Command struct {
	Text       string
	Timeout    time.Duration // 0: 10 minutes
	Characters int           // of the result; 0: 20,000
	Env        []string      // further variables, NAME=value
}

// Defaults of commands.
const (
	DefaultTimeout    = 10 * time.Minute
	DefaultCharacters = 20_000
)

// grace is how long output of processes in the background is waited for when their shell has ended.
const grace = 250 * time.Millisecond

// plain are paths that stand in commands without quotes.
var plain = regexp.MustCompile(`^[\w./+@:,=-]+$`)

// Run executes a command in the workspace, and returns what it printed and how it ended. Its processes are a group of their own: they end with ctx or the
// timeout; those that it leaves in the background end with Release. A refusal is a *Denied.
func (t *Thread) Run(ctx context.Context, c Command) (string, error) {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Characters <= 0 {
		c.Characters = DefaultCharacters
	}
	if reason := t.l.Refusal(); reason != "" {
		return "", denied("Commands cannot run on this server: %s", reason)
	}
	if t.l.boxes != nil {
		return t.l.boxes.run(ctx, t, c)
	}
	if t.l.o.Confine == ConfineRequired && t.l.level == 0 {
		return "", denied("Commands cannot be confined on this server, and its configuration requires it")
	}
	if err := t.check(c.Text); err != nil {
		return "", err
	}
	bound := t.bound() // once: what has a place may change while the command starts
	for _, p := range t.unbound(bound) {
		if !plain.MatchString(p.to) {
			return "", denied("Commands cannot run: the server's folder for %s has characters that a shell interprets", p.from)
		}
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		return "", fmt.Errorf("find bash: %w", err)
	}
	t.l.Tidy(t.id)
	j, err := t.start(shell, bound, c)
	if err != nil {
		return "", err
	}
	result, _, err := t.wait(ctx, j, c)
	return result, err
}

// limits bound processes of a command: no core files, no file above 2 GiB.
const limits = "ulimit -c 0 -f 2097152 2>/dev/null; "

// marker is a variable by which processes are found that left their group.
const marker = "UNDERSTUDY_SANDBOX"

// unbound are the pairs of paths that are replaced in commands, because there is nothing at the virtual ones.
func (t *Thread) unbound(bound []*mount) []pair {
	return slices.DeleteFunc(slices.Clone(t.paths), func(p pair) bool {
		return slices.ContainsFunc(bound, func(m *mount) bool { return m.Virtual == p.from })
	})
}

func (t *Thread) start(shell string, bound []*mount, c Command) (*job, error) {
	paths := t.unbound(bound)
	home := translate(Workspace, paths)
	temp := filepath.Join(t.dir, "tmp")
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for temporary files: %w", err)
	}
	hold, release, err := newHold()
	if err != nil {
		return nil, err
	}
	defer release()
	cmd := exec.Command(shell, "--noprofile", "--norc", "-c", hold.prefix+limits+translate(c.Text, paths)) //nolint:noctx // wait ends it with its group
	cmd.ExtraFiles = hold.files
	cmd.Dir = home
	cmd.Env = append(environment(), "HOME="+home, "PWD="+home, "TMPDIR="+temp, "SHELL="+shell, "TERM=dumb")
	cmd.Env = append(cmd.Env, c.Env...)
	j, err := t.launch(cmd, c, func(start func() error) error { return t.confine(temp, bound, start) })
	if err != nil {
		return nil, err
	}
	limit := newMark(t.l.name)
	if err := setMark(cmd.Process.Pid, limit); err != nil {
		t.l.log.Warn("processes of a command that leave its group and change their environment may outlive it", "sandbox", t.id, "error", err)
	} else {
		j.limit = limit
	}
	j.here = true
	return j, nil
}

// hold lets a shell wait on a pipe until it is marked, so that every process that it starts has the mark.
type hold struct {
	prefix string     // of its command
	files  []*os.File // that it inherits
}

// newHold returns a hold, and the function that lets the shell continue, or end if it is called before the shell has started.
func newHold() (hold, func(), error) {
	if !marks {
		return hold{}, func() {}, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return hold{}, nil, fmt.Errorf("make a pipe: %w", err)
	}
	release := func() {
		_, _ = w.WriteString("\n") // a shell that is gone does not read it
		w.Close()
		r.Close()
	}
	return hold{prefix: "read -r -u 3 || exit 1; exec 3<&-; unset REPLY; ", files: []*os.File{r}}, release, nil
}

// launch starts a program as a group of its own, whose processes can be found, and reads its output. within starts it.
func (t *Thread) launch(cmd *exec.Cmd, c Command, within func(start func() error) error) (*job, error) {
	mark := rand.Text()
	cmd.Env = append(cmd.Env, marker+"="+mark, server+"="+t.l.name)
	cmd.SysProcAttr = processAttributes()
	j := &job{cmd: cmd, mark: mark, gone: make(chan struct{}), out: &capture{limit: 4*c.Characters + edge}, errs: &capture{limit: 4*c.Characters + edge}, exited: make(chan struct{}), drained: make(chan struct{})}
	outs, err := j.pipes()
	if err != nil {
		return nil, err
	}
	err = within(cmd.Start)
	for _, w := range outs {
		w.Close()
	}
	if err != nil {
		j.closePipes()
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	j.follow()
	return j, nil
}

// environment is what commands get of the server's own: nothing secret.
func environment() (env []string) {
	for _, name := range []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// wait returns the result of a command. cut: it was ended, because it took too long.
func (t *Thread) wait(ctx context.Context, j *job, c Command) (result string, cut bool, err error) {
	timer := time.NewTimer(c.Timeout)
	defer timer.Stop()
	select {
	case <-j.exited:
	case <-timer.C:
		cut = true
	case <-ctx.Done():
		j.end()
		t.l.Release(t.id)
		return "", true, context.Cause(ctx)
	}
	if cut {
		j.end()
	} else {
		select {
		case <-j.drained:
		case <-time.After(grace):
		case <-ctx.Done():
			j.end()
			return "", true, context.Cause(ctx)
		}
		if j.left() {
			t.l.keep(t.id, j)
		}
	}
	result = present(t, j.out, j.errs, j.code(), c.Characters)
	if cut {
		result += fmt.Sprintf("\nThe command was ended after %s: it ran too long. Run long commands in the background, with their output in a file.", c.Timeout)
	}
	return strings.TrimPrefix(result, "\n"), cut, nil
}

// present returns what the agent sees of a command.
func present(t *Thread, out, errs *capture, code, limit int) string {
	head, tail, whole := out.end()
	errHead, errTail, errWhole := errs.end()
	status := ""
	if code != 0 {
		status = fmt.Sprintf("\nExit Code: %d", code)
	}
	clean := func(s string) string { return Clean(t.Mask(Clean(s))) }
	head, tail, errHead, errTail = clean(head), clean(tail), clean(errHead), clean(errTail)
	if whole && errWhole {
		all := head
		if errHead != "" && head != "" {
			all += "\nStd Error:\n"
		}
		if all += errHead + status; all == "" {
			return "(no output)"
		}
		return middle(all, "", true, limit)
	}
	if errHead != "" {
		part := middle(errHead, errTail, errWhole, limit/2)
		return middle(head, tail, whole, limit-limit/2) + "\nStd Error:\n" + part + status
	}
	return middle(head, tail, whole, limit) + status
}

// job is the processes of a command.
type job struct {
	cmd       *exec.Cmd
	mark      string // value of a variable in their environment
	limit     uint64 // their mark; 0: none
	here      bool   // they run on this machine; else an engine's program is all that does
	out, errs *capture
	readers   []*os.File
	exited    chan struct{} // the shell has ended
	drained   chan struct{} // nothing can print any more
	gone      chan struct{} // end has killed what there was
	ending    sync.Once
}

// pipes makes the pipes of the shell's output, and returns the ends that it writes to.
func (j *job) pipes() (writers []*os.File, err error) {
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			j.closePipes()
			for _, w := range writers {
				w.Close()
			}
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		j.readers, writers = append(j.readers, r), append(writers, w)
	}
	j.cmd.Stdout, j.cmd.Stderr = writers[0], writers[1]
	return writers, nil
}

func (j *job) closePipes() {
	for _, r := range j.readers {
		r.Close()
	}
}

// follow reads the output and waits for the shell. Its goroutines end when the processes have; end sees to that.
func (j *job) follow() {
	go func() {
		defer close(j.exited)
		_ = j.cmd.Wait() // code has the result
	}()
	go func() {
		defer close(j.drained)
		var both sync.WaitGroup
		for i, to := range []*capture{j.out, j.errs} {
			both.Go(func() {
				_, _ = io.Copy(to, j.readers[i]) // the end of the processes, or that of the pipe in end
			})
		}
		both.Wait()
		j.closePipes()
	}()
}

func (j *job) code() int {
	select {
	case <-j.exited:
		return j.cmd.ProcessState.ExitCode()
	default:
		return 0
	}
}

// left reports whether something of the command may still run although its shell has ended: processes need not hold the pipes.
func (j *job) left() bool {
	select {
	case <-j.drained:
		return j.here && j.lives()
	default:
		return true
	}
}

// end kills the processes and waits for the goroutines.
func (j *job) end() {
	j.ending.Do(func() {
		defer close(j.gone)
		select {
		case <-j.exited:
			if j.limit == 0 { // else the number of the group, which may be another's by now, is not needed
				killGroup(j.cmd.Process.Pid)
			}
		default:
			killGroup(j.cmd.Process.Pid)
		}
		j.killMarked()
		<-j.exited
		// A process that cannot be found may hold the pipes.
		for _, r := range j.readers {
			if err := r.SetReadDeadline(time.Now().Add(grace)); err != nil && !errors.Is(err, os.ErrClosed) {
				r.Close()
			}
		}
		<-j.drained
	})
}

// looks is how often a command is looked at that left processes which hold no pipes.
const looks = 10 * time.Second

// whenEnded calls f when nothing of the job runs any more, which it sees to after a time.
func (j *job) whenEnded(most time.Duration, f func()) {
	go func() {
		defer f()
		timer, tick, drained := time.NewTimer(most), time.NewTicker(looks), j.drained
		defer timer.Stop()
		defer tick.Stop()
		for {
			select {
			case <-j.gone:
				return
			case <-timer.C:
				j.end()
			case <-tick.C:
			case <-drained:
				drained = nil
			}
			if !j.left() {
				j.end()
			}
		}
	}()
}
