package pregel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// drawing is the result of LangGraph's get_graph.
type drawing struct {
	nodes []drawnNode
	edges []drawnEdge
}

type drawnNode struct {
	id       string
	metadata []field
	bare     bool // START and END have no data unless they are nodes
}

type drawnEdge struct {
	from, to    string
	conditional bool
	label       string
}

// drawing returns the graph's declared nodes and edges; targets of Commands appear only if nodes have Destinations. xray is the
// number of levels of subgraphs to expand; -1 means all.
func (g *Graph) drawing(xray int) *drawing {
	d := &drawing{}
	for _, name := range g.order {
		d.nodes = append(d.nodes, drawnNode{id: name, metadata: g.drawnMetadata(g.nodes[name])})
	}
	if g.functional {
		d.nodes = append(d.nodes, drawnNode{id: START, bare: true})
		d.add(drawnEdge{from: START, to: g.order[0]})
		d.add(drawnEdge{from: g.order[0], to: END, conditional: true})
		return d
	}
	edges := g.declaredEdges()
	known := map[string]bool{START: true}
	for at := []string{START}; len(at) > 0; at = at[1:] {
		for _, e := range edges[at[0]] {
			if !known[e.to] {
				known[e.to] = true
				at = append(at, e.to)
			}
		}
	}
	var all []drawnEdge
	sources, dests := map[string]bool{}, map[string]bool{}
	for from, list := range edges {
		if !known[from] || from == END {
			continue
		}
		for _, e := range list {
			sources[e.from] = true
			if e.to != END {
				dests[e.to] = true
			}
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b drawnEdge) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(boolInt(a.conditional), boolInt(b.conditional)), cmp.Compare(a.label, b.label))
	})
	for _, e := range all {
		d.add(e)
	}
	var ends []string
	for name := range dests {
		if !sources[name] {
			ends = append(ends, name)
		}
	}
	slices.Sort(ends)
	for _, name := range ends {
		d.add(drawnEdge{from: name, to: END})
	}
	if len(ends) == 0 && !slices.ContainsFunc(all, func(e drawnEdge) bool { return e.to == END }) {
		if last := lastDrawn(edges); last != "" {
			d.add(drawnEdge{from: last, to: END, conditional: true})
		}
	}
	if xray != 0 {
		for _, name := range g.order {
			if n := g.nodes[name]; n.keepsState() {
				d.open(name, n.sub.drawing(max(xray-1, -1)))
			}
		}
	}
	return d
}

