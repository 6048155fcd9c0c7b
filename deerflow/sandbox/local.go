package sandbox

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Confinement says whether Landlock confines commands.
type Confinement string

const (
	ConfineAuto     Confinement = ""         // where the kernel can
	ConfineOff      Confinement = "off"      // never
	ConfineRequired Confinement = "required" // commands are refused where the kernel cannot
)

// Options are for all threads.
type Options struct {
	Confine Confinement
	// Readable are further files and folders that confined commands may read and execute, such as a language's installation in /home.
	Readable []string
	// Container lets commands run in containers; nil: on this machine. Without an engine commands are refused.
	Container *ContainerOptions
	// Refuse says at the start, and before each command, why commands must not run; "": they may. nil: they may.
	Refuse func() string
	Log    *slog.Logger // nil: none
}

// Local is the sandbox on this machine. It owns the processes that commands leave behind. It is safe for concurrent use.
type Local struct {
	o      Options
	level  int  // of Landlock; 0: none
	filter bool // of system calls
	binds  bool // commands find folders at their virtual paths; else these are replaced in commands
	log    *slog.Logger
	name   string // of this server, in the environment of commands

	boxes   *containers // nil: commands run on this machine
	refused string      // why there are no containers

	mu     sync.Mutex
	jobs   map[string][]*job // processes in the background, by thread; the oldest first
	known  map[string]bool   // threads whose commands of servers that died are gone
	closed bool
}

