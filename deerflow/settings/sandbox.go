package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Sandbox is where tools work, and their limits.
type Sandbox struct {
	Use           string            `yaml:"use"`
	AllowHostBash bool              `yaml:"allow_host_bash"`
	Mounts        []Mount           `yaml:"mounts"`
	Environment   map[string]string `yaml:"environment"`
	BashChars     int               `yaml:"bash_output_max_chars"`
	ReadChars     int               `yaml:"read_file_output_max_chars"`
	ListChars     int               `yaml:"ls_output_max_chars"`
	BashTimeout   float64           `yaml:"bash_command_timeout"` // seconds

	// Of containers, read at the start: see Changed.
	Image       string  `yaml:"image"`
	IdleTimeout float64 `yaml:"idle_timeout"` // seconds
	Replicas    int     `yaml:"replicas"`     // that are kept while idle
	Network     string  `yaml:"network"`
	Memory      string  `yaml:"memory"`
	CPUs        string  `yaml:"cpus"`

	// Ours, read at the start: see Changed.
	Confine  string   `yaml:"confine"`        // "", auto, off or required
	Readable []string `yaml:"readable_paths"` // that confined commands may read, in addition to the system's
}

// Mount is a folder of this machine that agents see.
type Mount struct {
	Host      string `yaml:"host_path"`
	Container string `yaml:"container_path"`
	ReadOnly  bool   `yaml:"read_only"`
}

// Timeout is how long a command may take; 0: the default.
func (s Sandbox) Timeout() time.Duration {
	return time.Duration(s.BashTimeout * float64(time.Second))
}

// Place is where commands run.
type Place int

const (
	Unknown Place = iota // commands are refused
	Here                 // on this machine
	Containers
)

// Place returns where commands run, by the class that use names.
func (s Sandbox) Place() Place {
	switch use := strings.ToLower(s.Use); {
	case use == "" || strings.Contains(use, "local"):
		return Here
	case strings.Contains(use, "aio") || strings.Contains(use, "docker") || strings.Contains(use, "podman"):
		return Containers
	}
	return Unknown
}

// strictness orders the values of Confine.
var strictness = map[string]int{"off": 0, "": 1, "auto": 1, "required": 2}

func (s Sandbox) check() error {
	if _, known := strictness[s.Confine]; !known {
		return fmt.Errorf("sandbox.confine is %q; write auto, off or required", s.Confine)
	}
	return nil
}

// Changed compares the settings of a sandbox that was opened with s with those of now. keys are those that apply after a restart only, and unsafe those of them
// without which commands could do more than the settings of now allow.
func (s Sandbox) Changed(now Sandbox) (keys, unsafe []string) {
	compare := func(key string, changed, looser bool) {
		if changed {
			keys = append(keys, "sandbox."+key)
		}
		if changed && looser {
			unsafe = append(unsafe, "sandbox."+key)
		}
	}
	compare("use", s.Place() != now.Place(), now.Place() != Here)
	if s.Place() != now.Place() {
		return keys, unsafe
	}
	switch s.Place() {
	case Here:
		before, after := strictness[s.Confine], strictness[now.Confine]
		compare("confine", before != after, after > before)
		compare("readable_paths", !slices.Equal(s.Readable, now.Readable), slices.ContainsFunc(s.Readable, func(path string) bool { return !slices.Contains(now.Readable, path) }))
	case Containers:
		compare("network", s.Network != now.Network, s.Network != "" && s.Network != "none")
		compare("image", s.Image != now.Image, false)
		compare("memory", s.Memory != now.Memory, false)
		compare("cpus", s.CPUs != now.CPUs, false)
		compare("idle_timeout", s.IdleTimeout != now.IdleTimeout, false)
		compare("replicas", s.Replicas != now.Replicas, false)
	}
	return keys, unsafe
}

// Refusal says why commands must not run in a sandbox that was opened with s, by the settings of now; "": they may.
func (s Sandbox) Refusal(now Sandbox) string {
	if s.Place() == Unknown {
		return "sandbox.use of config.yaml, " + s.Use + ", is not known here; use the local sandbox or the one with containers, and restart the server"
	}
	if _, unsafe := s.Changed(now); len(unsafe) > 0 {
		return strings.Join(unsafe, " and ") + " of config.yaml changed after the server started; restart the server to apply it"
	}
	return ""
}
