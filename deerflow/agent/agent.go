// Package agent keeps the agents that users define themselves: a name, a model, tools, skills, and a soul, in folders of the user:
//
//	{home}/users/{user}/agents/{name}/config.yaml
//	{home}/users/{user}/agents/{name}/SOUL.md
//
// Agents from versions without users are in {home}/agents. All users share them, unless they have one of their own with that name; no user can change them.
package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/goccy/go-yaml"

	"understudy/internal/fault"
	"understudy/internal/logonce"
	"understudy/internal/wholefile"
)

// Agent is one agent of a user. Nil fields were not said; an empty list of skills, or of groups of tools, is none of them.
type Agent struct {
	Name            string         `yaml:"name"`
	Description     string         `yaml:"description"`
	Model           *string        `yaml:"model,omitempty"`
	ToolGroups      []string       `yaml:"tool_groups,omitzero"`
	Skills          []string       `yaml:"skills,omitzero"`
	ModelSettings   map[string]any `yaml:"model_settings,omitempty"`
	Thinking        *bool          `yaml:"thinking_enabled,omitempty"`
	ReasoningEffort *string        `yaml:"reasoning_effort,omitempty"`
	Soul            string         `yaml:"-"`
}

// Bounds.
const (
	maxName   = 64
	maxSoul   = 256 << 10
	maxAbout  = 64 << 10 // bytes of a description
	maxList   = 1000     // skills, and groups of tools
	maxAgents = 1000
	config    = "config.yaml"
	soul      = "SOUL.md"
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// Name returns the stored form of a name; fault.Unprocessable for one that no agent can have.
func Name(given string) (string, error) {
	if !nameForm.MatchString(given) || len(given) > maxName {
		return "", fault.Newf(fault.Unprocessable, "Invalid agent name '%s'. Must match %s (letters, digits, and hyphens only)", given[:min(len(given), maxName)], nameForm)
	}
	return strings.ToLower(given), nil
}

// Folder is the agents of all users. It is safe for concurrent use.
type Folder struct {
	// Dir returns the folder of a user's agents.
	Dir func(user string) string
	// Shared is the folder of agents that all users have; "" there is none.
	Shared string
	Log    *slog.Logger

	mu    sync.Mutex
	noted logonce.Texts // problems that were logged, by folder
}

func unknown(name string) error { return fault.Newf(fault.NotFound, "Agent '%s' not found", name) }

// find returns the folder of an agent, and whether it is one that all users have. A folder of a user without config.yaml, such as one in which only the memory of an agent
// is, has no agent.
func (f *Folder) find(user, name string) (dir string, shared bool, err error) {
	for _, in := range []string{f.Dir(user), f.Shared} {
		if in == "" {
			continue
		}
		dir = filepath.Join(in, name)
		if _, err := os.Stat(filepath.Join(dir, config)); err == nil {
			return dir, in == f.Shared, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("look for agent %s: %w", name, err)
		}
	}
	return "", false, unknown(name)
}

// own returns the folder of an agent that its user may change. Errors: fault.NotFound, fault.Conflict for one that all users have.
func (f *Folder) own(user, name string) (string, error) {
	dir, shared, err := f.find(user, name)
	if err == nil && shared {
		err = fault.Newf(fault.Conflict, "Agent '%s' is in the folder agents, which all users share, and cannot be changed. Move it to users/USER/agents of its user.", name)
	}
	return dir, err
}

// Get returns an agent; name in stored form.
func (f *Folder) Get(user, name string) (*Agent, error) {
	dir, _, err := f.find(user, name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, config))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown(name)
	} else if err != nil {
		return nil, fmt.Errorf("read agent %s: %w", name, err)
	}
	a := &Agent{}
	if err := yaml.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("read agent %s: %w", name, err)
	}
	a.Name = name
	words, err := os.ReadFile(filepath.Join(dir, soul))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read agent %s: %w", name, err)
	}
	a.Soul = string(words)
	return a, nil
}

