package understudy

import "understudy/internal/config"

// LoadSettings reads settings as the command line does: from a langgraph.json, whose graphs are served beside those that the program
// registers ("": none), from the environment, and from flags by their names without dashes, such as "port": "8123" or "data": "/var/lib/me".
// The defaults are those of `understudy serve`. warnings say what in the file is likely not as it was meant; the error tells all mistakes.
func LoadSettings(file string, flags map[string]string) (settings *Settings, warnings []string, err error) {
	settings, said, err := config.Load(config.Source{Mode: config.Serve, File: file, Flags: flags})
	for _, w := range said {
		warnings = append(warnings, w.String())
	}
	return settings, warnings, err
}
