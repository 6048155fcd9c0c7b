package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"understudy/graph/agent/provider"
)

// AgentSandbox gives an agent a folder for each thread, with tools for its files.
type AgentSandbox struct {
	Folder   string        // absolute; "": in the data folder
	Tools    []string      // of SandboxTools; nil: all
	Bash     bool          // commands may run on this machine
	Confine  string        // "", off or required: whether Landlock confines them
	Readable []string      // further files and folders that they may read
	Timeout  time.Duration // of a command; 0: 10 minutes
}

// AgentMemory lets an agent learn from conversations what to remember of its users. Zero values are defaults.
type AgentMemory struct {
	Folder     string        // absolute; "": in the data folder
	Wait       time.Duration // of rest, before the model reads what was said
	MaxFacts   int
	Confidence float64 // that a fact needs, 0 to 1
	MaxTokens  int     // of what a request has of the memory
}

// AgentSubagents are agents that work for an agent. Zero values are defaults.
type AgentSubagents struct {
	Types []AgentSubagent // in addition to the built-in ones
	Total int             // in a run
}

// AgentSubagent is a type of subagent. Zero values are defaults.
type AgentSubagent struct {
	Name, Description, Prompt string
	Model                     *provider.Spec // nil: the agent's
	Tools                     []string       // of the agent; nil: all
	Turns                     int
	Timeout                   time.Duration
}

// SandboxTools are the tools that the sandbox has besides bash.
var SandboxTools = []string{"ls", "glob", "grep", "read_file", "write_file", "str_replace", "present_files"}

// setFolder reads the path of a folder that is made when it is missing.
func (f *file) setFolder(to *string) func(value, string) {
	return func(v value, key string) {
		text := f.filled(v, key, "data")
		if text == "" {
			return
		}
		*to = f.abs(text)
		if problem := noFolder(*to); problem != "" {
			f.wrong(v, key, "%s; name a folder in which this server may write", problem)
		}
	}
}

// noFolder says why a path is no folder, or cannot be made one; "" when it can.
func noFolder(path string) string {
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			return at + " is a file"
		case err == nil && !writable(at):
			return fmt.Sprintf("%s cannot be written by user %d", at, os.Geteuid())
		case errors.Is(err, fs.ErrPermission):
			return fmt.Sprintf("%s cannot be reached by user %d", at, os.Geteuid())
		case err == nil || at == filepath.Dir(at):
			return ""
		}
	}
}

func (f *file) sandbox(v value, key string) *AgentSandbox {
	s := &AgentSandbox{}
	f.switched(v, key, map[string]func(value, string){
		"folder":   f.setFolder(&s.Folder),
		"tools":    f.setTexts(&s.Tools, "read_file"),
		"bash":     f.setBool(&s.Bash),
		"readable": f.setTexts(&s.Readable, "/opt/tools"),
		"timeout":  f.setDuration(&s.Timeout, 24*time.Hour),
		"confine": func(v value, key string) {
			if s.Confine = f.text(v, key, "required"); !slices.Contains([]string{"", "auto", "off", "required"}, s.Confine) {
				f.wrong(v, key, `%q; write "auto", "off" or "required"`, s.Confine)
			}
		},
	})
	for _, name := range s.Tools {
		if name == "bash" {
			f.wrong(v, join(key, "tools"), `"bash" runs commands on this machine; write "bash": true next to tools`)
		} else if !slices.Contains(SandboxTools, name) {
			f.wrong(v, join(key, "tools"), "%q is no tool of the sandbox; choose from %s", name, list(SandboxTools))
		}
	}
	for i, path := range s.Readable {
		s.Readable[i] = f.abs(path)
		if _, err := os.Stat(s.Readable[i]); err != nil {
			f.warn(fmt.Sprintf("%s.readable[%d]", key, i), "commands cannot read it: %v", err)
		}
	}
	members, _ := v.data.([]member)
	for _, m := range members {
		if !s.Bash && m.data != nil && slices.Contains([]string{"confine", "readable", "timeout"}, m.key) {
			f.warn(join(key, m.key), `without an effect: it is for commands, which need "bash": true`)
		}
	}
	return s
}

