// Package deerflow holds what DeerFlow's Gateway knows besides conversations: accounts, files, skills, memory, agents and settings, in DeerFlow's
// own folders and files, so that an installation of it can be served as it is.
//
// Package server speaks the Gateway's HTTP; threads, runs and messages are those of the server.
package deerflow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"understudy/deerflow/account"
	"understudy/deerflow/agent"
	"understudy/deerflow/extensions"
	"understudy/deerflow/files"
	"understudy/deerflow/memory"
	"understudy/deerflow/settings"
	"understudy/deerflow/skill"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/wholefile"
)

// Options say where DeerFlow's files are.
type Options struct {
	Config     string // path of config.yaml
	Extensions string // path of extensions_config.json; "": next to Config
	Home       string // DEER_FLOW_HOME; "": .deer-flow next to Config
	Lookup     func(name string) (string, bool)
	Accounts   account.Store
	Feedback   Feedbacks
	// Ask sends a prompt to a model and returns its answer.
	Ask     func(ctx context.Context, m *settings.Model, system, prompt string) (string, error)
	Convert files.Converter // nil: documents are not converted
	// Memories is where memories are, with those of the home folder moved there; nil: they stay in DeerFlow's files, because its own agent works on them.
	Memories *memory.Items
	// Forget deletes the memory of a subject in the store, and what waits to be learned for it; nil: there is none.
	Forget func(ctx context.Context, subject string) error
	Log    *slog.Logger
	Now    func() time.Time
}

// Condensing says how the conversation of a thread is condensed on request.
type Condensing struct {
	Force bool             // although it is not long enough to be condensed by itself
	Keep  *settings.Amount // what stays as it is; nil: as the settings say
	Model string           // that writes the summary; "": as the settings say
}

// Condensed says what became of a conversation.
type Condensed struct {
	Removed, Kept int           // messages
	Tokens        int           // about how many it had
	Checkpoint    id.Checkpoint // "": there was not enough to condense
}

// DeerFlow is an installation. It is safe for concurrent use.
type DeerFlow struct {
	Accounts   *account.Service
	Home       files.Home
	Extensions *extensions.File
	Skills     *skill.Library
	Memory     *memory.Book
	Agents     *agent.Folder
	Feedback   Feedbacks
	// Internal is the token by which channels act for users; Origins are those that browsers may sign in from besides the server's own.
	Internal string
	Origins  []string
	Commands []string // that MCP servers may be started with, in addition to npx and uvx

	config  *settings.File[*settings.Settings]
	sandbox *settings.Sandbox // of the start; nil before
	dir     string            // of config.yaml
	ask     func(ctx context.Context, m *settings.Model, system, prompt string) (string, error)
	convert files.Converter
	log     *slog.Logger

	memories memory.Documents // unless the settings name a file
	forget   func(ctx context.Context, subject string) error
}

// Open reads the settings, which must be right at the start, and makes the home folder.
func Open(o Options) (*DeerFlow, error) {
	d, err := Read(o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.Home.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the home folder: %w", err)
	}
	secret, _ := o.Lookup("AUTH_JWT_SECRET")
	key, err := account.Key(secret, d.Home.Dir)
	if err != nil {
		return nil, err
	}
	d.Accounts = &account.Service{Store: o.Accounts, Tokens: account.Tokens{Key: key}, Open: d.registration, Now: o.Now, Log: o.Log}
	return d, nil
}

