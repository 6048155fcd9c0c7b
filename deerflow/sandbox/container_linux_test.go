package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// engine is a container engine that speaks Docker's API: it logs its calls, and executes commands on this machine, in the folder that is mounted as workspace.
type engine struct {
	mu      sync.Mutex
	log     []string
	boxes   map[string]boxSpec
	ended   map[string]bool // containers whose process has ended, but that are still listed
	execs   map[string]*fakeExec
	old     []boxInfo // containers of earlier servers
	images  []string
	down    bool
	broken  string          // why no container starts
	silent  bool            // it never answers a request for output
	garbage bool            // output in another form
	ending  map[string]bool // containers in which the engine cannot start the commands that it accepts
	vague   int             // 1: it answers 500 for a command in a container that has ended, as Podman 4 does
	hangs   string          // requests whose path ends so are answered when held is closed
	held    chan struct{}
}

type fakeExec struct {
	box  string
	spec execSpec
	code *int
}

func (g *engine) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, fmt.Sprintf(format, args...))
}

func (g *engine) fail(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"message":%q}`, message)
}

func (g *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1.41")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	g.note("%s %s", r.Method, path)
	if g.hangs != "" && strings.HasSuffix(path, g.hangs) {
		<-g.held
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.down:
		g.fail(w, 500, "no daemon")
	case path == "/_ping":
		w.Header().Set("Api-Version", "1.41")
		fmt.Fprint(w, "OK")
	case path == "/containers/json":
		list := append([]boxInfo{}, g.old...)
		_ = json.NewEncoder(w).Encode(list)
	case path == "/images/create":
		fmt.Fprintln(w, `{"status":"Pulling"}`)
		if image := r.URL.Query().Get("fromImage"); !strings.Contains(image, "absent") {
			g.images = append(g.images, image)
		} else {
			fmt.Fprintln(w, `{"error":"no such image"}`)
		}
	case path == "/containers/create":
		var spec boxSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			g.fail(w, 400, err.Error())
			return
		}
		if !slices.Contains(g.images, spec.Image) && !slices.Contains(g.images, spec.Image+":latest") {
			g.fail(w, 404, "No such image: "+spec.Image)
			return
		}
		id := "id-" + r.URL.Query().Get("name")
		g.boxes[id] = spec
		w.WriteHeader(201)
		fmt.Fprintf(w, `{"Id":%q,"Warnings":[]}`, id)
	case parts[0] == "containers" && len(parts) > 2 && parts[2] == "start":
		if g.broken != "" {
			g.fail(w, 500, g.broken)
			return
		}
		w.WriteHeader(204)
	case parts[0] == "containers" && len(parts) > 2 && parts[2] == "exec":
		if _, ok := g.boxes[parts[1]]; !ok {
			g.fail(w, 404, "No such container: "+parts[1])
			return
		}
		if g.ended[parts[1]] {
			g.fail(w, 409+g.vague*91, "container "+parts[1]+" is not running")
			return
		}
		x := &fakeExec{box: parts[1]}
		if err := json.NewDecoder(r.Body).Decode(&x.spec); err != nil {
			g.fail(w, 400, err.Error())
			return
		}
		id := fmt.Sprintf("exec%d", len(g.execs))
		g.execs[id] = x
		w.WriteHeader(201)
		fmt.Fprintf(w, `{"Id":%q}`, id)
	case parts[0] == "containers" && len(parts) > 2 && parts[2] == "json":
		_, ok := g.boxes[parts[1]]
		if !ok {
			g.fail(w, 404, "No such container")
			return
		}
		fmt.Fprintf(w, `{"State":{"Running":%v}}`, !g.ended[parts[1]])
	case r.Method == http.MethodDelete:
		if _, ok := g.boxes[parts[1]]; !ok {
			g.old = slices.DeleteFunc(g.old, func(b boxInfo) bool { return b.ID == parts[1] })
			g.fail(w, 404, "No such container")
			return
		}
		delete(g.boxes, parts[1])
		w.WriteHeader(204)
	case parts[0] == "exec" && parts[2] == "json":
		x := g.execs[parts[1]]
		if _, ok := g.boxes[x.box]; !ok {
			g.fail(w, 404, "No such exec instance")
			return
		}
		raw, _ := json.Marshal(map[string]any{"Running": x.code == nil, "ExitCode": x.code, "ID": parts[1]})
		_, _ = w.Write(raw)
	case parts[0] == "exec" && parts[2] == "start":
		g.mu.Unlock()
		g.execute(w, r, g.execs[parts[1]])
		g.mu.Lock()
	default:
		g.fail(w, 404, "page not found")
	}
}

// execute runs a command, and sends what it prints with headers. It ends with the connection, and with its container.
func (g *engine) execute(w http.ResponseWriter, r *http.Request, x *fakeExec) {
	w.Header().Set("Content-Type", "application/vnd.docker.raw-stream")
	w.WriteHeader(200)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush()
	g.mu.Lock()
	spec, silent, garbage, ending := g.boxes[x.box], g.silent, g.garbage, g.ending[x.box]
	if ending {
		code := 126
		x.code = &code
	}
	g.mu.Unlock()
	switch {
	case ending:
		const said = "cannot exec in a stopped state: unknown\r\n"
		_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(said))))
		fmt.Fprint(w, said)
		return
	case silent:
		<-r.Context().Done()
		return
	case garbage:
		fmt.Fprint(w, "this is no header at all")
		return
	}
	at := slices.IndexFunc(spec.HostConfig.Mounts, func(m mountSpec) bool { return m.Target == UserData })
	cmd := exec.Command(x.spec.Cmd[0], x.spec.Cmd[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(spec.HostConfig.Mounts[at].Source, "workspace"), append(os.Environ(), x.spec.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, _ := cmd.StdoutPipe()
	errs, _ := cmd.StderrPipe()
	if cmd.Start() != nil {
		return
	}
	var writing sync.Mutex
	var both sync.WaitGroup
	for stream, from := range map[byte]io.Reader{1: out, 2: errs} {
		both.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := from.Read(buf)
				if n > 0 {
					writing.Lock()
					_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{stream, 0, 0, 0}, uint32(n)))
					_, _ = w.Write(buf[:n])
					flush()
					writing.Unlock()
				}
				if err != nil {
					return
				}
			}
		})
	}
	gone := context.AfterFunc(r.Context(), func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer gone()
	go func() { // the shell ends before what it leaves in the background
		state, err := cmd.Process.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		code := -1
		if err == nil {
			code = state.ExitCode()
		}
		x.code = &code
	}()
	both.Wait()
	for ended := false; !ended; {
		g.mu.Lock()
		ended = x.code != nil
		g.mu.Unlock()
		runtime.Gosched()
	}
}

type enginery struct {
	*engine
	dir string
	l   *Local
}

func withEngine(t *testing.T, o ContainerOptions, prepare func(g *engine)) *enginery {
	t.Helper()
	e := &enginery{dir: t.TempDir(), engine: &engine{boxes: map[string]boxSpec{}, ended: map[string]bool{}, ending: map[string]bool{}, execs: map[string]*fakeExec{}}}
	if prepare != nil {
		prepare(e.engine)
	}
	folder, err := os.MkdirTemp("", "engine") // names of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	at := filepath.Join(folder, "s")
	listener, err := net.Listen("unix", at)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(e.engine)
	srv.Listener.Close()
	srv.Listener = listener
	srv.Start()
	t.Cleanup(srv.Close)
	o.Engines, o.Home = []string{"unix://" + filepath.Join(folder, "none"), "unix://" + at}, e.dir
	e.l = NewLocal(Options{Container: &o, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(e.l.Close)
	return e
}

func (e *enginery) open(t *testing.T, name string) *Thread {
	t.Helper()
	skills := filepath.Join(e.dir, "skills")
	require.NoError(t, os.MkdirAll(skills, 0o755))
	thread, err := e.l.Open(Place{ID: "local:u:" + name, Dir: filepath.Join(e.dir, name), Mounts: []Mount{{Virtual: "/mnt/skills", Host: skills}}})
	require.NoError(t, err)
	t.Cleanup(thread.Close)
	return thread
}

func (e *enginery) calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.log)
}

func (e *enginery) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.boxes)
}

// end ends the process of all containers. removed: the engine has removed them, too.
func (e *enginery) end(removed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.boxes {
		if e.ended[id] = true; removed {
			delete(e.boxes, id)
		}
	}
}

// A thread has a container of its own, without rights, in which its commands run; files are those of the other tools.
func TestContainer(t *testing.T) {
	t.Parallel()
	dead := strings.Replace(thisServer(), "/", "/9", 1)
	e := withEngine(t, ContainerOptions{Image: "img", Memory: "2g", CPUs: "0.5"}, func(g *engine) {
		g.old = []boxInfo{{ID: "old"}, {ID: "dead", Labels: map[string]string{serverLabel: dead}}, {ID: "elsewhere", Labels: map[string]string{serverLabel: "pid:[1]/1/1"}}, {ID: "other", Labels: map[string]string{serverLabel: strings.Replace(thisServer(), fmt.Sprintf("/%d/", os.Getpid()), fmt.Sprintf("/%d/", os.Getppid()), 1)}}}
		g.old[3].Labels[serverLabel] = strings.Join([]string{strings.Split(thisServer(), "/")[0], fmt.Sprint(os.Getppid()), startOf(os.Getppid())}, "/")
	})
	require.Equal(t, "container", e.l.Mode())
	a, b := e.open(t, "a"), e.open(t, "b:with a colon")
	require.NoError(t, a.Write(Workspace+"/f", "text of a", false))
	out, err := a.Run(t.Context(), Command{Text: "cat f; cat ../../../b/x; echo $NAME; exit 3", Env: []string{"NAME=value"}})
	require.NoError(t, err)
	require.Contains(t, out, "text of a")
	require.Contains(t, out, "value")
	require.Contains(t, out, "Std Error:")
	require.Contains(t, out, "Exit Code: 3")
	_, err = b.Run(t.Context(), Command{Text: "echo hi > f"})
	require.NoError(t, err)
	_, err = a.Run(t.Context(), Command{Text: "true"})
	require.NoError(t, err)
	require.Equal(t, []string{
		"GET /_ping", "GET /containers/json", "DELETE /containers/old", "DELETE /containers/dead", "DELETE /containers/elsewhere", // not that of a server that lives
		"POST /containers/create", "POST /images/create", "POST /containers/create",
	}, e.calls()[:8])
	before := len(e.calls())
	_, err = a.Run(t.Context(), Command{Text: "true"})
	require.NoError(t, err)
	require.Len(t, e.calls(), before+3, "a command in a container that runs takes three requests: make it, start it, its result")

	require.Equal(t, 2, e.count())
	for id, spec := range e.boxes {
		if !strings.Contains(spec.HostConfig.Mounts[0].Source+spec.HostConfig.Mounts[1].Source, e.dir+"/a/") {
			continue
		}
		require.Equal(t, "img", spec.Image, id)
		h := spec.HostConfig
		require.Equal(t, []any{"none", int64(2 << 30), int64(500_000_000), int64(256), []string{"ALL"}, []string{"no-new-privileges"}, true, true}, []any{h.NetworkMode, h.Memory, h.NanoCpus, h.PidsLimit, h.CapDrop, h.SecurityOpt, h.Init, h.AutoRemove})
		require.Equal(t, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), spec.User)
		require.Contains(t, h.Mounts, mountSpec{"bind", filepath.Join(e.dir, "a/user-data"), UserData, false})
		require.Contains(t, h.Mounts, mountSpec{"bind", filepath.Join(e.dir, "skills"), "/mnt/skills", true})
		require.Equal(t, thisServer(), spec.Labels[serverLabel])
	}
	e.l.Close()
	require.Zero(t, e.count())
	_, err = a.Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "closed")
}

// A command that is cut off ends with its container, in which it would go its own way; the next one gets a new container.
func TestContainerOfACutCommand(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{}, nil)
	a := e.open(t, "a")
	out, err := a.Run(t.Context(), Command{Text: "echo begun; sleep 60", Timeout: 500 * time.Millisecond})
	require.NoError(t, err)
	require.Contains(t, out, "begun\n\nThe command was ended after 500ms: it ran too long")
	require.Zero(t, e.count())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !a.Exists(Workspace + "/begun") {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err = a.Run(ctx, Command{Text: "touch begun; sleep 60"})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, e.count())
	out, err = a.Run(t.Context(), Command{Text: "yes | head -c 30000000"})
	require.NoError(t, err)
	require.Less(t, len(out), 25_000)
	require.Equal(t, 1, e.count())
}

// What a command leaves in the background, holding its output, does not hold up its result.
func TestContainerWithSomethingInTheBackground(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{}, nil)
	out, err := e.open(t, "a").Run(t.Context(), Command{Text: "echo begun; sleep 600 & exit 4", Timeout: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "begun\n\nExit Code: 4", out)
	require.Equal(t, 1, e.count())
}

// Containers are kept for a while, and not too many.
func TestIdleContainers(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{Most: 2}, nil)
	for _, name := range []string{"a", "b", "a", "c", "d"} {
		_, err := e.open(t, name).Run(t.Context(), Command{Text: "true"})
		require.NoError(t, err)
		require.LessOrEqual(t, e.count(), 2)
	}
	e = withEngine(t, ContainerOptions{Idle: time.Millisecond}, nil)
	_, err := e.open(t, "a").Run(t.Context(), Command{Text: "true"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.count() == 0 }, 10*time.Second, time.Millisecond)
}

// Without containers commands are refused, never executed on this machine.
func TestNoContainers(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{}, func(g *engine) { g.down = true })
	_, err := e.open(t, "a").Run(t.Context(), Command{Text: "touch /mnt/user-data/workspace/ran"})
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, "install docker or podman")
	require.NoFileExists(t, filepath.Join(e.dir, "a/user-data/workspace/ran"))
	for want, o := range map[string]ContainerOptions{"no amount of memory": {Memory: "much"}, "no number of processors": {CPUs: "-1"}, "must begin with unix://": {Engines: []string{"ssh://x"}}} {
		if o.Engines == nil {
			o.Engines = []string{"unix:///nowhere"}
		}
		_, err := newContainers(o, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, want)
	}
	remote := map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2376", "DOCKER_TLS_VERIFY": "1"}
	_, err = newContainers(ContainerOptions{Lookup: func(name string) (string, bool) { v, ok := remote[name]; return v, ok }}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "would be spoken to without TLS")
	e = withEngine(t, ContainerOptions{}, func(g *engine) { g.broken = "no room for it" })
	_, err = e.open(t, "a").Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "no room for it")
	require.Zero(t, e.count())
	e = withEngine(t, ContainerOptions{Image: "absent"}, nil)
	_, err = e.open(t, "a").Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "fetch the image absent: no such image")
	l := NewLocal(Options{Refuse: func() string { return "because" }})
	defer l.Close()
	thread, err := l.Open(Place{ID: "x", Dir: t.TempDir()})
	require.NoError(t, err)
	defer thread.Close()
	_, err = thread.Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "because")
}

// A container that ended, by a command or with its engine, is replaced.
func TestContainerThatEnded(t *testing.T) {
	t.Parallel()
	for vague := range 2 {
		e := withEngine(t, ContainerOptions{}, func(g *engine) { g.vague = vague })
		a := e.open(t, "a")
		run := func(command string) string {
			out, err := a.Run(t.Context(), Command{Text: command})
			require.NoError(t, err)
			return out
		}
		require.Equal(t, "Exit Code: 3", run("exit 3"))
		require.Equal(t, 1, e.count())
		for _, removed := range []bool{true, false} { // between two commands
			e.end(removed)
			require.Equal(t, "hi\n", run("echo hi"))
			require.Equal(t, 1, e.count())
		}
		for range 2 { // and the engine has not noticed
			e.mu.Lock()
			for id := range e.boxes {
				e.ending[id] = true
			}
			e.mu.Unlock()
			require.Equal(t, "hi\n", run("echo hi"))
			require.Equal(t, 1, e.count())
		}
		for _, removed := range []bool{true, false} { // during one
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for !a.Exists(Workspace + "/begun") {
					time.Sleep(time.Millisecond)
				}
				e.end(removed)
				_ = a.Write(Workspace+"/end", "", false)
			}()
			require.Contains(t, run("touch begun; while [ ! -e end ]; do sleep .01; done; rm begun end; exit 137"), "Exit Code: 137\nThe container has ended")
			<-ended
			require.Equal(t, "hi\n", run("echo hi"))
		}
	}
}

// An engine that hangs, or that sends what is no output, does not hang the agent.
func TestEngineThatMisbehaves(t *testing.T) {
	t.Parallel()
	e := withEngine(t, ContainerOptions{}, func(g *engine) { g.silent = true })
	out, err := e.open(t, "a").Run(t.Context(), Command{Text: "true", Timeout: 300 * time.Millisecond})
	require.NoError(t, err)
	require.Contains(t, out, "it ran too long")
	e = withEngine(t, ContainerOptions{}, func(g *engine) { g.garbage = true })
	_, err = e.open(t, "a").Run(t.Context(), Command{Text: "true"})
	require.ErrorContains(t, err, "unknown form")
	require.Zero(t, e.count())
}

// Whatever an engine does not answer, commands end with their runs, and the sandbox can be closed. A container that is there only later is used, or removed.
func TestEngineThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, hangs := range []string{"/containers/json", "/containers/create", "/start"} {
		t.Run(hangs, func(t *testing.T) {
			t.Parallel()
			held := make(chan struct{})
			e := withEngine(t, ContainerOptions{}, func(g *engine) { g.hangs, g.held, g.images = hangs, held, []string{DefaultImage} })
			asked := func() (n int) {
				for _, call := range e.calls() {
					if strings.HasSuffix(call, hangs) {
						n++
					}
				}
				return n
			}
			why := errors.New("the run was cancelled")
			for range 2 { // the second finds the start of the first
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan error, 1)
				a := e.open(t, "a")
				go func() {
					_, err := a.Run(ctx, Command{Text: "true"})
					ended <- err
				}()
				require.Eventually(t, func() bool { return asked() > 0 }, 10*time.Second, time.Millisecond)
				cancel(why)
				require.ErrorIs(t, <-ended, why)
			}
			waits := make(chan error, 1)
			a := e.open(t, "a")
			go func() {
				_, err := a.Run(t.Context(), Command{Text: "true"})
				waits <- err
			}()
			close(held)
			require.NoError(t, <-waits)
			require.Equal(t, 1, e.count())
			e.l.Close()
			require.Zero(t, e.count())

			held = make(chan struct{})
			defer close(held) // before the engine ends
			e = withEngine(t, ContainerOptions{}, func(g *engine) { g.hangs, g.held, g.images = hangs, held, []string{DefaultImage} })
			a = e.open(t, "a")
			go func() {
				_, err := a.Run(t.Context(), Command{Text: "true", Timeout: 20 * time.Second})
				waits <- err
			}()
			require.Eventually(t, func() bool { return asked() > 0 }, 10*time.Second, time.Millisecond)
			e.l.Close()
			if hangs != "/containers/json" { // else its run ends what waits
				require.Error(t, <-waits)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"1g": 1 << 30, "512M": 512 << 20, "64mb": 64 << 20, "2GiB": 2 << 30, "1048576": 1 << 20, "10k": 10 << 10, "0": 0, "-1g": 0, "": 0, "g": 0, "9999999999g": 0} {
		n, err := size(text)
		require.Equal(t, want, n, text)
		require.Equal(t, want == 0, err != nil, text)
	}
}

// With a real engine: what a command reaches, and what remains after those that attack their container. It needs an engine and an image with bash.
func TestRealEngine(t *testing.T) {
	t.Parallel()
	at, image := os.Getenv("UNDERSTUDY_TEST_ENGINE"), os.Getenv("UNDERSTUDY_TEST_IMAGE")
	if at == "" || image == "" {
		t.Skip("set UNDERSTUDY_TEST_ENGINE to an address of Docker's API, or podman, and UNDERSTUDY_TEST_IMAGE to an image with bash")
	}
	engines := []string{at}
	if at == "podman" {
		engines = nil // it serves the API
	}
	e := &enginery{dir: t.TempDir()}
	e.l = NewLocal(Options{Container: &ContainerOptions{Engines: engines, Home: e.dir, Image: image, Memory: "128m"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(e.l.Close)
	require.Equal(t, "container", e.l.Mode())
	a, b := e.open(t, "a"), e.open(t, "b")
	run := func(th *Thread, command string) string {
		out, err := th.Run(t.Context(), Command{Text: command, Timeout: 20 * time.Second})
		require.NoError(t, err, command)
		return out
	}
	require.NoError(t, a.Write(Workspace+"/f", "text of a\n", false))
	require.NoError(t, b.Write(Workspace+"/of-b", "x", false))
	for command, want := range map[string]string{
		"cat f; pwd; echo $HOME": "text of a\n" + Workspace + "\n" + Workspace + "\n",
		"id -u":                  fmt.Sprintf("%d\n", os.Getuid()),
		"while read k v; do case $k in CapEff:|CapBnd:|NoNewPrivs:) echo $v;; esac; done </proc/self/status": "0000000000000000\n0000000000000000\n1\n",
		"touch /mnt/skills/x 2>/dev/null || echo refused":                                                    "refused\n",
		"touch /etc/x 2>/dev/null; [ -e /etc/x ] && echo own":                                                "own\n", // the container's, without which it would be of no use
		"ls ../..": "skills\nuser-data\n",
		"while read i x; do echo $i; done </proc/net/dev | cat -": "Inter-|\nface\nlo:\n",
		"(exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null || echo no":  "no\n",
		"exit 7": "Exit Code: 7",
	} {
		require.Equal(t, want, run(a, command), command)
	}
	// What ends a container does not end the thread's commands: the next one has a new container.
	for _, command := range []string{
		"kill -9 -1", "kill -9 1; kill -TERM -1", "x=x; while :; do x=$x$x; done", // memory
		"f() { f | f & f; }; f", // processes; it ends by its time
	} {
		_, err := a.Run(t.Context(), Command{Text: command, Timeout: 10 * time.Second})
		if err != nil {
			t.Log(command, err)
		}
		require.Equal(t, "text of a\n", run(a, "cat f"), "after %s", command)
		require.Equal(t, "of-b\n", run(b, "ls"), "after %s", command)
	}
}
