package extensions

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// masked stands in place of a secret, in what clients get and send.
const masked = "***"

// Server is one MCP server, as clients see it; fields that are not known here are in the object.
type server struct {
	Enabled     *bool             `json:"enabled"`
	Type        string            `json:"type"`
	Transport   string            `json:"transport"` // the same under the name that MCP's own configuration has for it
	Command     *string           `json:"command"`
	Args        []string          `json:"args"`
	Env         map[string]string `json:"env"`
	URL         *string           `json:"url"`
	Headers     map[string]string `json:"headers"`
	OAuth       json.RawMessage   `json:"oauth"`
	Description string            `json:"description"`
}

// fields are the keys that every server has in the answer, with their defaults, in order.
var fields = []struct{ key, value string }{
	{"enabled", "true"},
	{"type", `"stdio"`},
	{"command", "null"},
	{"args", "[]"},
	{"env", "{}"},
	{"url", "null"},
	{"headers", "{}"},
	{"oauth", "null"},
	{"description", `""`},
}

// secretKey matches names of settings whose values are hidden.
var secretKey = regexp.MustCompile(`(?i)(secret|token|password|passwd|api_?key|apikey|credential|private_?key|authorization)`)

// notSecret are names that match secretKey, but say where something is, not what it is.
var notSecret = []string{"token_url", "token_field", "token_type_field", "default_token_type", "extra_token_params"}

// Servers returns the MCP servers as {name: server}, without their secrets.
func (f *File) Servers() (json.RawMessage, error) {
	o, err := f.read()
	if err != nil {
		return nil, err
	}
	servers, err := object(o, serversKey)
	if err != nil {
		return nil, err
	}
	shown := &jsonobj.Object{}
	servers.Each(func(name string, value json.RawMessage) { shown.Set(name, show(jsonobj.Of(value))) })
	return shown.JSON(), nil
}

// show returns a server as clients see it.
func show(s *jsonobj.Object) json.RawMessage {
	out := &jsonobj.Object{}
	for _, field := range fields {
		v := s.Get(field.key)
		if v == nil && field.key == "type" {
			v = s.Get("transport")
		}
		if v == nil {
			v = json.RawMessage(field.value)
		}
		out.Set(field.key, v)
	}
	s.Each(func(key string, value json.RawMessage) {
		switch {
		case key == "env" || key == "headers":
			out.Set(key, maskAll(value))
		case key == "oauth":
			out.Set(key, maskOAuth(value))
		case secretKey.MatchString(key) && isText(value):
			out.Set(key, json.RawMessage(`"`+masked+`"`))
		default:
			out.Set(key, maskDeep(value))
		}
	})
	return out.JSON()
}

func isText(v json.RawMessage) bool { return len(v) > 0 && v[0] == '"' }

// maskAll hides the values of an object of texts.
func maskAll(v json.RawMessage) json.RawMessage {
	if len(v) == 0 || v[0] != '{' {
		return v
	}
	out := &jsonobj.Object{}
	jsonobj.Of(v).Each(func(key string, _ json.RawMessage) { out.Set(key, json.RawMessage(`"`+masked+`"`)) })
	return out.JSON()
}

// maskDeep hides what looks like a secret in objects of unknown meaning.
func maskDeep(v json.RawMessage) json.RawMessage {
	if len(v) == 0 || v[0] != '{' {
		return v
	}
	out := &jsonobj.Object{}
	jsonobj.Of(v).Each(func(key string, value json.RawMessage) {
		if secretKey.MatchString(key) && isText(value) {
			value = json.RawMessage(`"` + masked + `"`)
		} else {
			value = maskDeep(value)
		}
		out.Set(key, value)
	})
	return out.JSON()
}

// maskOAuth leaves out the secrets of an OAuth configuration.
func maskOAuth(v json.RawMessage) json.RawMessage {
	if len(v) == 0 || v[0] != '{' {
		return v
	}
	out := &jsonobj.Object{}
	jsonobj.Of(v).Each(func(key string, value json.RawMessage) {
		switch {
		case key == "client_secret" || key == "refresh_token":
			value = json.RawMessage("null")
		case key == "extra_token_params":
			value = maskAll(value)
		case secretKey.MatchString(key) && !slices.Contains(notSecret, key) && isText(value):
			value = json.RawMessage(`"` + masked + `"`)
		}
		out.Set(key, value)
	})
	return out.JSON()
}

