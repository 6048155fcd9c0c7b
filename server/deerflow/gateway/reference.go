package gateway

import (
	"regexp"
	"strings"
	"sync"

	"understudy/docs"
)

// Operation is a route as docs/gateway.md describes it.
type Operation struct {
	Method, Path string // as /api/threads/{thread_id}; * is the rest of a path
	Tag          string // heading of its table
	Who          string // anyone, user or admin
	Summary      string
	Query        []string // names of parameters
	Body         []string // names of members, or of the fields of a form
	Form         string   // media type of a body that is no JSON
}

// Reference returns the routes of docs/gateway.md, in its order. A test compares them with those that are served.
var Reference = sync.OnceValue(func() []Operation {
	text, err := docs.Files.ReadFile("gateway.md")
	if err != nil {
		panic(err) // it is embedded
	}
	return readReference(string(text))
})

var (
	referenceRow = regexp.MustCompile("^\\| `([A-Z]+) (/api[^`]*)` \\| (\\w+) \\| (.*) \\|$")
	note         = regexp.MustCompile(` \(\d\)`)
	quoted       = regexp.MustCompile("`([^`]*)`")
	member       = regexp.MustCompile(`^[a-z_0-9]+`)
)

// readReference reads the tables of a page.
func readReference(text string) (all []Operation) {
	tag := ""
	for line := range strings.SplitSeq(text, "\n") {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			tag = heading
		}
		m := referenceRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		said := note.ReplaceAllString(m[4], "")
		o := Operation{Method: m[1], Path: m[2], Tag: tag, Who: m[3], Summary: strings.ReplaceAll(said, "`", "")}
		o.readRequest(said)
		all = append(all, o)
	}
	return all
}

// readRequest finds the names of what is sent: parameters begin with ?, members of a body are in braces or follow the kind of a form. What is behind a semicolon is the answer.
func (o *Operation) readRequest(said string) {
	request, _, _ := strings.Cut(said, ";")
	switch {
	case strings.HasPrefix(request, "multipart "):
		o.Form = "multipart/form-data"
	case strings.HasPrefix(request, "form "):
		o.Form = "application/x-www-form-urlencoded"
	}
	for i, q := range quoted.FindAllStringSubmatch(request, -1) {
		switch inner, braces := strings.CutPrefix(q[1], "{"); {
		case braces && i == 0 && o.Method != "GET":
			for part := range strings.SplitSeq(inner, ", ") {
				if name := member.FindString(part); name != "" {
					o.Body = append(o.Body, name)
				}
			}
		case o.Form != "":
			o.Body = append(o.Body, q[1])
		case len(o.Query) > 0 && member.FindString(q[1]) == q[1] && strings.Contains(request, ", `"+q[1]+"`"):
			o.Query = append(o.Query, q[1])
		}
		o.addQuery(q[1])
	}
	if _, answer, ok := strings.Cut(said, ";"); ok {
		for _, q := range quoted.FindAllStringSubmatch(answer, -1) {
			o.addQuery(q[1])
		}
	}
}

// addQuery adds the parameter that ?name, or ?name=value, is.
func (o *Operation) addQuery(text string) {
	if name, ok := strings.CutPrefix(text, "?"); ok {
		o.Query = append(o.Query, member.FindString(name))
	}
}
