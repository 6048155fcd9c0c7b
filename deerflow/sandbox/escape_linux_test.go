package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"understudy/deerflow/sandbox"
)

// leavers are ways of processes to get away from their command: each writes its ID to $F and sleeps.
var leavers = map[string]string{
	"redirected":  `sleep 300 >/dev/null 2>&1 & echo $! > $F`,
	"nohup":       `nohup sleep 300 >/dev/null 2>&1 & echo $! > $F; disown -a`,
	"session":     `setsid sh -c 'echo $$ > '$F'; exec sleep 300' >/dev/null 2>&1 &`,
	"environment": `env -i F=$F sh -c 'echo $$ > '$F'; exec sleep 300' >/dev/null 2>&1 &`,
	"both":        `env -i setsid sh -c 'echo $$ > '$F'; exec sleep 300' >/dev/null 2>&1 &`,
	"twice":       `(env -i setsid sh -c '(echo $$ > '$F'.not; sh -c "echo \$\$ > '$F'; exec sleep 300") &' &) >/dev/null 2>&1`,
	"ignores":     `setsid env -i bash -c 'trap "" TERM INT HUP; echo $$ > '$F'; while :; do sleep 300; done' >/dev/null 2>&1 &`,
	"limits":      `ulimit -R 5 2>/dev/null; env -i setsid sh -c 'ulimit -R unlimited; echo $$ > '$F'; exec sleep 300' >/dev/null 2>&1 &`,
	"prints":      `env -i setsid sh -c 'echo $$ > '$F'; exec sleep 300' &`,
	"changes limits": `python3 -c "
import os, resource, sys, time
for limit in (5, resource.RLIM_INFINITY):
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (limit, limit))
    except (OSError, ValueError):
        pass
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 64)
with open('$F', 'w') as f:
    f.write(str(os.getpid()) + chr(10))
os.execve('/bin/sleep', ['sleep', '300'], {})
"`,
}

// Whatever a process does to its environment, group, session and limits, it ends with the run, its command's time, or the server.
func TestNothingOutlivesARun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: ", err)
	}
	gone := func(pid int) func() bool { return func() bool { return !alive(pid) || zombie(pid) } }
	for how, command := range leavers {
		for name, end := range map[string]func(b *bench){
			"release": func(b *bench) { b.local.Release(b.ID()) },
			"close":   func(b *bench) { b.local.Close() },
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, sandbox.Options{})
				b.run(t, "F=pid; "+command)
				pid := pidIn(t, b, "pid")
				require.True(t, alive(pid) && !zombie(pid), "it may live until the run ends")
				end(b)
				waitFor(t, "end of process", gone(pid))
			})
		}
		for _, name := range []string{"timeout", "cancel"} {
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, sandbox.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := sandbox.Command{Text: "F=pid; " + command + "\nwait; sleep 300"}
				if name == "timeout" {
					c.Timeout = 5 * time.Second
				}
				done := make(chan error, 1)
				go func() {
					_, err := b.Run(ctx, c)
					done <- err
				}()
				pid := pidIn(t, b, "pid")
				if name == "cancel" {
					cancel()
					require.ErrorIs(t, <-done, context.Canceled)
				} else {
					require.NoError(t, <-done)
				}
				waitFor(t, "end of process", gone(pid))
			})
		}
	}
}

// A command that ends while nothing of it runs leaves nothing to be looked at.
func TestCommandsThatEndAreForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	b.run(t, "sleep 300 >/dev/null 2>&1 & echo $! > pid")
	pid := pidIn(t, b, "pid")
	for range 20 { // more than may be in the background
		b.run(t, "true")
	}
	require.True(t, alive(pid) && !zombie(pid))
}

// Calls that lead out of a sandbox or deep into the kernel are refused, and what programs need is not.
func TestForbiddenCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	if !sandbox.Filters() {
		t.Skip("the kernel has no filters of system calls, or not for this machine")
	}
	out := b.run(t, `python3 - <<'E'
import ctypes, os, resource, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    r = getattr(libc, name)(*args)
    print(name, 'ok' if r >= 0 else errno.errorcode[ctypes.get_errno()])
for flag in (0x10000000, 0x20000, 0x40000000, 0x04000000):
    call('unshare', flag)
call('setns', 0, 0)
call('mount', b'none', b'.', b'tmpfs', 0, None)
call('umount2', b'.', 2)
call('chroot', b'.')
call('sethostname', b'x', 1)
call('ptrace', 16, 1, None, None)
for limits in ((5, 5), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, limits)
        print('mark changed')
    except (OSError, ValueError):
        print('mark stays')
print('core', resource.getrlimit(resource.RLIMIT_CORE), resource.prlimit(0, resource.RLIMIT_RTTIME)[0] > 1 << 60)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import threading, subprocess, multiprocessing
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())
with multiprocessing.Pool(2) as p:
    print(sum(p.map(abs, [-1, -2])))
E`)
	require.Equal(t, strings.Repeat("unshare EPERM\n", 4)+"setns EPERM\nmount EPERM\numount2 EPERM\nchroot EPERM\nsethostname EPERM\nptrace EPERM\nmark stays\nmark stays\ncore (0, 0) True\nthread\nchild\n3\n", out)
}

