package extensions

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Server is an MCP server that is switched on, with variables filled in. It has secrets.
type Server struct {
	Name    string
	Type    string // stdio, http or sse
	Command string
	Args    []string
	Env     map[string]string
	URL     string
	Headers map[string]string
	OAuth   *OAuth // nil: none
}

// Enabled returns the MCP servers that are switched on, in the order of the file. lookup returns variables of the environment, which values of the form $NAME name.
// A server whose configuration cannot be read is in bad, by its name.
func (f *File) Enabled(lookup func(name string) (string, bool)) (list []Server, bad map[string]error, err error) {
	o, err := f.read()
	if err != nil {
		return nil, nil, err
	}
	servers, err := object(o, serversKey)
	if err != nil {
		return nil, nil, err
	}
	fill := func(v string) string {
		if name, ok := strings.CutPrefix(v, "$"); ok && name != "" && !strings.ContainsAny(name, " \t${}/") {
			v, _ = lookup(name)
		}
		return v
	}
	all := func(m map[string]string) map[string]string {
		out := make(map[string]string, len(m))
		for k, v := range m {
			out[k] = fill(v)
		}
		return out
	}
	bad = map[string]error{}
	servers.Each(func(name string, value json.RawMessage) {
		var s server
		if err := json.Unmarshal(value, &s); err != nil {
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) { // without types of this program
				err = fmt.Errorf("%s must not be of type %s", cmp.Or(wrong.Field, "the server"), wrong.Value)
			}
			bad[name] = err
			return
		}
		if s.Enabled != nil && !*s.Enabled {
			return
		}
		out := Server{Name: name, Type: cmp.Or(s.Type, s.Transport), Env: all(s.Env), Headers: all(s.Headers)}
		if s.Command != nil {
			out.Command = fill(*s.Command)
		}
		if s.URL != nil {
			out.URL = fill(*s.URL)
		}
		for _, arg := range s.Args {
			out.Args = append(out.Args, fill(arg))
		}
		switch out.Type {
		case "":
			out.Type = "stdio"
		case "streamable_http", "streamable-http":
			out.Type = "http"
		}
		switch {
		case out.Type == "stdio" && out.Command == "":
			bad[name] = fmt.Errorf("it has no command")
			return
		case out.Type != "stdio" && out.URL == "":
			bad[name] = fmt.Errorf("it has no url")
			return
		}
		if out.OAuth, bad[name] = readOAuth(s.OAuth, fill); bad[name] != nil {
			return
		}
		delete(bad, name)
		list = append(list, out)
	})
	return list, bad, nil
}
