package skill

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/internal/fault"
	"understudy/internal/logonce"
	"understudy/internal/regular"
	"understudy/internal/turn"
)

// Category says whose a skill is.
type Category string

const (
	Public Category = "public" // of the deployment
	Custom Category = "custom" // of a user
	Legacy Category = "legacy" // custom skills of an older release, which all users share and are read-only
)

// Skill is one skill.
type Skill struct {
	Front
	Category Category
	Enabled  bool
	Dir      string // on this machine
	Path     string // of its folder below that of its category, with slashes
}

// Library is all skills. It is safe for concurrent use.
type Library struct {
	// Root returns the folder with public and custom.
	Root func() (string, error)
	// User returns the folder of a user's custom skills.
	User func(user string) string
	// Enabled reports whether a skill is switched on; Enable switches it.
	Enabled func(user string, s *Skill) (bool, error)
	Enable  func(user string, s *Skill, on bool) error
	// Judge decides about what is installed or edited.
	Judge Judge
	Log   *slog.Logger
	Now   func() time.Time

	once  sync.Once
	turns *turn.Lines // of users who install

	writing sync.Mutex    // one change of custom skills at a time
	noted   logonce.Texts // problems that were logged, by path: a folder is read for each request
}

// warn logs a problem of a path, if it is not the one that was logged last.
func (l *Library) warn(text, path string, err error) {
	if l.noted.Changed(path, text+err.Error()) {
		l.Log.Warn(text, "path", path, "error", err)
	}
}

// warnDouble logs that two skills have one name, once.
func (l *Library) warnDouble(used, left *Skill) {
	if l.noted.Changed(left.Dir+"\x00"+used.Dir, "") {
		l.Log.Warn("two skills have one name; the agent has one of them", "skill", used.Name, "used", used.Dir, "left_out", left.Dir, "fix", "rename or delete one of them")
	}
}

// Verdict is the decision about a text that an agent would follow.
type Verdict struct {
	Decision string `json:"decision"` // allow, warn or block
	Reason   string `json:"reason"`
}

// Judge decides whether a file of a skill may be installed. executable: it is a program. An error refuses it.
type Judge func(ctx context.Context, where, content string, executable bool) (Verdict, error)