// onTerminal is set in the process of TestNoTerminal that has a terminal.
const onTerminal = "UNDERSTUDY_TEST_ON_TERMINAL"

// A command has no terminal: not that of the server to read from, or to type into. The test runs again in a process with one, as those of CI have none.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	if os.Getenv(onTerminal) == "" {
		keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
		require.NoError(t, err)
		defer keys.Close()
		require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
		n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
		require.NoError(t, err)
		screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
		require.NoError(t, err)
		defer screen.Close()
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestNoTerminal$", "-test.v") //nolint:gosec // this test
		again.Env = append(os.Environ(), onTerminal+"=1")
		again.Stdin = screen
		again.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
		out, err := again.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS: TestNoTerminal")
		return
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	require.NoError(t, err, "this process has a terminal")
	require.NoError(t, tty.Close())
	b := setup(t, sandbox.Options{})
	require.Equal(t, "none\n", b.run(t, "(: </dev/tty) 2>/dev/null || echo none"))
}

// A command cannot signal what is not its own: neither the server, nor a command of another thread. Before Landlock's sixth version it can.
func TestSignals(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	if b.local.Mode() != "landlock" || sandbox.LandlockLevel() < 6 {
		t.Skip("this kernel does not confine signals")
	}
	other := setup(t, sandbox.Options{})
	other.run(t, "sleep 300 >/dev/null 2>&1 & echo $! > pid")
	pid := pidIn(t, other, "pid")
	sleeper := exec.Command("sleep", "300")
	require.NoError(t, sleeper.Start())
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	require.NotContains(t, b.run(t, "kill -0 $PPID && echo reached"), "reached") // else what follows would end the machine's processes
	out, err := b.Run(t.Context(), sandbox.Command{Text: "sleep 300 & kill -9 -1; kill -9 $PPID; kill -STOP $PPID; echo done", Timeout: 30 * time.Second})
	require.NoError(t, err)
	require.NotContains(t, out, "ran too long")
	require.True(t, alive(pid) && !zombie(pid), "of another thread")
	require.True(t, alive(sleeper.Process.Pid) && !zombie(sleeper.Process.Pid), "of the server")
}

// While links take the place of folders and files, nothing outside is read or written.
func TestLinkRaces(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	out := filepath.Join(b.dir, "../../elsewhere")
	work := filepath.Join(b.dir, "user-data/workspace")
	require.NoError(t, os.MkdirAll(filepath.Join(work, "real"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(work, "real/secret.txt"), []byte("own"), 0o600))
	require.NoError(t, os.Symlink(out, filepath.Join(work, "link")))
	require.NoError(t, os.Symlink(filepath.Join(out, "secret.txt"), filepath.Join(work, "real/file")))
	require.NoError(t, os.WriteFile(filepath.Join(work, "real/plain"), []byte("own"), 0o600))
	var stop atomic.Bool
	swapped := make(chan int)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(work, "real"), unix.AT_FDCWD, filepath.Join(work, "link"), unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(work, "real/file"), unix.AT_FDCWD, filepath.Join(work, "real/plain"), unix.RENAME_EXCHANGE)
		}
		swapped <- n
	}()
	for n := range 1500 {
		for _, p := range []string{ws + "/real/secret.txt", ws + "/link/secret.txt", ws + "/real/plain", ws + "/link/new/deep"} {
			switch n % 5 {
			case 0:
				if got, err := b.Read(t.Context(), p, sandbox.Range{}, 100); err == nil {
					assert.NotContains(t, got.Content, "secret")
				}
			case 1:
				_ = b.Write(p, "own", false)
			case 2:
				_ = b.Write(p, "own", true)
			case 3:
				_ = b.Replace(p, "secret", "own", true)
			case 4:
				if content, err := b.Bytes(p, 100); err == nil {
					assert.NotContains(t, string(content), "secret")
				}
			}
		}
		if n%100 == 0 {
			lines, _, _ := b.Grep(t.Context(), ws, sandbox.Search{Pattern: "^secret", Limit: 10})
			assert.Empty(t, lines)
			_, _, _ = b.List(t.Context(), ws, 100)
			_, _, _ = b.Glob(t.Context(), ws, "**", true, 100)
		}
	}
	stop.Store(true)
	require.Positive(t, <-swapped)
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing was made outside")
	text, err := os.ReadFile(filepath.Join(out, "secret.txt"))
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))
}

