package skill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"understudy/internal/fault"
)

// Bounds of what an agent writes.
const (
	maxCustom = 1000    // skills of a user
	maxFile   = 1 << 20 // bytes of a file
)

// supports are the folders of a skill in which an agent may write files.
var supports = []string{"references", "templates", "scripts", "assets"}

// Agent is an agent that changes the custom skills of its user. What it writes is judged as what a person writes.
type Agent struct {
	*Library
	User, Thread string
}

func (a Agent) by(action string) Change {
	return Change{Action: action, Author: "agent", Thread: &a.Thread}
}

// Create adds a skill. The error is fault.Conflict when there is one with its name.
func (a Agent) Create(ctx context.Context, name, content string) error {
	c := a.by("create")
	var err error
	if c.Scanner, err = a.vet(ctx, name, content); err != nil {
		return err
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	if err := a.absent(a.User, name); err != nil {
		return err
	}
	home := a.Library.User(a.User)
	if have, err := os.ReadDir(home); err == nil && len(have) >= maxCustom {
		return refusedf("There are %d skills already.", maxCustom)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return fmt.Errorf("create skill %s: %w", name, err)
	}
	stage, err := os.MkdirTemp(home, ".create-")
	if err != nil {
		return fmt.Errorf("create skill %s: %w", name, err)
	}
	defer os.RemoveAll(stage)
	if err := errors.Join(os.WriteFile(filepath.Join(stage, File), []byte(content), 0o644), os.Chmod(stage, 0o755)); err != nil {
		return fmt.Errorf("create skill %s: %w", name, err)
	}
	if err := os.Rename(stage, filepath.Join(home, name)); err != nil {
		return fmt.Errorf("create skill %s: %w", name, err)
	}
	c.File, c.New = File, &content
	return a.append(a.User, name, c)
}

// Edit replaces the SKILL.md of a skill.
func (a Agent) Edit(ctx context.Context, name, content string) error {
	return a.write(ctx, a.User, name, a.by("edit"), func(string) (string, error) { return content, nil })
}

// Patch replaces a text in the SKILL.md of a skill: the first, or as many as are expected. It returns how many there were.
func (a Agent) Patch(ctx context.Context, name, find, with string, expected *int) (found int, err error) {
	if find == "" {
		return 0, refusedf("find must not be empty.")
	}
	err = a.write(ctx, a.User, name, a.by("patch"), func(old string) (string, error) {
		switch found = strings.Count(old, find); {
		case found == 0:
			return "", refusedf("find is not in %s.", File)
		case expected != nil && *expected != found:
			return "", refusedf("find is there %[2]d times, not %[1]d.", *expected, found)
		case expected != nil:
			return strings.ReplaceAll(old, find, with), nil
		}
		return strings.Replace(old, find, with, 1), nil
	})
	return found, err
}

// Delete removes a skill. Its history stays.
func (a Agent) Delete(name string) error { return a.remove(a.User, name, a.by("delete")) }

// WriteFile writes a file in one of the folders for them. What it replaces is in the history.
func (a Agent) WriteFile(ctx context.Context, name, path, content string) error {
	if err := supporting(path); err != nil {
		return err
	}
	if len(content) > maxFile || !utf8.ValidString(content) || strings.ContainsRune(content, 0) {
		return refusedf("The content must be UTF-8 text of at most %d MiB.", maxFile>>20)
	}
	if _, _, err := a.Read(a.User, name); err != nil {
		return err
	}
	c := a.by("write_file")
	var err error
	if c.Scanner, err = a.judgeText(ctx, name, path, content, strings.HasPrefix(path, "scripts/")); err != nil {
		return err
	}
	c.File, c.New = path, &content
	return a.within(name, func(root *os.Root) error {
		if c.Previous, err = previous(root, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := room(root, len(content)); err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(path)), 0o755); err != nil {
			return err
		}
		stage := filepath.FromSlash(path) + ".edit"
		defer func() { _ = root.Remove(stage) }() // unless it was renamed
		if err := errors.Join(root.WriteFile(stage, []byte(content), 0o644), root.Rename(stage, filepath.FromSlash(path))); err != nil {
			return err
		}
		return a.append(a.User, name, c)
	})
}

// RemoveFile removes a file that WriteFile could have written.
func (a Agent) RemoveFile(name, path string) error {
	if err := supporting(path); err != nil {
		return err
	}
	c := a.by("remove_file")
	c.File, c.Scanner = path, requested
	return a.within(name, func(root *os.Root) (err error) {
		if c.Previous, err = previous(root, path); err != nil {
			return err
		}
		if err := a.append(a.User, name, c); err != nil {
			return err
		}
		return root.Remove(filepath.FromSlash(path))
	})
}

// within changes the folder of a skill. Links in it lead nowhere else.
func (a Agent) within(name string, change func(root *os.Root) error) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	s, _, err := a.Read(a.User, name)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return fmt.Errorf("write skill %s: %w", name, err)
	}
	defer root.Close()
	err = change(root)
	var refused *Refused
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("write skill %s: %w", name, err)
}

// supporting refuses paths at which an agent must not write.
func supporting(path string) error {
	first, rest, _ := strings.Cut(path, "/")
	if err := checkPath(path); err != nil || rest == "" || strings.HasSuffix(path, "/") || !slices.Contains(supports, first) {
		return refusedf("path must begin with one of: %s.", strings.Join(supports, ", "))
	}
	if strings.EqualFold(filepath.Base(path), File) {
		return refusedf("A skill has one %s.", File)
	}
	return nil
}

// previous returns the text of a file for the history; nil for one that is no text, or too large.
func previous(root *os.Root, path string) (*string, error) {
	info, err := root.Stat(filepath.FromSlash(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", refusedf("there is no file '%s'.", path), fs.ErrNotExist)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, refusedf("'%s' is a folder.", path)
	case info.Size() > maxFile:
		return nil, nil
	}
	text, err := root.ReadFile(filepath.FromSlash(path))
	if err != nil || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, err
	}
	out := string(text)
	return &out, nil
}

// room refuses what would make a skill larger than an archive of one may be.
func room(root *os.Root, more int) error {
	files, size := 1, int64(more)
	err := fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files, size = files+1, size+info.Size()
		return nil
	})
	if err == nil && (files > maxFiles || size > maxUnpacked) {
		return refusedf("The skill has more than %d files or %d MiB.", maxFiles, maxUnpacked>>20)
	}
	return err
}

// Editable returns an error that says why a skill cannot be changed: it is not there, or belongs to all users.
func (a Agent) Editable(name string) error {
	s, err := a.Find(a.User, name)
	if err == nil && s.Category != Custom {
		return refusedf("'%s' is read-only, because it belongs to all users; create a skill of that name to have your own.", name)
	}
	if fault.Is(err, fault.NotFound) {
		return missing(name)
	}
	return err
}
