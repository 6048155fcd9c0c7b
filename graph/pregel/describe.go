package pregel

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"understudy/graph"
	"understudy/internal/fault"
)

// describe returns the next tasks of the checkpoint, which its rows alone do not determine. They are saved with it. See
// checkpointer.Checkpoint.Tasks.
func (l *loop) describe() json.RawMessage {
	b := []byte{'['}
	add := func(n *node, id string, path taskPath) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, `{"id":"`...)
		b = append(b, id...)
		b = append(appendQuoted(append(b, `","name":`...), n.name), `,"path":`...)
		b = path.appendJSON(b)
		b = append(b, `,"subgraph":`...)
		b = append(strconv.AppendBool(b, n.keepsState()), '}')
	}
	step := strconv.Itoa(l.meta.step + 1)
	if c := l.chans[l.g.tasksChan]; c.available() {
		items, _ := c.get().list()
		for i, item := range items {
			name, _, _, ok := sendOf(item)
			if n := l.g.nodes[name]; ok && n != nil {
				add(n, taskID(l.cp.idBytes, false, l.nodeNS(name), step, name, push, strconv.Itoa(i)), taskPath{kind: push, index: i})
			}
		}
	}
	for _, name := range l.g.order {
		n := l.g.nodes[name]
		if !l.triggered(n) {
			continue
		}
		parts := append(make([]string, 0, 4+len(n.triggers)), l.nodeNS(name), step, name, pull)
		add(n, taskID(l.cp.idBytes, false, append(parts, n.triggers...)...), taskPath{kind: pull, node: name})
	}
	return append(b, ']')
}

// keepsState reports whether a node is a graph whose state can be read.
func (n *node) keepsState() bool { return n.sub != nil && n.sub.mode != Never }

// shape returns a description of the graph's channels, for readers of its checkpoints, and its digest. See
// checkpointer.Shape.
func (g *Graph) shape() (json.RawMessage, string) {
	g.shapeOnce.Do(func() {
		b := []byte(`{"out":`)
		if g.bareOut {
			b = appendQuoted(b, g.out[0])
		} else {
			b = append(b, fromGo(append([]string{}, g.out...)).JSON()...)
		}
		b = append(b, `,"channels":{`...)
		for i, c := range g.chans {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, c.name), `:{"kind":`...)
			b = append(appendQuoted(b, c.spec.kindName()), `,"empty":`...)
			empty := c.spec.make(c.name).get()
			if empty == nil {
				b = append(b, "null}"...)
				continue
			}
			p, err := empty.packed()
			if err != nil {
				b = append(b, "null}"...)
				continue
			}
			b = append(b, `{"type":"msgpack","data":"`...)
			b = base64.StdEncoding.AppendEncode(b, p)
			b = append(b, `"}}`...)
		}
		b = append(b, `},"stateful":[`...)
		var stateful []string
		for _, name := range g.order {
			if n := g.nodes[name]; n.sub != nil && n.sub.mode == Always {
				stateful = append(stateful, name)
			}
		}
		slices.Sort(stateful)
		for i, name := range stateful {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, name)
		}
		g.shapeText = append(b, "]}"...)
		sum := sha256.Sum256(g.shapeText)
		g.shapeSum = hex.EncodeToString(sum[:16])
	})
	return g.shapeText, g.shapeSum
}

// Describe implements graph.Graph.
func (g *Graph) Describe(_ context.Context, _ graph.Config, what graph.DescribeWhat) (json.RawMessage, error) {
	switch what.Kind {
	case "graph":
		return g.drawing(what.XRay).json(), nil
	case "schemas":
		return g.schemas(), nil
	case "subgraphs":
		return g.subgraphs(what.Namespace, what.Recurse), nil
	case "nodes":
		return json.Marshal(graph.Nodes{Nodes: g.places("", []graph.NodePlace{})})
	}
	return nil, fault.Newf(fault.Invalid, "unknown description %q", what.Kind)
}

// places appends where the functions of the nodes are. prefix is that of a subgraph, as drawings have it.
func (g *Graph) places(prefix string, to []graph.NodePlace) []graph.NodePlace {
	for _, name := range g.order {
		n := g.nodes[name]
		switch {
		case name == START:
		case n.sub != nil:
			to = n.sub.places(prefix+name+":", to)
		default:
			to = append(to, placeOf(prefix+name, n.code))
		}
	}
	return to
}

// placeOf returns where a function is. The file is named by its package, because its path is that of the machine on which it was compiled.
func placeOf(node string, code uintptr) graph.NodePlace {
	p := graph.NodePlace{ID: node}
	f := runtime.FuncForPC(code)
	if f == nil {
		return p
	}
	p.Function = f.Name()
	file, line := f.FileLine(code)
	folder, base := path.Split(p.Function)
	name, _, _ := strings.Cut(base, ".")
	p.File, p.Line = folder+name+"/"+path.Base(filepath.ToSlash(file)), line
	return p
}