// Refused is the error for a skill that must not be installed; the text says why.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func refusedf(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// List returns the skills that a user has, by name. Of several with one name, a custom one comes before a public one.
func (l *Library) List(user string) ([]*Skill, error) {
	root, err := l.Root()
	if err != nil {
		return nil, err
	}
	var all []*Skill
	seen := map[string]*Skill{}
	for _, from := range []struct {
		dir      string
		category Category
	}{{l.User(user), Custom}, {filepath.Join(root, "public"), Public}, {filepath.Join(root, "custom"), Legacy}} {
		for _, s := range l.scan(from.dir, from.category) {
			if used := seen[s.Name]; used != nil {
				l.warnDouble(used, s)
				continue
			}
			seen[s.Name] = s
			if s.Enabled, err = l.Enabled(user, s); err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Scanner returns a function that reads the skills below a folder, by name. Hidden folders are left out, links are followed, and what does not parse is passed over with
// a warning, once until it changes. So is a folder without skills.
func Scanner(dir string, log *slog.Logger) func() []*Skill {
	l := &Library{Log: log}
	return func() []*Skill {
		all := l.scan(dir, Public)
		if len(all) == 0 {
			l.warn("a folder of skills has none", dir, errors.New("each skill is a folder in it with a file "+File))
		}
		slices.SortFunc(all, func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
		return all
	}
}

// How deep skills are looked for, in how many folders, and what is read of a SKILL.md, in bytes.
const (
	maxScan    = 6
	maxFolders = 20_000
	maxText    = 1 << 20
)

// folder is one in which skills are looked for.
type folder struct {
	at, rel string
	real    string // at without links
	depth   int
}

// scan returns the skills below a folder, without order. A folder that several paths lead to is looked at once, by the shortest: links can lead back and multiply.
// Of several skills with one name it returns the one whose path is last, folder by folder, as DeerFlow does.
func (l *Library) scan(dir string, category Category) []*Skill {
	var found, left []*Skill
	top := folder{at: dir, real: dir}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		top.real = real
	}
	queue, met, named := []folder{top}, map[string]bool{top.real: true}, map[string]int{}
	for len(queue) > 0 {
		f := queue[0]
		queue = queue[1:]
		s, inside := l.look(f)
		if s != nil {
			s.Category = category
			if i, double := named[s.Name]; !double {
				named[s.Name] = len(found)
				found = append(found, s)
			} else if used := found[i]; slices.Compare(strings.Split(s.Path, "/"), strings.Split(used.Path, "/")) > 0 {
				found[i] = s
				left = append(left, used)
			} else {
				left = append(left, s)
			}
		}
		for _, in := range inside {
			if met[in.real] {
				continue
			}
			if len(met) == maxFolders {
				l.warn("there are too many folders to look for skills in all of them", dir, fmt.Errorf("at most %d are looked through", maxFolders))
				break
			}
			met[in.real] = true
			queue = append(queue, in)
		}
	}
	for _, s := range left {
		l.warnDouble(found[named[s.Name]], s)
	}
	return found
}

// look returns the skill of a folder, or the folders in it.
func (l *Library) look(f folder) (*Skill, []folder) {
	entries, err := os.ReadDir(f.at)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.warn("a folder of skills cannot be read", f.at, err)
		}
		return nil, nil
	}
	text, err := regular.Read(filepath.Join(f.at, File), maxText)
	switch {
	case err == nil:
		front, err := Parse(text)
		if err != nil {
			l.warn("a skill is left out because of its front matter", filepath.Join(f.at, File), err)
			return nil, nil
		}
		return &Skill{Front: *front, Dir: f.at, Path: f.rel}, nil
	case !errors.Is(err, fs.ErrNotExist):
		l.warn("a skill is left out because its file cannot be read", filepath.Join(f.at, File), err)
		return nil, nil
	case f.depth == maxScan:
		return nil, nil
	}
	var inside []folder
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if strings.EqualFold(e.Name(), File) && !e.IsDir() {
			l.warn("a skill is left out because of the name of its file", filepath.Join(f.at, e.Name()), errors.New("rename it to "+File))
		}
		in := folder{at: filepath.Join(f.at, e.Name()), rel: path.Join(f.rel, e.Name()), real: filepath.Join(f.real, e.Name()), depth: f.depth + 1}
		if info, err := os.Stat(in.at); err != nil || !info.IsDir() {
			continue
		}
		if !e.IsDir() { // a link
			if in.real, err = filepath.EvalSymlinks(in.at); err != nil {
				continue
			}
		}
		inside = append(inside, in)
	}
	return nil, inside
}

// Find returns a skill of a user by name; fault.NotFound.
func (l *Library) Find(user, name string) (*Skill, error) {
	all, err := l.List(user)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fault.Newf(fault.NotFound, "Skill '%s' not found", name)
}

// Switch turns a skill on or off.
func (l *Library) Switch(user, name string, on bool) (*Skill, error) {
	s, err := l.Find(user, name)
	if err != nil {
		return nil, err
	}
	if err := l.Enable(user, s, on); err != nil {
		return nil, err
	}
	s.Enabled = on
	return s, nil
}

// Archives that are unpacked and judged at once are bounded: those of one user, and as each of the larger ones may take half a GiB of disk meanwhile, these of all users.
// What fits into small waits for no model that judges another user's.
const (
	maxInstalling       = 8
	maxInstallingOfUser = 2
	maxWaitingOfUser    = 10 // with those that are installed
	maxUsersInstalling  = 100
	small               = 16 << 20 // bytes
)

var (
	installing    = make(chan struct{}, maxInstalling)
	errInstalling = fault.New(fault.Unavailable, "Too many skills are being installed; try again in a moment")
)

func newTurns() *turn.Lines {
	return &turn.Lines{Clients: maxUsersInstalling, Line: maxWaitingOfUser, Each: maxInstallingOfUser, Full: errInstalling}
}

