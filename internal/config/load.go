package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Source is where a configuration comes from.
type Source struct {
	Mode Mode
	// File is the langgraph.json, relative to the current folder. Empty: none, and no graph is needed.
	File string
	// DataOnly: graphs are not executed, so that no interpreter is looked for.
	DataOnly bool
	// Flags that were given, by name without dashes.
	Flags map[string]string
	// Lookup finds environment variables. Nil: os.LookupEnv.
	Lookup func(name string) (string, bool)
}

// Load reads a configuration and validates it. An error is Mistakes, with all of them; the Config
// has nothing but Files then, of what could be read. Warnings are given in either case.
func Load(src Source) (*Config, []Warning, error) {
	if src.Lookup == nil {
		src.Lookup = os.LookupEnv
	}
	c := Default(src.Mode)
	c.dataOnly = src.DataOnly
	var warnings []Warning
	var mistakes Mistakes
	if src.File != "" {
		path, err := filepath.Abs(src.File)
		if err != nil {
			return &Config{}, nil, Mistakes{{Text: err.Error()}}
		}
		warnings, mistakes = readFile(path, c, src.Lookup)
	} else {
		c.Dir, _ = os.Getwd()
	}
	if origins, place := src.lookup(c, "CORS_ALLOW_ORIGINS"); place != "" && len(c.HTTP.CORS.AllowOrigins) == 1 && c.HTTP.CORS.AllowOrigins[0] == "*" {
		c.HTTP.CORS.AllowOrigins = split(origins)
		c.HTTP.CORS.AllowCredentials = strings.TrimSpace(origins) != "*"
	}
	mistakes = append(mistakes, src.settings(c)...)
	warned, wrong := src.deerFlow(c)
	warnings, mistakes = append(warnings, warned...), append(mistakes, wrong...)
	mistakes = append(mistakes, src.graphConfigs(c)...)
	warnings = append(warnings, src.unknownGraphs(c)...)
	if data, given := src.Flags["data"]; given && c.Storage.DatabaseURL != "" && c.Mode != Proxy {
		// Not of a variable: that one may be the image's.
		warnings = append(warnings, Warning{Key: c.Where("data"), Text: data + " is not used: all data is in the database of " + c.Where("database-url")})
	}
	if (c.Limits.RunsPerMinute > 0 || c.Limits.ConcurrentRuns > 0) && !c.Authenticates() {
		warnings = append(warnings, Warning{Key: "limits", Text: "without an effect: there are no identities without auth"})
	}
	if err := c.absolute(); err != nil {
		mistakes = append(mistakes, Mistake{Text: c.Where("data") + ": " + err.Error()})
	}
	for _, m := range c.validate() {
		if !mistakes.name(m.subject()) { // what could not be read has its default, or is missing
			mistakes = append(mistakes, m)
		}
	}
	mistakes = append(mistakes, src.encryption(c)...)
	if len(mistakes) == 0 && (!src.DataOnly && (slices.ContainsFunc(c.Graphs, Graph.IsPython) || c.needsGate()) || c.Encrypts()) {
		asked := c.Workers.Python
		c.FindPython = func() (string, error) { return FindPython(asked, c.Dir, src.Lookup) }
		python, err := c.FindPython()
		switch {
		case err == nil:
			c.Workers.Python = python
		case !c.needsGate() && slices.ContainsFunc(c.Graphs, func(g Graph) bool { return !g.IsPython() }):
			warnings = append(warnings, c.withoutPython(err)...)
		default:
			mistakes = append(mistakes, Mistake{Text: c.Where("python") + ": " + err.Error()})
		}
	}
	if len(mistakes) > 0 {
		return &Config{Files: c.Files, Logging: c.Logging}, warnings, mistakes
	}
	return c, warnings, nil
}

