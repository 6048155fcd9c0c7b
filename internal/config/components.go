package config

import (
	"os"
	"slices"
)

// Components are the React components of one graph (ui).
type Components struct {
	Graph string
	File  string // absolute path of the module that exports them
}

const componentsExample = "./components.tsx"

// components reads which file holds the React components of each graph. As LangGraph Server, the server works without those that are missing.
func (f *file) components(v value, key string) {
	members, ok := v.data.([]member)
	if !ok {
		if v.data != nil {
			f.wrong(v, key, `is %s; write an object: {"agent": %q}`, v.kind(), componentsExample)
		}
		return
	}
	for _, m := range members {
		at := join(key, m.key)
		path, ok := m.data.(string)
		if !ok || path == "" {
			f.wrong(m.value, at, "is %s; write the name of a file, such as %q", m.kind(), componentsExample)
			continue
		}
		c := Components{Graph: m.key, File: f.abs(path)}
		if _, err := os.Stat(c.File); err != nil {
			f.warn(at, "there is no file %s; the graph is served without components", c.File)
		}
		f.c.Components = append(f.c.Components, c)
		f.later = append(f.later, func() {
			if !slices.ContainsFunc(f.c.Graphs, func(g Graph) bool { return g.ID == c.Graph }) {
				f.warn(at, "there is no graph %q; clients request components by the name of their graph", c.Graph)
			}
		})
	}
}

// componentConfig reads which packages the client of the components provides.
func (f *file) componentConfig(v value, key string) {
	if v.empty() {
		return
	}
	f.section(v, key, map[string]func(value, string){"shared": f.setTexts(&f.c.SharedPackages, "@acme/design-system")})
}