// begin waits until an archive of a user, of so many bytes unpacked, may be unpacked. The caller calls done.
func (l *Library) begin(ctx context.Context, user string, size int64) (done func(), err error) {
	l.once.Do(func() { l.turns = newTurns() })
	leave, err := l.turns.Enter(ctx, user)
	if err != nil || size <= small {
		return leave, err
	}
	select {
	case installing <- struct{}{}:
		return func() { <-installing; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// Install adds the skill of an archive to those of a user. Errors: *Refused, fault.Conflict when there is one with its name.
// It is judged before the lock of changes is taken, because a model may take minutes; of several with one name that are judged at once the first is installed.
func (l *Library) Install(ctx context.Context, user string, r io.ReaderAt, size int64) (string, error) {
	a, err := open(r, size)
	if err != nil {
		return "", &Refused{err.Error()}
	}
	name := a.front.Name
	if err := l.absent(user, name); err != nil {
		return "", err
	}
	done, err := l.begin(ctx, user, a.size)
	if err != nil {
		return "", err
	}
	defer done()
	home := l.User(user)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("install skill %s: %w", name, err)
	}
	stage, err := os.MkdirTemp(home, ".install-")
	if err != nil {
		return "", fmt.Errorf("install skill %s: %w", name, err)
	}
	defer os.RemoveAll(stage)
	if err := l.fill(ctx, a, stage); err != nil {
		return "", err
	}
	if err := os.Chmod(stage, 0o755); err != nil {
		return "", fmt.Errorf("install skill %s: %w", name, err)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.absent(user, name); err != nil { // another was first
		return "", err
	}
	if err := os.Rename(stage, filepath.Join(home, name)); err != nil {
		if l.absent(user, name) != nil { // another process was first
			return "", taken(name)
		}
		return "", fmt.Errorf("install skill %s: %w", name, err)
	}
	return name, nil
}

func taken(name string) error {
	return fault.Newf(fault.Conflict, "Skill '%s' already exists. Please remove it first or use a different name.", name)
}

// absent returns fault.Conflict when a user has a custom skill with a name.
func (l *Library) absent(user, name string) error {
	if _, err := os.Lstat(filepath.Join(l.User(user), name)); err == nil {
		return taken(name)
	}
	s, err := l.Find(user, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case err != nil:
		return err
	case s.Category == Public:
		return nil // a custom skill may take the place of a public one
	}
	return taken(name)
}

// fill unpacks an archive into a folder, and has it judged.
func (l *Library) fill(ctx context.Context, a *content, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("install skill %s: %w", a.front.Name, err)
	}
	defer root.Close()
	err = a.unpack(ctx, func(name string, executable bool) (io.WriteCloser, error) {
		if parent := filepath.Dir(filepath.FromSlash(name)); parent != "." {
			if err := root.MkdirAll(parent, 0o755); err != nil {
				return nil, err
			}
		}
		mode := fs.FileMode(0o644)
		if executable {
			mode = 0o755
		}
		return root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return &Refused{err.Error()}
	}
	return l.judge(ctx, a, root)
}

// maxJudged bounds the part of a file that a model is shown, in bytes. A script must not have more: what is not shown would run unjudged.
const maxJudged = 64 << 10

// beginning returns what a model is shown of a file, and whether that is all of it.
func beginning(root *os.Root, name string) (text []byte, whole bool, err error) {
	f, _, err := regular.Open(root, filepath.FromSlash(name))
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, maxJudged+1))
	return text[:min(len(text), maxJudged)], len(text) <= maxJudged, err
}

// judge asks about SKILL.md, and about what an agent would read or run besides: scripts must be allowed, texts must not be blocked.
func (l *Library) judge(ctx context.Context, a *content, root *os.Root) error {
	for _, m := range a.members {
		first, _, _ := strings.Cut(m.path, "/")
		executable := first == "scripts"
		if m.path != File && !executable && first != "references" && first != "templates" {
			continue
		}
		where := a.front.Name + "/" + m.path
		text, whole, err := beginning(root, m.path)
		if err != nil {
			return fmt.Errorf("install skill %s: %w", a.front.Name, err)
		}
		if !executable && bytes.IndexByte(text, 0) >= 0 {
			continue // no text: an agent reads nothing of it
		}
		if executable && !whole {
			return refusedf("%s is too large to be judged: scripts of a skill have up to %d KiB", where, maxJudged>>10)
		}
		v, err := l.Judge(ctx, where, string(text), executable)
		if err != nil {
			l.Log.Warn("a skill could not be judged and was refused", "skill", a.front.Name, "file", m.path, "error", err)
			return refusedf("Security scan of %s failed, so the skill is not installed. Check the model that judges skills.", where)
		}
		if v.Decision == "block" || executable && v.Decision != "allow" {
			return refusedf("Security scan blocked skill '%s': %s", a.front.Name, v.Reason)
		}
	}
	return nil
}