// lookup asks the environment, then the env section of the file. place says where the value
// stands; "" nowhere.
func (src Source) lookup(c *Config, name string) (text, place string) {
	if s, ok := src.Lookup(name); ok && s != "" {
		return s, name
	}
	if s := c.Env[name]; s != "" {
		if at := c.envFiles[name]; at != "" {
			return s, name + " in " + at
		}
		return s, name + " in env of " + filepath.Base(c.File)
	}
	return "", ""
}

// settings applies flags, or else variables: ours before LangGraph Server's.
func (src Source) settings(c *Config) Mistakes {
	var out Mistakes
	c.places = map[string]string{}
	for _, s := range Settings() {
		if !s.Of(src.Mode) {
			continue
		}
		set := s.set
		text, place := src.Flags[s.Flag], "--"+s.Flag
		if _, given := src.Flags[s.Flag]; !given {
			text, place = src.lookup(c, s.Env)
			for _, name := range s.AlsoIn(src.Mode) {
				if place != "" {
					break
				}
				if text, place = src.lookup(c, name); place != "" && s.also != nil {
					set = s.also
				}
			}
		}
		if place == "" {
			continue
		}
		c.places[s.Flag] = place
		if m := s.apply(c, place, text, set); m != nil {
			out = append(out, *m)
		}
	}
	return out
}

// graphConfigs holds the configurations of default assistants.
const graphConfigs = "LANGGRAPH_CONFIG"

// graphConfigs reads LANGGRAPH_CONFIG. Graphs that it names may be registered later, or not be
// there: LangGraph Server passes them over.
func (src Source) graphConfigs(c *Config) Mistakes {
	text, place := src.lookup(c, graphConfigs)
	if place == "" || !slices.Contains([]Mode{Dev, Serve, Worker}, src.Mode) {
		return nil
	}
	var configs map[string]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &configs); err != nil {
		return Mistakes{{Text: place + `: write a JSON object of configurations by graph, such as {"agent": {"recursion_limit": 50}}: ` + err.Error()}}
	}
	c.GraphConfigs = map[string]json.RawMessage{}
	var raw map[string]json.RawMessage
	_ = json.Unmarshal([]byte(text), &raw) // as above
	for graph, config := range raw {
		if configs[graph] == nil {
			return Mistakes{{Text: place + ": the configuration of " + strconv.Quote(graph) + " is not an object"}}
		}
		c.GraphConfigs[graph] = config
	}
	return nil
}

// UnknownGraph warns of a graph that key names and the file does not. Programs may add graphs of
// their own: a file without graphs knows none.
func (c *Config) UnknownGraph(key, name string) (warnings []Warning) {
	if c.File == "" || len(c.Graphs) == 0 {
		return nil
	}
	graphs := make([]string, len(c.Graphs))
	for i, g := range c.Graphs {
		if graphs[i] = g.ID; g.ID == name {
			return nil
		}
	}
	return []Warning{{Key: key, Text: fmt.Sprintf("names %q, which is not a graph of %s; it has %s", name, filepath.Base(c.File), strings.Join(graphs, ", "))}}
}

// unknownGraphs warns of graphs with a limit or a configuration that the file does not name.
func (src Source) unknownGraphs(c *Config) (warnings []Warning) {
	for _, name := range slices.Sorted(maps.Keys(c.Workers.GraphConcurrency)) {
		warnings = append(warnings, c.UnknownGraph(c.Where("graph-concurrency"), name)...)
	}
	_, place := src.lookup(c, graphConfigs)
	for _, name := range slices.Sorted(maps.Keys(c.GraphConfigs)) {
		warnings = append(warnings, c.UnknownGraph(place, name)...)
	}
	return warnings
}

func split(s string) []string {
	var out []string
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// withoutPython leaves out the graphs that need Python, where there is none: the others are served.
func (c *Config) withoutPython(err error) (warnings []Warning) {
	c.Graphs = slices.DeleteFunc(c.Graphs, func(g Graph) bool {
		if g.IsPython() {
			warnings = append(warnings, Warning{Key: "graphs." + g.ID, Text: "not served, it needs Python; " + c.Where("python") + ": " + err.Error()})
		}
		return g.IsPython()
	})
	return warnings
}
