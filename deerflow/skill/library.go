package skill

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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

	writing sync.Mutex // one change of custom skills at a time
}

// Verdict is the decision about a text that an agent would follow.
type Verdict struct {
	Decision string // allow, warn or block
	Reason   string
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
	seen := map[string]bool{}
	for _, from := range []struct {
		dir      string
		category Category
	}{{l.User(user), Custom}, {filepath.Join(root, "public"), Public}, {filepath.Join(root, "custom"), Legacy}} {
		for _, s := range l.scan(from.dir, from.category) {
			if seen[s.Name] {
				continue
			}
			seen[s.Name] = true
			if s.Enabled, err = l.Enabled(user, s); err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// maxScan bounds how deep skills are looked for.
const maxScan = 6

// scan returns the skills below a folder. Hidden folders are left out, links are followed, and what does not parse is passed over with a warning.
func (l *Library) scan(dir string, category Category) []*Skill {
	var found []*Skill
	var walk func(at, rel string, depth int)
	walk = func(at, rel string, depth int) {
		entries, err := os.ReadDir(at)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				l.Log.Warn("a folder of skills cannot be read", "path", at, "error", err)
			}
			return
		}
		if text, err := os.ReadFile(filepath.Join(at, File)); err == nil {
			front, err := Parse(text)
			if err != nil {
				l.Log.Warn("a skill is left out because of its front matter", "path", filepath.Join(at, File), "error", err)
				return
			}
			found = append(found, &Skill{Front: *front, Category: category, Dir: at, Path: rel})
			return
		}
		if depth == maxScan {
			return
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if info, err := os.Stat(filepath.Join(at, e.Name())); err == nil && info.IsDir() {
				walk(filepath.Join(at, e.Name()), path.Join(rel, e.Name()), depth+1)
			}
		}
	}
	walk(dir, "", 0)
	return found
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

// Install adds the skill of an archive to those of a user. Errors: *Refused, fault.Conflict when there is one with its name.
func (l *Library) Install(ctx context.Context, user string, r io.ReaderAt, size int64) (string, error) {
	a, err := open(r, size)
	if err != nil {
		return "", &Refused{err.Error()}
	}
	name := a.front.Name
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.absent(user, name); err != nil {
		return "", err
	}
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
func (l *Library) fill(ctx context.Context, a *archive, dir string) error {
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

// maxJudged bounds the part of a file that a model is shown, in bytes.
const maxJudged = 64 << 10

// judge asks about SKILL.md, and about what an agent would read or run besides: scripts must be allowed, texts must not be blocked.
func (l *Library) judge(ctx context.Context, a *archive, root *os.Root) error {
	for _, m := range a.members {
		first, _, _ := strings.Cut(m.path, "/")
		executable := first == "scripts"
		if m.path != File && !executable && first != "references" && first != "templates" {
			continue
		}
		content, err := root.ReadFile(filepath.FromSlash(m.path))
		if err != nil {
			return fmt.Errorf("install skill %s: %w", a.front.Name, err)
		}
		if !executable && bytes.IndexByte(content, 0) >= 0 {
			continue // no text: an agent reads nothing of it
		}
		where := a.front.Name + "/" + m.path
		v, err := l.Judge(ctx, where, string(content[:min(len(content), maxJudged)]), executable)
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

// Change is one entry of the history of a custom skill.
type Change struct {
	Action   string  `json:"action"` // human_edit, human_delete, rollback
	Author   string  `json:"author"`
	Thread   *string `json:"thread_id"`
	File     string  `json:"file_path"`
	Previous *string `json:"prev_content"`
	New      *string `json:"new_content"`
	Scanner  struct {
		Decision string `json:"decision"`
		Reason   string `json:"reason"`
	} `json:"scanner"`
	Time string `json:"ts"`
}

func missing(name string) error {
	return fault.Newf(fault.NotFound, "Custom skill '%s' not found", name)
}

// Read returns a custom skill of a user and the text of its SKILL.md.
func (l *Library) Read(user, name string) (*Skill, string, error) {
	s, err := l.Find(user, name)
	if fault.Is(err, fault.NotFound) || err == nil && s.Category != Custom {
		return nil, "", missing(name)
	} else if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", missing(name)
	} else if err != nil {
		return nil, "", fmt.Errorf("read skill %s: %w", name, err)
	}
	return s, string(text), nil
}

// Edit replaces the SKILL.md of a custom skill. Its name must stay.
func (l *Library) Edit(ctx context.Context, user, name, content string) error {
	return l.write(ctx, user, name, content, "human_edit")
}

// Rollback puts back what a change replaced; index as in History, from the end if negative.
func (l *Library) Rollback(ctx context.Context, user, name string, index int) error {
	changes, err := l.History(user, name)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return fault.Newf(fault.Invalid, "Custom skill '%s' has no history", name)
	}
	if index < 0 {
		index += len(changes)
	}
	if index < 0 || index >= len(changes) {
		return fault.New(fault.Invalid, "history_index is out of range")
	}
	c := changes[index]
	if c.Previous == nil {
		return fault.New(fault.Invalid, "Selected history entry has no previous content to roll back to")
	}
	return l.write(ctx, user, name, *c.Previous, "rollback")
}

func (l *Library) write(ctx context.Context, user, name, content, action string) error {
	front, err := Parse([]byte(content))
	if err != nil {
		return &Refused{err.Error()}
	}
	if front.Name != name {
		return refusedf("the name in the front matter must stay %q", name)
	}
	v, err := l.Judge(ctx, name+"/"+File, content, false)
	if err != nil {
		l.Log.Warn("an edit of a skill could not be judged and was refused", "skill", name, "error", err)
		return refusedf("Security scan failed, so the skill is not changed. Check the model that judges skills.")
	}
	if v.Decision == "block" {
		return refusedf("Security scan blocked the edit: %s", v.Reason)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	s, old, err := l.Read(user, name)
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(s.Dir, File), []byte(content)); err != nil {
		return fmt.Errorf("write skill %s: %w", name, err)
	}
	c := Change{Action: action, Author: "human", File: File, Previous: &old, New: &content}
	c.Scanner.Decision, c.Scanner.Reason = v.Decision, v.Reason
	return l.append(user, name, c)
}

// Delete removes a custom skill. Its history stays.
func (l *Library) Delete(user, name string) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	s, old, err := l.Read(user, name)
	if err != nil {
		return err
	}
	c := Change{Action: "human_delete", Author: "human", File: File, Previous: &old}
	c.Scanner.Decision, c.Scanner.Reason = "allow", "Deletion requested."
	if err := l.append(user, name, c); err != nil {
		return err
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		return fmt.Errorf("delete skill %s: %w", name, err)
	}
	return nil
}

func (l *Library) historyFile(user, name string) string {
	return filepath.Join(l.User(user), ".history", name+".jsonl")
}

// History returns the changes of a custom skill, oldest first.
func (l *Library) History(user, name string) ([]Change, error) {
	if !IsName(name) {
		return nil, missing(name)
	}
	f, err := os.Open(l.historyFile(user, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, _, err := l.Read(user, name); err != nil {
			return nil, err
		}
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the history of skill %s: %w", name, err)
	}
	defer f.Close()
	var list []Change
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4*maxMarkdown)
	for lines.Scan() {
		var c Change
		if json.Unmarshal(lines.Bytes(), &c) == nil { // a line that a crash cut is left out
			list = append(list, c)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the history of skill %s: %w", name, err)
	}
	return list, nil
}

func (l *Library) append(user, name string, c Change) error {
	c.Time = l.Now().UTC().Format(time.RFC3339Nano)
	line, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	file := l.historyFile(user, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	_, err = f.Write(append(line, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the history of skill %s: %w", name, err)
	}
	return nil
}

// replace writes a file next to its place and renames it.
func replace(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".edit-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
