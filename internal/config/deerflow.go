package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"understudy/deerflow/settings"
	"understudy/internal/shell"
)

// deerFlow finds the config.yaml of DeerFlow, and reads the .env that belongs to it.
func (src Source) deerFlow(c *Config) ([]Warning, Mistakes) {
	c.Lookup = func(name string) (string, bool) {
		text, place := src.lookup(c, name)
		return text, place != ""
	}
	if c.Server.DeerFlow == "" || c.Server.DeerFlow == "false" {
		c.Server.DeerFlow = ""
		return nil, nil
	}
	given := c.Server.DeerFlow
	if given == auto || given == "true" {
		given = ""
	}
	path := settings.Find(given, c.Lookup)
	if path == "" {
		return nil, Mistakes{{Text: c.Where("deerflow") + ": there is no config.yaml in this folder or in backend/; name it: --deerflow=/path/to/config.yaml"}}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, Mistakes{{Text: c.Where("deerflow") + ": " + err.Error()}}
	}
	info, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Mistakes{{Text: fmt.Sprintf("%s: there is no %s; name DeerFlow's config.yaml, which `understudy init --template deerflow` makes: --deerflow=/path/to/config.yaml", c.Where("deerflow"), abs)}}
	}
	if err != nil {
		return nil, Mistakes{{Text: fmt.Sprintf("%s: %v; name DeerFlow's config.yaml so that this user can read it: --deerflow=/path/to/config.yaml", c.Where("deerflow"), err)}}
	}
	if info.IsDir() {
		return nil, Mistakes{{Text: fmt.Sprintf("%s: %s is a folder; name the file: --deerflow=%s", c.Where("deerflow"), abs, filepath.Join(abs, "config.yaml"))}}
	}
	if !info.Mode().IsRegular() {
		return nil, Mistakes{{Text: fmt.Sprintf("%s: %s is no file; name DeerFlow's config.yaml", c.Where("deerflow"), abs)}}
	}
	c.Server.DeerFlow = abs
	return src.deerFlowEnv(c)
}

// deerFlowEnv adds the variables of the .env next to config.yaml, or above the folder backend in which it is. As in DeerFlow those of the environment
// count more, and those of langgraph.json too.
func (src Source) deerFlowEnv(c *Config) ([]Warning, Mistakes) {
	dir := filepath.Dir(c.Server.DeerFlow)
	folders := []string{dir}
	if filepath.Base(dir) == "backend" {
		folders = append(folders, filepath.Dir(dir))
	}
	for _, folder := range folders {
		path := filepath.Join(folder, ".env")
		text, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission):
			return []Warning{{Key: path, Text: fmt.Sprintf("cannot be read by user %d and is left out; let this user read it (chmod a+r %s), or pass its variables by the environment", os.Geteuid(), shell.Quote(path))}}, nil
		case err != nil:
			return nil, Mistakes{{Text: err.Error()}}
		}
		vars, mistakes := readEnv(text)
		var warnings []Warning
		for _, m := range mistakes { // DeerFlow passes over such lines
			m.File = path
			warnings = append(warnings, Warning{Key: c.Where("deerflow"), Text: m.String() + "; the line is left out"})
		}
		for name, value := range vars {
			if _, place := src.lookup(c, name); place != "" {
				continue
			}
			if c.Env == nil {
				c.Env = map[string]string{}
			}
			if c.envFiles == nil {
				c.envFiles = map[string]string{}
			}
			c.Env[name], c.envFiles[name] = value, path
		}
		return warnings, nil
	}
	return nil, nil
}

// DeerFlowIsOpen reports whether everyone is the administrator of DeerFlow's Gateway API, as DEER_FLOW_AUTH_DISABLED says; ignored: it says so, but this is
// production.
func (c *Config) DeerFlowIsOpen() (open, ignored bool) {
	if c.Server.DeerFlow == "" {
		return false, false
	}
	value := func(name string) string { v, _ := c.Lookup(name); return strings.ToLower(v) }
	if v := value("DEER_FLOW_AUTH_DISABLED"); v != "1" && v != "true" {
		return false, false
	}
	production := strings.HasPrefix(value("DEER_FLOW_ENV"), "prod") || strings.HasPrefix(value("ENVIRONMENT"), "prod")
	return !production, production
}
