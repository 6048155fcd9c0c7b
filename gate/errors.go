package gate

import (
	"strings"

	"understudy/graph/python"
)

// StartError is why the Python parts do not load, as an operator reads it.
type StartError struct {
	Part        string // auth.path, http.app, store.index.embed, encryption.path or tools; "" when the process did not get that far
	Spec        string // what the part names
	Reason      string // one line
	Place       string // file:line; "" unknown
	Interpreter string
	Fix         string // "" unknown
	Trace       string // traceback, or the end of what the process wrote; "" none
}

func (e *StartError) Error() string {
	text := "the Python parts of the deployment do not load"
	if e.Part != "" {
		text = e.Part + " does not load"
	}
	line := func(name, value string) {
		if value != "" {
			text += "\n  " + name + strings.Repeat(" ", 13-len(name)) + value
		}
	}
	line("names", e.Spec)
	line("reason", e.Reason)
	line("at", e.Place)
	line("interpreter", e.Interpreter)
	line("fix", e.Fix)
	return text
}

// problem is why a process could not load a part.
type problem struct {
	Part, Type, Message, Trace string
}

func (p *problem) explain(o *Options) *StartError {
	e := &StartError{Interpreter: o.Python, Reason: strings.TrimSpace(p.Type + ": " + firstLine(p.Message)), Place: o.placeIn(p.Trace), Trace: p.Trace}
	e.Part, e.Spec = o.part(p.Part)
	e.Fix = python.FixFailure(o.Python, p.Trace, o.dirs()...)
	if e.Fix == "" && (p.Type == "TypeError" || p.Type == "ValueError") && e.Place == "" {
		// Raised by the gate itself: the sentence says what to write.
		if reason, fix, ok := strings.Cut(firstLine(p.Message), "; "); ok {
			e.Reason, e.Fix = reason, fix
		}
	}
	switch {
	case e.Fix != "":
	case e.Place != "":
		e.Fix = "look at " + e.Place
	case e.Part != "" && e.Part != "tools": // those of tools are in another file
		e.Fix = "correct what " + e.Part + " of langgraph.json names: a file or module, a colon, and a name in it"
	}
	return e
}

// part returns the key of langgraph.json for a part, as the process calls it, and what the key names.
func (o *Options) part(name string) (key, spec string) {
	switch name {
	case "auth":
		return "auth.path", o.Auth
	case "app":
		return "http.app", o.App
	case "embed":
		return "store.index.embed", o.Embed
	case "encryption":
		return "encryption.path", o.Encryption
	case "tools":
		return "tools", strings.Join(o.Tools, ", ")
	}
	return "", ""
}

// partNames are the parts as the process calls them, in the order of loading.
var partNames = []string{"auth", "embed", "encryption", "tools", "app"}

// parts lists the keys of all parts with what they name.
func (o *Options) parts() string {
	var list []string
	for _, name := range partNames {
		if key, spec := o.part(name); spec != "" {
			list = append(list, key+" "+spec)
		}
	}
	return strings.Join(list, ", ")
}

// keys lists the keys of all parts.
func (o *Options) keys() string {
	var list []string
	for _, name := range partNames {
		if key, spec := o.part(name); spec != "" {
			list = append(list, key)
		}
	}
	return strings.Join(list, ", ")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// dirs are the folders in which Python finds modules of the deployment.
func (o *Options) dirs() []string { return append([]string{o.Dir}, o.Paths...) }

// placeIn returns the innermost frame of a traceback that is in a file of the deployment.
func (o *Options) placeIn(trace string) string {
	file, line := python.Innermost(trace, o.dirs())
	if file == "" {
		return ""
	}
	return file + ":" + line
}
