package pregel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// unfit is the error of a value that does not fit the field of a Go type that has its name.
type unfit struct {
	key  string
	v    *value
	want reflect.Type
	err  error
}

func (e *unfit) Error() string { return e.key + ": " + e.err.Error() }
func (e *unfit) Unwrap() error { return e.err }

// misread is the error of a function that gets a state which its type does not fit. Its text is for clients; developers read in addition which node wrote the value:
// see fix.
type misread struct {
	what string // that was not possible
	err  error
	at   *task    // that read; nil outside of tasks
	by   []string // nodes that may have written the value; none: unknown
	sent bool     // the input is that of a Send
	key  *unfit   // nil: the whole state does not fit
}

func (e *misread) Error() string     { return e.what + ": " + e.err.Error() }
func (e *misread) ErrorName() string { return "TypeError" }
func (e *misread) Unwrap() error     { return e.err }

// reading returns the error of a function that cannot decode its input.
func reading(ctx context.Context, err error) error {
	m := &misread{what: "read the input", err: err}
	errors.As(err, &m.key)
	if tc := taskOf(ctx); tc != nil {
		m.at = tc.t
	}
	return m
}

// fix names the writer, the key and both types; "" when the value has no key.
func (e *misread) fix() string {
	if e.key == nil {
		return ""
	}
	verb := "wrote"
	if e.sent {
		verb = "sent"
	}
	who := "it was written before this run, or by a client"
	switch {
	case slices.Equal(e.by, []string{START}):
		who = "the input has " + e.key.v.goType()
	case len(e.by) == 1:
		who = fmt.Sprintf("node '%s' %s %s", e.by[0], verb, e.key.v.goType())
	case len(e.by) > 1:
		who = fmt.Sprintf("nodes %s %s it", someOf(slices.Clone(e.by)), verb)
	}
	return fmt.Sprintf("key '%s' is read as %s, but %s: use one type for both", e.key.key, e.key.want, who)
}

// goType names the type that a node returned, or the kind of JSON that came from elsewhere.
func (v *value) goType() string {
	if v.kind == ofGo {
		return reflect.TypeOf(v.goVal).String()
	}
	if _, ok := v.list(); ok {
		return "a list"
	}
	raw := v.JSON()
	switch {
	case len(raw) == 0:
	case raw[0] == '{':
		return "an object"
	case raw[0] == '"':
		return "text"
	case raw[0] == 't', raw[0] == 'f':
		return "a bool"
	}
	return "a number"
}

// wrote marks the error of a condition that cannot read what its own node has just written.
func wrote(t *task, writes []write, err error) {
	var m *misread
	if errors.As(err, &m) && m.at == t && m.key != nil && slices.ContainsFunc(writes, func(w write) bool { return w.channel == m.key.key }) {
		m.by = []string{t.name}
	}
}

// blame adds to the error of a task that cannot read its input who wrote, or sent, what does not fit.
func (l *loop) blame(t *task, err error) {
	var m *misread
	switch {
	case !errors.As(err, &m) || m.at != t || m.key == nil || m.by != nil || l.g.functional:
	case t.path.kind == pull:
		m.by = l.writersOf(m.key.key)
	case t.call == nil:
		m.by, m.sent = l.writersOf(chanTasks), true
	}
}

// writersOf names the nodes that wrote a key of the state last in this run.
func (l *loop) writersOf(key string) []string {
	if i, ok := l.g.chanIndex[key]; ok && l.writers != nil {
		return l.writers[i]
	}
	return nil
}

// unmerged is the error of a channel that does not take what was written. Its text is for clients; developers read in addition which key and nodes it was: see fix.
type unmerged struct {
	key string
	typ reflect.Type // of the key; nil: any
	by  []string
	err error
}

func (e *unmerged) Error() string { return e.err.Error() }
func (e *unmerged) Unwrap() error { return e.err }

// byNodes reports whether nodes wrote it, and not the input.
func (e *unmerged) byNodes() bool { return e.by[0] != START && e.by[0] != writeInput }

func (e *unmerged) fix() string {
	who := "node '" + e.by[0] + "'"
	switch {
	case len(e.by) > 1:
		who = "nodes " + someOf(slices.Clone(e.by))
	case !e.byNodes():
		who = "the input"
	}
	text := fmt.Sprintf("this is key '%s', with what %s wrote", e.key, who)
	if strings.Contains(e.err.Error(), onlyOne) {
		return text + ": " + e.reducer() + ", or let one node write it"
	}
	if fix := fixOf(e.err); fix != "" {
		text += ": " + fix
	}
	return text
}

// reducer returns how to give the key a reducer that its type takes.
func (e *unmerged) reducer() string {
	reducer := ""
	if e.typ != nil {
		switch e.typ.Kind() {
		case reflect.Slice:
			if reducer = "append"; e.typ.Elem() == messageType {
				reducer = "add_messages"
			}
			if e.typ == rawType {
				reducer = ""
			}
		case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
			reflect.Float32, reflect.Float64:
			reducer = "add"
		default:
		}
	}
	own := fmt.Sprintf("WithChannel(%q, Reducer(…))", e.key)
	if reducer == "" {
		return "give it a reducer with " + own
	}
	return fmt.Sprintf("give it a reducer, as in graph:\"%s,reducer=%s\" or %s", e.key, reducer, own)
}
