package settings

import "time"

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

	// Of containers, read at the start.
	Image       string  `yaml:"image"`
	IdleTimeout float64 `yaml:"idle_timeout"` // seconds
	Replicas    int     `yaml:"replicas"`     // that are kept while idle
	Network     string  `yaml:"network"`
	Memory      string  `yaml:"memory"`
	CPUs        string  `yaml:"cpus"`

	// Ours, read at the start.
	Confine  string   `yaml:"confine"`        // "", off or required
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