// NewLocal returns the sandbox, and logs what confines commands.
func NewLocal(o Options) *Local {
	l := &Local{o: o, log: o.Log, name: thisServer(), jobs: map[string][]*job{}, known: map[string]bool{}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if reason := l.Refusal(); reason != "" {
		l.log.Error("commands of agents are refused", "reason", reason)
		return l
	}
	if o.Container != nil {
		var err error
		if l.boxes, err = newContainers(*o.Container, l.log); err != nil {
			l.boxes, l.refused = nil, "containers are configured, and none can be started; install docker or podman, or configure the local sandbox, and restart the server"
			l.log.Error("commands of agents are refused: there are no containers; install docker or podman, or set sandbox.use to the local sandbox", "error", err)
			return l
		}
		l.log.Info("commands of agents run in containers", "sandbox", l.Mode(), "engine", l.boxes.engine.where, "image", l.boxes.o.Image)
		return l
	}
	if o.Confine != ConfineOff {
		l.level, l.filter = landlockLevel(), filters()
	}
	l.binds = canBind()
	switch {
	case l.level > 0:
		l.log.Info("commands of agents are confined", "sandbox", l.Mode(), "level", l.level, "seccomp", l.filter, "paths", l.paths())
	case o.Confine == ConfineRequired:
		l.log.Error("commands of agents are refused: the kernel has no Landlock; enable it, or set sandbox.confine to auto", "sandbox", l.Mode())
	default:
		l.log.Warn("commands of agents are not confined: a shell can do what this server can do; allow bash only for people whom you trust", "sandbox", l.Mode(), "seccomp", l.filter, "paths", l.paths())
	}
	return l
}

// Refusal says why commands do not run now; "": they do.
func (l *Local) Refusal() string {
	if l.refused == "" && l.o.Refuse != nil {
		return l.o.Refuse()
	}
	return l.refused
}

// orphans are threads of which it is known that no server that died left commands.
const orphans = 10_000

// Mark is a variable, NAME=value, of programs that run for a thread outside of its sandbox: with it Tidy finds what is left of them when this server dies.
func (l *Local) Mark() (name, value string) { return server, l.name }

// Tidy kills commands that servers left that died, before the first command of a thread, by the ID of its sandbox: its run may be one that such a server had.
func (l *Local) Tidy(id string) {
	l.mu.Lock()
	known := l.known[id]
	if len(l.known) >= orphans {
		clear(l.known)
	}
	l.known[id] = true
	l.mu.Unlock()
	if known {
		return
	}
	if n := killOrphans(); n > 0 {
		l.log.Warn("commands of a server that died were ended", "processes", n)
	}
}

// Mode returns what confines commands: container, landlock, or none.
func (l *Local) Mode() string {
	if l.boxes != nil {
		return "container"
	}
	if l.level > 0 {
		return "landlock"
	}
	return "none"
}

// Finds reports whether programs find files at their virtual paths, which then may stand in scripts.
func (l *Local) Finds() bool { return l.boxes != nil || l.binds }

// WillFind reports whether Finds of a sandbox with these options is true, without logging what confines commands.
func WillFind(o Options) bool { return o.Container != nil || canBind() }

// paths says how virtual paths work in commands: mounted, or replaced in the text of commands alone.
func (l *Local) paths() string {
	if l.binds {
		return "mounted"
	}
	return "replaced"
}

// Close ends all processes in the background.
func (l *Local) Close() {
	l.mu.Lock()
	l.closed = true
	var all []*job
	for _, list := range l.jobs {
		all = append(all, list...)
	}
	clear(l.jobs)
	l.mu.Unlock()
	for _, j := range all {
		j.end()
	}
	if l.boxes != nil {
		l.boxes.close()
	}
}

// Place is a thread's part of this machine.
type Place struct {
	ID     string // of the sandbox, such as local:user:thread
	Dir    string // absolute; has the folders user-data and acp-workspace
	Mounts []Mount
}

// Thread is the sandbox of one thread. It is safe for concurrent use.
type Thread struct {
	l      *Local
	id     string
	dir    string
	mounts []*mount
	paths  []pair // from virtual paths to those of this machine
	masks  []pair // and back
	write  *sync.Mutex
}

// writers order the writes of threads; a thread has one of them.
var writers [64]sync.Mutex

// Open opens a thread's folders, and makes those that are missing. The caller closes the Thread; processes in the background live on until Release.
func (l *Local) Open(p Place) (*Thread, error) {
	if !filepath.IsAbs(p.Dir) {
		return nil, fmt.Errorf("open sandbox %s: its folder is not an absolute path", p.ID)
	}
	data := filepath.Join(p.Dir, "user-data")
	for _, name := range folders {
		if err := os.MkdirAll(filepath.Join(data, name), 0o755); err != nil {
			return nil, fmt.Errorf("open sandbox %s: %w", p.ID, err)
		}
	}
	list := append([]Mount{{Virtual: UserData, Host: data, Write: true}, {Virtual: ACP, Host: filepath.Join(p.Dir, "acp-workspace")}}, p.Mounts...)
	mounts, err := openMounts(list)
	if err != nil {
		return nil, fmt.Errorf("open sandbox %s: %w", p.ID, err)
	}
	t := &Thread{l: l, id: p.ID, dir: p.Dir, mounts: mounts, write: &writers[hash(data)%uint32(len(writers))]}
	t.paths, t.masks = pairs(mounts)
	return t, nil
}

func hash(text string) uint32 {
	h := uint32(2166136261)
	for i := range len(text) {
		h = (h ^ uint32(text[i])) * 16777619
	}
	return h
}

// ID returns the id of the sandbox.
func (t *Thread) ID() string { return t.id }

// Close releases the folders.
func (t *Thread) Close() { closeMounts(t.mounts) }

// Mask replaces paths of this machine in a text by virtual ones.
func (t *Thread) Mask(text string) string { return translate(text, t.masks) }

// Release ends the processes that commands of a thread left behind. id is that of its sandbox.
func (l *Local) Release(id string) {
	l.mu.Lock()
	list := l.jobs[id]
	delete(l.jobs, id)
	l.mu.Unlock()
	for _, j := range list {
		j.end()
	}
}

const (
	maxJobs = 8         // processes in the background, by thread: one more ends the oldest
	maxRest = time.Hour // that one lives after its command, if nothing releases it before
)

// keep takes over what a command left behind.
func (l *Local) keep(id string, j *job) {
	l.mu.Lock()
	var old *job
	closed := l.closed
	if !closed {
		l.jobs[id] = append(l.jobs[id], j)
		if list := l.jobs[id]; len(list) > maxJobs {
			old, l.jobs[id] = list[0], list[1:]
		}
	}
	l.mu.Unlock()
	if closed {
		j.end()
		return
	}
	j.whenEnded(maxRest, func() { l.forget(id, j) })
	if old != nil {
		l.log.Warn("too many processes in the background; the oldest ended", "sandbox", id, "limit", maxJobs)
		old.end()
	}
}

func (l *Local) forget(id string, j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.jobs[id] {
		if other == j {
			l.jobs[id] = append(l.jobs[id][:i:i], l.jobs[id][i+1:]...)
			break
		}
	}
	if len(l.jobs[id]) == 0 {
		delete(l.jobs, id)
	}
}