// Names that confuse programs are files like others.
func TestOddNames(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	long := strings.Repeat("n", 255)
	for _, name := range []string{"-rf", "--help", "a b", "new\nline", "tab\t", "quote'\"", "$(touch x)", "`x`", "*", long, "é\u202e", "...", ".hidden", "a\\b", "semi;colon"} {
		p := ws + "/odd/" + name
		require.NoError(t, b.Write(p, "one", false), "%q", name)
		require.NoError(t, b.Write(p, "two", true), "%q", name)
		require.NoError(t, b.Replace(p, "onetwo", "three", false), "%q", name)
		require.Equal(t, "three", b.text(t, p))
	}
	require.Error(t, b.Write(ws+"/odd/"+long+"n", "x", false), "longer than a name may be")
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "user-data/workspace/odd/\xff\xfe"), []byte("three"), 0o600))
	list, cut, err := b.List(t.Context(), ws+"/odd", 100)
	require.NoError(t, err)
	require.False(t, cut)
	require.Len(t, list, 16)
	lines, _, err := b.Grep(t.Context(), ws+"/odd", sandbox.Search{Pattern: "three", Limit: 100})
	require.NoError(t, err)
	require.Len(t, lines, 16)
	for _, p := range list { // one line each, whatever is in the name
		require.NotContains(t, p, "\n", "%q", p)
		require.Equal(t, sandbox.Clean(p), p)
	}
	entries, err := os.ReadDir(filepath.Join(b.dir, "user-data/workspace/odd"))
	require.NoError(t, err)
	require.Len(t, entries, 16, "nothing half written is left")
}

// What the rules on text do not understand Landlock confines: none of these shows the secret, or makes a file outside.
func TestEvasions(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	if b.local.Mode() != "landlock" {
		t.Skip("this kernel does not confine commands")
	}
	out := filepath.Join(b.dir, "../../elsewhere")
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "user-data/workspace/where"), []byte(out), 0o600))
	for _, command := range []string{
		`w=$(<where); cat $w/secret.txt`, `w=$(<where); cat "${w}"/s*`, `eval "cat $(<where)/secret.txt"`, `bash -c "cat $(<where)/secret.txt"`, `source <(echo cat $(<where)/secret.txt)`,
		`xargs -I{} cat {}/secret.txt <where`, `cat where | while read w; do cat $w/secret.txt; done`, `python3 -c "print(open(open('where').read() + chr(47) + 'secret.txt').read())"`,
		`perl -e 'open W, "where"; $w = <W>; open S, $w . chr(47) . "secret.txt"; print <S>'`, `awk '{ while ((getline l < ($0 sprintf("%c", 47) "secret.txt")) > 0) print l }' where`,
		`ln -s $(<where) l; cat l/secret.txt`, `ln $(<where)/secret.txt h; cat h`, `cp -r $(<where) c; cat c/*`, `tar cf - -C $(<where) . | tar xO`, `mv $(<where) moved; cat moved/*`,
		`w=$(<where); cd "$w"x 2>/dev/null; exec 5< $w/secret.txt; cat <&5`, `mapfile a < $(<where)/secret.txt; echo ${a[@]}`, `find $(<where) -type f -exec cat {} +`,
		`shopt -s expand_aliases; alias r=cat; r $(<where)/secret.txt`, `coproc cat $(<where)/secret.txt; cat <&${COPROC[0]}`, `f() { cat "$1"/secret.txt; }; export -f f; bash -c 'f $(<where)'`,
		`echo planted > $(<where)/planted`, `mkdir $(<where)/planted`, `touch $(<where)/planted; rm -f $(<where)/secret.txt; echo > $(<where)/secret.txt`, `truncate -s 0 $(<where)/secret.txt`,
		`python3 -c "import os; os.chmod(open('where').read(), 0)"; : > $(<where)/planted`,
	} {
		got, err := b.Run(t.Context(), sandbox.Command{Text: command})
		if err != nil {
			require.ErrorIs(t, err, fs.ErrPermission, command)
			continue
		}
		require.NotContains(t, strings.ReplaceAll(got, "secret.txt", ""), "secret", command)
	}
	require.NoError(t, os.Chmod(out, 0o755)) //nolint:gosec // it is a folder
	text, err := os.ReadFile(filepath.Join(out, "secret.txt"))
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))
	_, err = os.Stat(filepath.Join(out, "planted"))
	require.True(t, errors.Is(err, fs.ErrNotExist))
}