// lastDrawn returns the node at which LangGraph stops when it follows a graph that has no end; "" when there are several.
func lastDrawn(edges map[string][]drawnEdge) string {
	const most = 250 // steps
	at, chosen := []string{START}, map[string]bool{}
	for range most {
		var next []string
		for _, name := range at {
			for _, e := range edges[name] {
				if e.to != END && !(e.conditional && chosen[name]) {
					next = append(next, e.to)
				}
			}
			chosen[name] = true
		}
		if len(next) == 0 {
			break
		}
		slices.Sort(next)
		at = slices.Compact(next)
	}
	if len(at) != 1 {
		return ""
	}
	return at[0]
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// declaredEdges returns the edges by their start node. Unconditional edges to END are derived from where paths end.
func (g *Graph) declaredEdges() map[string][]drawnEdge {
	edges := map[string][]drawnEdge{}
	add := func(e drawnEdge) { edges[e.from] = append(edges[e.from], e) }
	b := g.builder
	for _, e := range b.edges {
		if e[1] != END {
			add(drawnEdge{from: e[0], to: e[1]})
		}
	}
	for _, j := range b.joins {
		for _, from := range j.from {
			if j.to != END {
				add(drawnEdge{from: from, to: j.to})
			}
		}
	}
	for _, br := range b.branches {
		for _, t := range br.targets {
			add(drawnEdge{from: br.from, to: t.node, conditional: true, label: t.label})
		}
	}
	for _, n := range b.nodes {
		for _, e := range n.ends {
			add(drawnEdge{from: n.name, to: e.node, conditional: true})
		}
	}
	return edges
}

func (g *Graph) drawnMetadata(n *node) []field {
	fields := slices.Clone(n.metadata)
	if n.deferred {
		fields = append(fields, field{"defer", fromGo(true)})
	}
	before := slices.Contains(g.before, n.name)
	after := slices.Contains(g.after, n.name)
	switch {
	case before && after:
		fields = append(fields, field{"__interrupt", fromString("before,after")})
	case before:
		fields = append(fields, field{"__interrupt", fromString("before")})
	case after:
		fields = append(fields, field{"__interrupt", fromString("after")})
	}
	return fields
}

func (d *drawing) add(e drawnEdge) {
	for _, o := range d.edges {
		if o.from == e.from && o.to == e.to {
			return
		}
	}
	if e.to == END && !slices.ContainsFunc(d.nodes, func(n drawnNode) bool { return n.id == END }) {
		d.nodes = append(d.nodes, drawnNode{id: END})
	}
	if e.label == e.to {
		e.label = ""
	}
	d.edges = append(d.edges, e)
}

// only returns the one node without an incoming edge (first) or an outgoing edge, ignoring except; "" when there is not
// exactly one.
func (d *drawing) only(first bool, except string) string {
	found := ""
	for _, n := range d.nodes {
		if n.id == except {
			continue
		}
		linked := slices.ContainsFunc(d.edges, func(e drawnEdge) bool {
			if first {
				return e.to == n.id && e.from != except
			}
			return e.from == n.id && e.to != except
		})
		if linked {
			continue
		}
		if found != "" {
			return ""
		}
		found = n.id
	}
	return found
}

func (d *drawing) trim(first bool) {
	id := d.only(first, "")
	if id == "" || d.only(first, id) == "" {
		return
	}
	d.nodes = slices.DeleteFunc(d.nodes, func(n drawnNode) bool { return n.id == id })
	d.edges = slices.DeleteFunc(d.edges, func(e drawnEdge) bool { return e.from == id || e.to == id })
}

// open replaces a node by the drawing of its subgraph.
func (d *drawing) open(name string, sub *drawing) {
	at := slices.IndexFunc(d.nodes, func(n drawnNode) bool { return n.id == name })
	if at < 0 || len(sub.nodes) <= 1 || sub.only(true, "") == "" || sub.only(false, "") == "" {
		return
	}
	sub.trim(true)
	sub.trim(false)
	first, last := sub.only(true, ""), sub.only(false, "")
	d.nodes = slices.Delete(d.nodes, at, at+1)
	for _, n := range sub.nodes {
		n.id = name + ":" + n.id
		d.nodes = append(d.nodes, n)
	}
	for i := range d.edges {
		if d.edges[i].from == name {
			d.edges[i].from = name + ":" + last
		}
		if d.edges[i].to == name {
			d.edges[i].to = name + ":" + first
		}
	}
	for _, e := range sub.edges {
		e.from, e.to = name+":"+e.from, name+":"+e.to
		d.edges = append(d.edges, e)
	}
}

func (d *drawing) json() json.RawMessage {
	b := []byte(`{"nodes":[`)
	for i, n := range d.nodes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"id":`...), n.id)
		if !n.bare && n.id != END && !strings.HasSuffix(n.id, ":"+END) {
			b = append(appendQuoted(append(b, `,"type":"runnable","data":{"name":`...), n.id), '}')
		}
		if len(n.metadata) > 0 {
			b = appendFields(append(b, `,"metadata":`...), n.metadata)
		}
		b = append(b, '}')
	}
	b = append(b, `],"edges":[`...)
	for i, e := range d.edges {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"source":`...), e.from)
		b = appendQuoted(append(b, `,"target":`...), e.to)
		if e.label != "" {
			b = appendQuoted(append(b, `,"data":`...), e.label)
		}
		if e.conditional {
			b = append(b, `,"conditional":true`...)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}
