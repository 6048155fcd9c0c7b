package config

import (
	"regexp"
	"strings"

	"understudy/internal/serverurl"
)

// Remote is where a graph of another server is.
type Remote struct {
	URL     string // http or https; may hold user and password
	GraphID string // of the graph there
	Headers map[string]string
}

// remote reads {"url", "graph_id"?, "headers"?, "description"?}.
func (f *file) remote(g *Graph, v value, key string) bool {
	before := len(f.mistakes)
	g.Remote = &Remote{GraphID: g.ID}
	f.section(v, key, map[string]func(value, string){
		"url":         func(v value, key string) { g.Remote.URL = f.serverURL(v, key) },
		"graph_id":    f.setText(&g.Remote.GraphID, "agent"),
		"headers":     func(v value, key string) { f.later = append(f.later, func() { f.remoteHeaders(g.Remote, v, key) }) },
		"description": f.setText(&g.Description, "What the graph is for."),
		"concurrency": f.concurrency(g.ID),
	})
	if g.Remote.GraphID == "" {
		f.wrong(v, join(key, "graph_id"), `is empty; write the graph's id on its server, such as "agent"`)
	}
	return len(f.mistakes) == before
}

const serverExample = "https://graphs.example.com"

func (f *file) serverURL(v value, key string) string {
	text := f.text(v, key, serverExample)
	if _, isText := v.data.(string); !isText {
		return ""
	}
	u, err := serverurl.ParseBase(text)
	if err != nil {
		f.wrong(v, key, "%v", err)
		return ""
	}
	return u.String()
}

// variable is ${NAME}.
var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// fill puts variables into a text; not all of them are set when it says false, which has been
// noted then.
func (f *file) fill(text string, v value, key string) (filled string, allSet bool) {
	allSet = true
	filled = variable.ReplaceAllStringFunc(text, func(s string) string {
		s, ok := f.variableValue(variable.FindStringSubmatch(s)[1], v, key)
		allSet = allSet && ok
		return s
	})
	return filled, allSet
}

// variableValue is a variable of the env section, or else of the environment. One that is not set
// is noted as a mistake.
func (f *file) variableValue(name string, v value, key string) (string, bool) {
	if s, ok := f.c.Env[name]; ok {
		return s, true
	}
	s, ok := f.lookup(name)
	if !ok {
		text := "variable " + name + " is not set; set it in the environment of the server, or in the env section or file of langgraph.json"
		if missing := f.c.MissingEnv; missing != "" {
			text += ", and there is no file " + missing + ", which env names"
		}
		f.wrong(v, key, "%s", text)
	}
	return s, ok
}

// remoteHeaders fills in variables. It runs when env is known, wherever in the file that stands.
func (f *file) remoteHeaders(r *Remote, v value, key string) {
	members, ok := v.data.([]member)
	if !ok {
		f.wrong(v, key, `is %s; write an object: {"x-api-key": "${API_KEY}"}`, v.kind())
		return
	}
	r.Headers = make(map[string]string, len(members))
	for _, m := range members {
		at := join(key, m.key)
		text, isText := m.data.(string)
		if !isText || !headerName.MatchString(m.key) {
			f.wrong(m.value, at, "a header is a name and one line of text")
			continue
		}
		text, allSet := f.fill(text, m.value, at)
		if strings.ContainsAny(text, "\r\n\x00") {
			f.wrong(m.value, at, "a header is a name and one line of text")
		} else if allSet {
			r.Headers[m.key] = text
		}
	}
}