// Read returns an installation as Open does, without accounts. It writes nothing.
func Read(o Options) (*DeerFlow, error) {
	dir := filepath.Dir(o.Config)
	home := o.Home
	if home == "" {
		home = filepath.Join(dir, ".deer-flow")
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return nil, fmt.Errorf("find the home folder: %w", err)
	}
	if o.Extensions == "" {
		o.Extensions = filepath.Join(dir, "extensions_config.json")
	}
	d := &DeerFlow{
		Home: files.Home{Dir: home}, Extensions: extensions.Open(o.Extensions), Feedback: o.Feedback, dir: dir, ask: o.Ask, convert: o.Convert, log: o.Log, forget: o.Forget,
		config: &settings.File[*settings.Settings]{Path: o.Config, Parse: func(text []byte) (*settings.Settings, error) { return settings.Parse(text, o.Lookup) }},
	}
	d.config.Changed = d.report
	first, err := d.config.Current()
	if err != nil {
		return nil, err
	}
	d.sandbox = &first.Sandbox
	env := func(name string) string { v, _ := o.Lookup(name); return v }
	if d.Internal = env("DEER_FLOW_INTERNAL_AUTH_TOKEN"); d.Internal == "" {
		var b [32]byte
		_, _ = rand.Read(b[:])
		d.Internal = hex.EncodeToString(b[:])
	}
	d.Origins, d.Commands = origins(env("GATEWAY_CORS_ORIGINS")), list(env("DEER_FLOW_MCP_STDIO_COMMAND_ALLOWLIST"))
	d.memories = Memories(d.Home)
	if o.Memories != nil {
		d.memories = &memory.Moved{Items: o.Memories, From: d.memories, Log: o.Log}
	}
	d.Memory = &memory.Book{In: d.memoriesOf, Now: o.Now}
	d.Agents = &agent.Folder{Dir: agentsDir(d.Home), Shared: filepath.Join(d.Home.Dir, "agents"), Log: o.Log}
	d.Skills = &skill.Library{
		Root: d.skillsRoot, User: func(user string) string { return filepath.Join(d.Home.UserDir(user), "skills", "custom") },
		Enabled: func(_ string, s *skill.Skill) (bool, error) { return d.Extensions.SkillEnabled(s.Name) },
		Enable:  func(_ string, s *skill.Skill, on bool) error { return d.Extensions.EnableSkill(s.Name, on) },
		Judge:   d.judge, Log: o.Log, Now: o.Now,
	}
	return d, nil
}

// origins returns the origins of a list as browsers write them. What is none is left out, as the Gateway does.
func origins(text string) []string {
	var out []string
	for _, item := range list(text) {
		u, err := url.Parse(item)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			continue
		}
		host := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
		out = append(out, u.Scheme+"://"+host)
	}
	return out
}

func list(text string) []string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// report logs what became of the settings.
func (d *DeerFlow) report(s *settings.Settings, err error) {
	if err != nil && d.sandbox == nil {
		return // the start fails with it
	} else if err != nil {
		d.log.Error("the settings cannot be read; requests that need them are answered with 503 until the file is corrected", "error", err)
		return
	}
	for _, w := range s.Warnings {
		d.log.Warn("configuration", "path", d.config.Path, "problem", w)
	}
	if s.Uploads.Convert && d.convert == nil {
		d.log.Warn("uploads.auto_convert_documents has no effect: this program cannot start another one that converts", "path", d.config.Path)
	}
	if len(s.Unused) > 0 {
		d.log.Info("keys of DeerFlow that have no effect here", "path", d.config.Path, "keys", s.Unused)
	}
	d.log.Info("settings read", "path", d.config.Path, "models", len(s.Models))
	if d.sandbox == nil {
		return
	}
	if keys, unsafe := d.sandbox.Changed(s.Sandbox); len(unsafe) > 0 {
		d.log.Warn("commands of agents are refused until the server is restarted: settings of the sandbox apply after a restart only", "changed", keys, "stricter", unsafe)
	} else if len(keys) > 0 {
		d.log.Warn("settings of the sandbox apply after a restart only", "changed", keys)
	}
}

// WarnOfMiddlewares logs which middleware in Python the settings add to DeerFlow's own agent: the one that is built from them here does not have it.
func (d *DeerFlow) WarnOfMiddlewares() {
	var names []string
	if s, err := d.LastSettings(); err == nil {
		names = settings.Classes(s.Extensions.Middlewares)
	}
	more, err := d.Extensions.Middlewares()
	if err != nil {
		d.log.Warn("middleware of extensions is not known", "error", err)
	}
	if names = append(names, more...); len(names) > 0 {
		d.log.Warn("middleware in Python does not work in this agent, which runs without it; to have it, serve DeerFlow's own agent: name its graph lead_agent in a langgraph.json next to config.yaml", "classes", names)
	}
}

