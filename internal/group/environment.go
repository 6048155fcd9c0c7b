package group

import (
	"maps"
	"os"
	"slices"
)

// Environment returns the variables of this process that any program needs, those too that are named, and more, which win; in the order of their names.
func Environment(more map[string]string, named ...string) []string {
	env := map[string]string{}
	for _, name := range append([]string{"HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "TMPDIR", "TZ"}, named...) {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	maps.Copy(env, more)
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}
