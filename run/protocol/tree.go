package protocol

import (
	"maps"
	"slices"

	"understudy/internal/jsonobj"
)

// Asked returns the namespace in which the run that began last requested an interrupt.
func (p *Projection) Asked(interrupt string) (namespace []string, ok bool) {
	if p.latest == nil {
		return nil, false
	}
	namespace, ok = p.latest.asked[interrupt]
	return namespace, ok
}

// Tree returns the graphs of the run that began last: {"namespace", "status", "graph_name", "children"?}, where the status is the last event of a graph's
// lifecycle. nil: no run has begun.
func (p *Projection) Tree() []byte {
	st := p.latest
	if st == nil || !st.started {
		return nil
	}
	below := map[string][]string{}
	for _, ns := range slices.Concat(slices.Sorted(maps.Keys(st.closed)), st.graphs.inOrder()) {
		parent := parentOf(ns)
		below[parent] = append(below[parent], ns)
	}
	return p.appendTree(nil, st, below, "")
}

func (p *Projection) appendTree(b []byte, st *runState, below map[string][]string, ns string) []byte {
	state, name := st.state, st.row.Graph
	if ns != "" {
		name = st.graphName(ns)
		if state = st.closed[ns]; state == "" {
			state = "started"
		}
	}
	b = append(append(b, `{"namespace":`...), p.newSpace(levelsOf(ns)).json...)
	b = jsonobj.AppendText(append(b, `,"status":`...), state)
	b = jsonobj.AppendText(append(b, `,"graph_name":`...), name)
	if children := below[ns]; len(children) > 0 {
		b = append(b, `,"children":[`...)
		for i, child := range children {
			if i > 0 {
				b = append(b, ',')
			}
			b = p.appendTree(b, st, below, child)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
