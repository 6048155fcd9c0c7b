// Package extensions reads and writes DeerFlow's extensions_config.json: MCP servers, and which skills are switched off.
//
// The file belongs to people and to DeerFlow as well, so keys that are not known here stay as they are, in their order.
package extensions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"understudy/deerflow/settings"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/wholefile"
)

// Keys of the file.
const (
	serversKey = "mcpServers"
	skillsKey  = "skills"
)

// File is the configuration file. It is safe for concurrent use.
type File struct {
	path string
	file settings.File[*jsonobj.Object]
	mu   sync.Mutex // one change at a time
}

// Open returns the file at a path, which need not exist yet.
func Open(path string) *File {
	return &File{path: path, file: settings.File[*jsonobj.Object]{Path: path, Parse: parse}}
}

func parse(text []byte) (*jsonobj.Object, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return &jsonobj.Object{}, nil
	}
	if !json.Valid(text) {
		var v any
		return nil, json.Unmarshal(text, &v)
	}
	return jsonobj.Parse(text)
}

func (f *File) read() (*jsonobj.Object, error) {
	o, err := f.file.Current()
	if errors.Is(err, fs.ErrNotExist) {
		return &jsonobj.Object{}, nil
	}
	return o, broken(err)
}

// broken returns an error of the file as clients get it; the log of the server has the reason, which may show what is in the file.
func broken(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(fault.Unavailable, "The configuration of MCP servers and skills cannot be read; see the log of the server", err)
}

// object returns the object under a key; an empty one when there is none.
func object(o *jsonobj.Object, key string) (*jsonobj.Object, error) {
	raw := o.Get(key)
	if raw == nil || string(raw) == "null" {
		return &jsonobj.Object{}, nil
	}
	sub, err := jsonobj.Parse(raw)
	if err != nil {
		return nil, broken(fmt.Errorf("%s must be an object: %w", key, err))
	}
	return sub, nil
}

// change applies a change to the object under a key and writes the file.
func (f *File) change(key string, fn func(*jsonobj.Object) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, err := f.read()
	if err != nil {
		return err
	}
	o := jsonobj.Of(seen.JSON()) // a copy: readers have the other one
	sub, err := object(o, key)
	if err != nil {
		return err
	}
	if err := fn(sub); err != nil {
		return err
	}
	o.Set(key, sub.JSON())
	var text bytes.Buffer
	if err := json.Indent(&text, o.JSON(), "", "  "); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	text.WriteByte('\n')
	if err := replace(f.path, text.Bytes()); err != nil {
		return fault.Wrap(fault.Unavailable, "The configuration of MCP servers and skills cannot be written; see the log of the server", err)
	}
	return nil
}

// SkillEnabled reports whether a skill is switched on; skills are, unless the file says otherwise. While it cannot be read, what it said last counts: runs ask at
// each step.
func (f *File) SkillEnabled(name string) (bool, error) {
	o, err := f.read()
	if err != nil { // a file that is not there is an empty one
		o, err = f.file.Last()
	}
	if err != nil {
		return false, broken(err)
	}
	skills, err := object(o, skillsKey)
	if err != nil {
		return false, err
	}
	var s struct {
		Enabled *bool `json:"enabled"`
	}
	if raw := skills.Get(name); raw != nil {
		if err := json.Unmarshal(raw, &s); err != nil {
			return false, broken(fmt.Errorf("skills.%s: %w", name, err))
		}
	}
	return s.Enabled == nil || *s.Enabled, nil
}

// EnableSkill switches a skill.
func (f *File) EnableSkill(name string, on bool) error {
	return f.change(skillsKey, func(skills *jsonobj.Object) error {
		s := jsonobj.Of(skills.Get(name))
		s.Set("enabled", json.RawMessage(fmt.Sprint(on)))
		skills.Set(name, s.JSON())
		return nil
	})
}

// replace replaces a file. It keeps the mode of a file that is there: it may hold secrets.
func replace(path string, content []byte) error {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	return wholefile.Replace(path, content, mode)
}
