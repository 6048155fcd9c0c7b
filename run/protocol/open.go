package protocol

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// A graph may start thousands of subgraphs and models at once. What is open is found by its namespace, by the task that called it or by its ID, so that the work
// for a record does not grow with what else is open.

// openGraph is a subgraph that has started and not ended.
type openGraph struct {
	ns     string
	depth  int
	number int        // in the order in which they started
	above  *openGraph // the nearest one around it that was open when it started; nil: the root
	within map[*openGraph]struct{}
}

// callOfGraph is a task that calls a subgraph: the namespace of the task, and its ID.
type callOfGraph struct{ ns, task string }

// openGraphs are the subgraphs of a run that are open.
type openGraphs struct {
	byNS   map[string]*openGraph
	byCall map[callOfGraph][]*openGraph
	count  int
}

func (o *openGraphs) has(ns string) bool { return o.byNS[ns] != nil }

// add opens a namespace, which is not open.
func (o *openGraphs) add(ns string) {
	if o.byNS == nil {
		o.byNS, o.byCall = map[string]*openGraph{}, map[callOfGraph][]*openGraph{}
	}
	o.count++
	g := &openGraph{ns: ns, depth: strings.Count(ns, "|"), number: o.count, within: map[*openGraph]struct{}{}}
	for at := parentOf(ns); at != "" && g.above == nil; at = parentOf(at) {
		g.above = o.byNS[at]
	}
	if g.above != nil {
		g.above.within[g] = struct{}{}
	}
	o.byNS[ns] = g
	if call, ok := callIn(ns); ok {
		o.byCall[call] = append(o.byCall[call], g)
	}
}

// callIn returns the task whose call a namespace is; ok is false when it names none.
func callIn(ns string) (call callOfGraph, ok bool) {
	level := ns[strings.LastIndexByte(ns, '|')+1:]
	at := strings.LastIndexByte(level, ':')
	return callOfGraph{parentOf(ns), level[at+1:]}, at >= 0
}

// calledBy returns the namespaces that a task has opened.
func (o *openGraphs) calledBy(ns, task string) (out []string) {
	for _, g := range o.byCall[callOfGraph{ns, task}] {
		out = append(out, g.ns)
	}
	return out
}

// inOrder returns all open namespaces, in the order in which they were opened.
func (o *openGraphs) inOrder() []string {
	all := slices.SortedFunc(maps.Values(o.byNS), func(a, b *openGraph) int { return cmp.Compare(a.number, b.number) })
	return namesOf(all)
}

func namesOf(graphs []*openGraph) []string {
	out := make([]string, len(graphs))
	for i, g := range graphs {
		out[i] = g.ns
	}
	return out
}

// close closes a namespace and all within it, and returns those that were open, the deepest first; "" is all of them.
func (o *openGraphs) close(within string) []string {
	var closing []*openGraph
	if top := o.byNS[within]; top != nil {
		closing = top.all(nil)
	} else { // all, or what is within one that has ended itself
		for ns, g := range o.byNS {
			if within == "" || strings.HasPrefix(ns, within+"|") {
				closing = append(closing, g)
			}
		}
	}
	slices.SortFunc(closing, func(a, b *openGraph) int {
		return cmp.Or(cmp.Compare(b.depth, a.depth), cmp.Compare(a.number, b.number))
	})
	for _, g := range closing {
		delete(o.byNS, g.ns)
		if g.above != nil {
			delete(g.above.within, g)
		}
		if call, ok := callIn(g.ns); ok {
			if o.byCall[call] = slices.DeleteFunc(o.byCall[call], func(other *openGraph) bool { return other == g }); len(o.byCall[call]) == 0 {
				delete(o.byCall, call)
			}
		}
	}
	return namesOf(closing)
}

// all appends a graph and those within it.
func (g *openGraph) all(out []*openGraph) []*openGraph {
	out = append(out, g)
	for inner := range g.within {
		out = inner.all(out)
	}
	return out
}

// openMessages are the messages of a run that are being streamed.
type openMessages struct {
	byKey        map[string]*message
	byTask, byNS messageGroups
	count        int
}

// messageGroups are messages by what they have in common.
type messageGroups map[string]map[*message]struct{}

func (g messageGroups) add(name string, m *message) {
	if g[name] == nil {
		g[name] = map[*message]struct{}{}
	}
	g[name][m] = struct{}{}
}

func (g messageGroups) remove(name string, m *message) {
	if delete(g[name], m); len(g[name]) == 0 {
		delete(g, name)
	}
}

func (o *openMessages) add(m *message) {
	if o.byKey == nil {
		o.byKey, o.byTask, o.byNS = map[string]*message{}, messageGroups{}, messageGroups{}
	}
	o.count++
	m.number = o.count
	o.byKey[m.key] = m
	o.byTask.add(m.task, m)
	o.byNS.add(m.ns, m)
}

func (o *openMessages) remove(m *message) {
	delete(o.byKey, m.key)
	o.byTask.remove(m.task, m)
	o.byNS.remove(m.ns, m)
}

// all returns all messages, in the order in which they started; ofTask and inNS those of a task and of a namespace.
func (o *openMessages) all() []*message { return byNumber(slices.Collect(maps.Values(o.byKey))) }

func (o *openMessages) ofTask(task string) []*message {
	return byNumber(slices.Collect(maps.Keys(o.byTask[task])))
}

func (o *openMessages) inNS(ns string) []*message {
	return byNumber(slices.Collect(maps.Keys(o.byNS[ns])))
}

func byNumber(all []*message) []*message {
	slices.SortFunc(all, func(a, b *message) int { return cmp.Compare(a.number, b.number) })
	return all
}