// skills reads {"path": folder}, a folder that must exist.
func (f *file) skills(v value, key string) string {
	dir, before := f.abs("skills"), len(f.mistakes)
	f.switched(v, key, map[string]func(value, string){"path": func(v value, key string) {
		if text := f.filled(v, key, "skills"); text != "" {
			dir = f.abs(text)
		}
	}})
	if len(f.mistakes) > before {
		return dir
	}
	if info, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		f.wrong(v, join(key, "path"), "there is no folder %s; create it: each skill is a folder in it, with a file SKILL.md", dir)
	} else if err != nil {
		f.wrong(v, join(key, "path"), "%v; name a folder that this server may read", err)
	} else if !info.IsDir() {
		f.wrong(v, join(key, "path"), "%s is a file; name the folder in which each skill has a folder with a file SKILL.md", dir)
	}
	return dir
}

func (f *file) memory(mw *AgentMiddleware, v value, key string) {
	mw.Memory = &AgentMemory{}
	f.switched(v, key, map[string]func(value, string){
		"model":      func(v value, key string) { mw.Model = f.otherModel(v, key) },
		"folder":     f.setFolder(&mw.Memory.Folder),
		"wait":       f.setDuration(&mw.Memory.Wait, 24*time.Hour),
		"max_facts":  f.setInt(&mw.Memory.MaxFacts, 1, 10_000),
		"confidence": func(v value, key string) { mw.Memory.Confidence = f.number(v, key, 0, 1) },
		"max_tokens": f.setInt(&mw.Memory.MaxTokens, 1, 1_000_000),
	})
}

// subagentName is what names of subagents may be: models write them.
var subagentName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// builtInSubagents are the types that are always there.
var builtInSubagents = []string{"general-purpose", "bash"}

func (f *file) subagents(v value, key string) *AgentSubagents {
	s := &AgentSubagents{}
	f.switched(v, key, map[string]func(value, string){
		"total": f.setInt(&s.Total, 1, 50),
		"types": func(v value, key string) {
			members, ok := v.data.([]member)
			if !ok {
				f.wrong(v, key, `is %s; write an object: {"reviewer": {"description": "reviews texts", "prompt": "You review texts."}}`, v.kind())
				return
			}
			for _, m := range members {
				s.Types = append(s.Types, f.subagent(m, join(key, m.key)))
			}
		},
	})
	return s
}

func (f *file) subagent(m member, key string) AgentSubagent {
	t := AgentSubagent{Name: m.key}
	if !subagentName.MatchString(m.key) {
		f.wrong(m.value, key, "%q is not the name of a subagent; use lower-case letters, digits, - and _", m.key)
	} else if slices.Contains(builtInSubagents, m.key) {
		f.wrong(m.value, key, "there is a built-in subagent of this name; choose another one")
	}
	f.section(m.value, key, map[string]func(value, string){
		"description": f.setText(&t.Description, "reviews texts"),
		"prompt":      func(v value, key string) { t.Prompt = f.textOrFile(v, key) },
		"model":       func(v value, key string) { t.Model = f.otherModel(v, key) },
		"tools":       f.setTexts(&t.Tools, "read_file"),
		"max_turns":   f.setInt(&t.Turns, 1, 10_000),
		"timeout":     f.setDuration(&t.Timeout, 24*time.Hour),
	})
	if _, isObject := m.data.([]member); isObject {
		if t.Description == "" {
			f.missing(m.value, join(key, "description"), `write for the model what it is for, such as "reviews texts"`)
		}
		if t.Prompt == "" {
			f.missing(m.value, join(key, "prompt"), `write its instructions, such as "You review texts."`)
		}
	}
	return t
}

// needSandbox reports middleware that works in the folders of the sandbox, where there is none.
func (f *file) needSandbox(a *Agent, members []member, key string) {
	if slices.ContainsFunc(a.Middleware, func(m AgentMiddleware) bool { return m.Sandbox != nil }) {
		return
	}
	for _, m := range members {
		if slices.Contains([]string{"uploads", "view_image", "read_before_write"}, m.key) && m.data != nil && m.data != false {
			f.wrong(m.value, join(key, m.key), `works in the folders of a sandbox, and there is none; add "sandbox": true`)
		}
	}
}

// needImages warns of middleware that shows images to a model that does not get them.
func (f *file) needImages(a *Agent, members []member, key string) {
	name := a.Model.Name
	if a.Model.Images || !strings.HasPrefix(name, "deepseek:") { // of others only old models read none
		return
	}
	for _, m := range members {
		if m.key == "view_image" && m.data != nil && m.data != false {
			f.warn(join(key, m.key), `the model does not get images; if it reads them, write "model": {"name": %q, "images": true}`, name)
		}
	}
}