// Sandbox returns the settings of the start, with which the sandbox is opened.
func (d *DeerFlow) Sandbox() settings.Sandbox { return *d.sandbox }

// RefuseCommands says why commands must not run in that sandbox, by the settings as they are now; "": they may.
func (d *DeerFlow) RefuseCommands() string {
	s, err := d.LastSettings()
	if err != nil {
		return "config.yaml cannot be read"
	}
	return d.sandbox.Refusal(s.Sandbox)
}

// Settings returns the settings as they are now; fault.Unavailable while the file cannot be read.
func (d *DeerFlow) Settings() (*settings.Settings, error) {
	s, err := d.config.Current()
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, "The configuration cannot be read; see the log of the server", err)
	}
	return s, nil
}

// LastSettings returns the settings as they could be read last, for what continues while the file is being edited.
func (d *DeerFlow) LastSettings() (*settings.Settings, error) { return d.config.Last() }

func (d *DeerFlow) registration() bool {
	s, err := d.LastSettings() // read at the start
	return err == nil && s.Registration()
}

// memoriesOf returns where memories are: all in one file, if memory.storage_path is absolute.
func (d *DeerFlow) memoriesOf(string) memory.Documents {
	if s, err := d.LastSettings(); err == nil && filepath.IsAbs(s.Memory.Path) {
		return memory.Files{Path: func(string) string { return s.Memory.Path }}
	}
	return d.memories
}

// EnabledSkills returns the skills of a user that are switched on.
func (d *DeerFlow) EnabledSkills(user string) ([]*skill.Skill, error) {
	all, err := d.Skills.List(user)
	return slices.DeleteFunc(all, func(s *skill.Skill) bool { return !s.Enabled }), err
}

// skillsRoot returns the folder of skills: also while config.yaml is being edited, because runs read it at each step.
func (d *DeerFlow) skillsRoot() (string, error) {
	s, err := d.LastSettings()
	if err != nil {
		return "", err
	}
	path := s.Skills.Path
	if path == "" {
		path = "skills"
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.dir, path)
	}
	return path, nil
}

// Converter returns what converts uploads; nil while that is switched off.
func (d *DeerFlow) Converter(s *settings.Settings) files.Converter {
	if !s.Uploads.Convert {
		return nil
	}
	return d.convert
}

// Model returns the model with a name, or the first one for "". An error is fault.Unavailable when none is configured, fault.NotFound for an unknown name.
func Model(s *settings.Settings, name string) (*settings.Model, error) {
	if len(s.Models) == 0 {
		return nil, fault.New(fault.Unavailable, "No model is configured")
	}
	if name == "" {
		return &s.Models[0], nil
	}
	m := s.Model(name)
	if m == nil {
		return nil, fault.Newf(fault.NotFound, "Model '%s' not found", name)
	}
	return m, nil
}

const maxProfile = 256 << 10 // bytes

func (d *DeerFlow) profile(user string) string { return filepath.Join(d.Home.UserDir(user), "USER.md") }

// Profile returns what a user wrote about themselves.
func (d *DeerFlow) Profile(user string) (string, error) {
	text, err := os.ReadFile(d.profile(user))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("read the profile of a user: %w", err)
	}
	return string(text), nil
}

// SetProfile replaces it.
func (d *DeerFlow) SetProfile(user, text string) error {
	if len(text) > maxProfile {
		return fault.Newf(fault.Unprocessable, "The profile has more than %d KiB", maxProfile>>10)
	}
	file := d.profile(user)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write the profile of a user: %w", err)
	}
	if err := wholefile.Replace(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the profile of a user: %w", err)
	}
	return nil
}
