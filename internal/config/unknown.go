package config

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// noSettings are variables that are read, and are no settings.
var noSettings = []string{"UNDERSTUDY_CONFIG", "UNDERSTUDY_CACHE", "UNDERSTUDY_HEALTH_URL", "UNDERSTUDY_URL", "UNDERSTUDY_API_KEY"}

// ofTests begins the names of variables that tests read.
const ofTests = "UNDERSTUDY_TEST_"

// UnknownVariable is a variable with our prefix that no setting reads.
type UnknownVariable struct {
	Name    string
	Instead string // the one that was likely meant; "" when none is near
}

// UnknownVariables finds those among names, in their order, and counts those that are read. A
// misspelt one does nothing, and says nothing.
func UnknownVariables(names []string) (unknown []UnknownVariable, known int) {
	all := slices.Clone(noSettings)
	for _, s := range Settings() {
		all = append(all, s.Env)
	}
	const ours = "UNDERSTUDY_"
	for _, name := range names {
		if !strings.HasPrefix(name, ours) && levenshtein.ComputeDistance(strings.ToUpper(name[:min(len(name), len(ours))]), ours) > 2 {
			continue
		}
		if slices.Contains(all, name) || strings.HasPrefix(name, ofTests) {
			known++
			continue
		}
		u := UnknownVariable{Name: name}
		nearest := slices.MinFunc(all, func(a, b string) int {
			return levenshtein.ComputeDistance(name, a) - levenshtein.ComputeDistance(name, b)
		})
		if levenshtein.ComputeDistance(name, nearest) <= max(3, len(nearest)/4) {
			u.Instead = nearest
		}
		unknown = append(unknown, u)
	}
	return unknown, known
}

// WarnOfVariables warns of misspelt variables of the process, given as by os.Environ, and of the
// file's env.
func (c *Config) WarnOfVariables(environ []string) (warnings []Warning) {
	warn := func(names []string, place string) {
		unknown, _ := UnknownVariables(names)
		for _, u := range unknown {
			text := "unknown variable" + place + "; "
			if u.Instead != "" {
				text += "write " + u.Instead
			} else {
				text += "--help lists the variables"
			}
			warnings = append(warnings, Warning{Key: u.Name, Text: text})
		}
	}
	names := make([]string, 0, len(environ))
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	warn(names, "")
	if c != nil {
		names = names[:0]
		for name := range c.Env {
			names = append(names, name)
		}
		slices.Sort(names)
		warn(names, " in env of the file")
	}
	return warnings
}