// SetServers puts other servers in place of all. Hidden values of servers that exist stay as they are stored.
//
// The command of a stdio server must be a bare word of allowed, in addition to npx and uvx: fault.Invalid.
func (f *File) SetServers(next json.RawMessage, allowed []string) error {
	given, err := jsonobj.Parse(next)
	if err != nil {
		return fault.New(fault.Unprocessable, "mcp_servers must be an object")
	}
	return f.change(serversKey, func(servers *jsonobj.Object) error {
		stored := jsonobj.Of(servers.JSON())
		for _, name := range stored.Keys() {
			servers.Delete(name)
		}
		var failed error
		given.Each(func(name string, value json.RawMessage) {
			if failed != nil {
				return
			}
			var raw json.RawMessage
			if raw, failed = merge(name, value, stored.Get(name), allowed); failed == nil {
				servers.Set(name, raw)
			}
		})
		return failed
	})
}

// merge returns a server as it is stored.
func merge(name string, given, stored json.RawMessage, allowed []string) (json.RawMessage, error) {
	var s server
	if err := json.Unmarshal(given, &s); err != nil || len(given) == 0 || given[0] != '{' {
		return nil, fault.Newf(fault.Unprocessable, "mcp_servers.%s is not a valid server", name)
	}
	if err := s.check(name, allowed); err != nil {
		return nil, err
	}
	next, old := jsonobj.Of(given), jsonobj.Of(stored)
	for _, key := range []string{"env", "headers"} {
		raw, err := keepTexts(strings.TrimSuffix(key, "s"), next.Get(key), old.Get(key))
		if err != nil {
			return nil, err
		}
		if raw != nil {
			next.Set(key, raw)
		}
	}
	if raw := next.Get("oauth"); len(raw) > 0 && raw[0] == '{' {
		o, err := keepOAuth(jsonobj.Of(raw), jsonobj.Of(old.Get("oauth")))
		if err != nil {
			return nil, err
		}
		next.Set("oauth", o)
	}
	return keepRest(next, old)
}

// keepTexts puts stored values in place of hidden ones. Hidden values that are not stored are refused.
func keepTexts(what string, given, stored json.RawMessage) (json.RawMessage, error) {
	if len(given) == 0 || given[0] != '{' {
		return nil, nil
	}
	old, out := jsonobj.Of(stored), &jsonobj.Object{}
	var failed error
	jsonobj.Of(given).Each(func(key string, value json.RawMessage) {
		if string(value) == `"`+masked+`"` {
			if value = old.Get(key); value == nil {
				failed = fault.Newf(fault.Invalid, "Cannot set %s key '%s' to masked value '%s'; provide a real value.", what, key, masked)
				return
			}
		}
		out.Set(key, value)
	})
	return out.JSON(), failed
}

// keepOAuth keeps secrets that a client did not send, since it does not see them. "" removes one.
func keepOAuth(next, old *jsonobj.Object) (json.RawMessage, error) {
	for _, key := range []string{"client_secret", "refresh_token"} {
		switch v := next.Get(key); {
		case v == nil || string(v) == "null" || string(v) == `"`+masked+`"`:
			if was := old.Get(key); was != nil {
				next.Set(key, was)
			} else if v != nil {
				next.Set(key, json.RawMessage("null"))
			}
		case string(v) == `""`:
			next.Set(key, json.RawMessage("null"))
		}
	}
	if params := next.Get("extra_token_params"); params != nil {
		raw, err := keepTexts("oauth", params, old.Get("extra_token_params"))
		if err != nil {
			return nil, err
		}
		if raw != nil {
			next.Set("extra_token_params", raw)
		}
	}
	return keepRest(next, old)
}

// keepRest puts stored values in place of other values that are hidden, at any depth.
func keepRest(next, old *jsonobj.Object) (json.RawMessage, error) {
	var failed error
	for _, key := range next.Keys() {
		v := next.Get(key)
		switch {
		case string(v) == `"`+masked+`"`:
			was := old.Get(key)
			if was == nil {
				return nil, fault.Newf(fault.Invalid, "Cannot set key '%s' to masked value '%s'; provide a real value.", key, masked)
			}
			next.Set(key, was)
		case len(v) > 0 && v[0] == '{' && key != "env" && key != "headers" && key != "oauth" && key != "extra_token_params":
			raw, err := keepRest(jsonobj.Of(v), jsonobj.Of(old.Get(key)))
			if err != nil {
				failed = err
				continue
			}
			next.Set(key, raw)
		}
	}
	return next.JSON(), failed
}

// Enable switches one server; fault.NotFound.
func (f *File) Enable(name string, on bool) error {
	return f.change(serversKey, func(servers *jsonobj.Object) error {
		raw := servers.Get(name)
		if raw == nil {
			return fault.Newf(fault.NotFound, "MCP server '%s' not found", name)
		}
		s := jsonobj.Of(raw)
		s.Set("enabled", json.RawMessage(fmt.Sprint(on)))
		servers.Set(name, s.JSON())
		return nil
	})
}