// Has reports whether a user has an agent.
func (f *Folder) Has(user, name string) (bool, error) {
	_, _, err := f.find(user, name)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// List returns the agents of a user, by name. Those that cannot be read are left out, with a warning: one of them must not hide the others.
func (f *Folder) List(user string) ([]*Agent, error) {
	list, seen := []*Agent{}, map[string]bool{}
	for _, in := range []string{f.Dir(user), f.Shared} {
		entries, err := os.ReadDir(in)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list agents: %w", err)
		}
		for _, e := range entries {
			if name, err := Name(e.Name()); err != nil || name != e.Name() || !e.IsDir() || seen[name] {
				continue
			}
			a, err := f.Get(user, e.Name())
			if fault.Is(err, fault.NotFound) {
				continue // being made, or deleted meanwhile
			} else if err != nil {
				seen[e.Name()] = true // one of the user's, in whose place is none of all users
				if at := filepath.Join(in, e.Name()); f.noted.Changed(at, err.Error()) {
					f.Log.Warn("an agent is left out of lists, and runs of it fail", "agent", e.Name(), "folder", at, "error", err, "fix", "correct its "+config+", or move the folder away")
				}
				continue
			}
			seen[a.Name] = true
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *Agent) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Create adds an agent; fault.Conflict when there is one with its name.
func (f *Folder) Create(user string, a *Agent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := a.check(); err != nil {
		return err
	}
	if list, err := f.List(user); err != nil {
		return err
	} else if len(list) >= maxAgents {
		return fault.Newf(fault.Unprocessable, "There are %d agents already", maxAgents)
	}
	if has, err := f.Has(user, a.Name); err != nil {
		return err
	} else if has {
		return taken(a.Name)
	}
	if err := os.MkdirAll(f.Dir(user), 0o755); err != nil {
		return fmt.Errorf("create agent %s: %w", a.Name, err)
	}
	dir := filepath.Join(f.Dir(user), a.Name)
	if _, err := os.Lstat(dir); err == nil { // with a memory of an agent that was here
		if err = a.write(dir); err == nil {
			return nil
		} else if !errors.Is(err, fs.ErrNotExist) { // else another server has deleted it meanwhile
			return fmt.Errorf("create agent %s: %w", a.Name, err)
		}
	}
	stage, err := os.MkdirTemp(f.Dir(user), ".new-")
	if err != nil {
		return fmt.Errorf("create agent %s: %w", a.Name, err)
	}
	defer os.RemoveAll(stage)
	if err := errors.Join(a.write(stage), os.Chmod(stage, 0o755)); err != nil {
		return fmt.Errorf("create agent %s: %w", a.Name, err)
	}
	if err := os.Rename(stage, dir); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) { // another server was first
			return taken(a.Name)
		}
		return fmt.Errorf("create agent %s: %w", a.Name, err)
	}
	return nil
}

func taken(name string) error { return fault.Newf(fault.Conflict, "Agent '%s' already exists", name) }

// Change applies a change to an agent.
func (f *Folder) Change(user, name string, change func(*Agent)) (*Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := f.own(user, name)
	if err != nil {
		return nil, err
	}
	a, err := f.Get(user, name)
	if err != nil {
		return nil, err
	}
	change(a)
	a.Name = name
	if err := a.check(); err != nil {
		return nil, err
	}
	if err := a.write(dir); errors.Is(err, fs.ErrNotExist) { // another server has deleted it meanwhile
		return nil, unknown(name)
	} else if err != nil {
		return nil, fmt.Errorf("change agent %s: %w", name, err)
	}
	return a, nil
}

// Delete removes an agent.
func (f *Folder) Delete(user, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := f.own(user, name)
	if err != nil {
		return err
	}
	for range removals {
		if err = os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("delete agent %s: %w", name, err)
	}
	return nil
}

// removals is how often a folder is deleted in which another server writes meanwhile.
const removals = 100

func (a *Agent) check() error {
	switch {
	case len(a.Soul) > maxSoul:
		return fault.Newf(fault.Unprocessable, "The soul has more than %d KiB", maxSoul>>10)
	case len(a.Description) > maxAbout:
		return fault.Newf(fault.Unprocessable, "The description has more than %d KiB", maxAbout>>10)
	case len(a.Skills) > maxList || len(a.ToolGroups) > maxList:
		return fault.Newf(fault.Unprocessable, "An agent has at most %d skills and %d groups of tools", maxList, maxList)
	}
	return nil
}

func (a *Agent) write(dir string) error {
	text, err := yaml.Marshal(a)
	if err != nil {
		return err
	}
	if err := wholefile.Replace(filepath.Join(dir, soul), []byte(a.Soul), 0o644); err != nil {
		return err
	}
	return wholefile.Replace(filepath.Join(dir, config), text, 0o644)
}
