package twin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// described is a case as text for people.
func described(c testCase) string {
	var b strings.Builder
	describeGraph(&b, c.Graph, "")
	for i, s := range c.Steps {
		fmt.Fprintf(&b, "step %d: %s\n", i, describedStep(s))
	}
	return b.String()
}

func describeGraph(b *strings.Builder, d graphDesc, indent string) {
	line := func(format string, args ...any) { fmt.Fprintf(b, indent+format+"\n", args...) }
	var keys []string
	for _, c := range d.Channels {
		keys = append(keys, c[0]+"="+c[1])
	}
	kind := "state"
	if d.Typed {
		kind = "typed state"
	}
	line("%s %s", kind, strings.Join(keys, " "))
	for _, option := range []struct {
		name string
		set  bool
		v    any
	}{
		{"input", d.Input != nil, d.Input},
		{"output", d.Output != nil, d.Output},
		{"interrupt before", d.Before != nil, d.Before},
		{"interrupt after", d.After != nil, d.After},
		{"checkpointer", d.Checkpointer != nil, d.Checkpointer},
	} {
		if option.set {
			line("%s %s", option.name, raw(option.v))
		}
	}
	for _, n := range d.Nodes {
		var words []string
		if n.Defer {
			words = append(words, "deferred")
		}
		if n.Retry != nil {
			words = append(words, fmt.Sprintf("%d attempts on %s", n.Retry.Max, strings.Join(n.Retry.On, ", ")))
		}
		if n.Cache {
			words = append(words, "cached")
		}
		if n.Metadata != nil {
			words = append(words, fmt.Sprintf("metadata %s", raw(n.Metadata)))
		}
		if n.Returns != "" {
			words = append(words, "returns "+n.Returns)
		}
		for _, o := range n.Ops {
			words = append(words, describedOp(o))
		}
		if n.Subgraph != nil {
			words = append(words, "subgraph")
		}
		line("node %s: %s", n.Name, strings.Join(words, "; "))
		if n.Subgraph != nil {
			describeGraph(b, *n.Subgraph, indent+"    ")
		}
	}
	for _, e := range d.Edges {
		line("%s -> %s", strings.Join(names(e[0]), " + "), e[1])
	}
	for _, br := range d.Branches {
		r := br.Rule
		choice := fmt.Sprintf("%s %s", r.Kind, raw(r.To))
		switch r.Kind {
		case "by":
			choice = fmt.Sprintf("by %s %s else %s", r.Key, raw(r.Cases), raw(r.Default))
		case "fan":
			choice = fmt.Sprintf("a Send to %s for each of %s as %s", r.Node, r.Key, r.As)
		}
		line("%s -?> %s (of %s)", br.From, choice, strings.Join(br.Targets, ", "))
	}
	for _, name := range sortedKeys(d.Graphs) {
		line("graph %q:", name)
		describeGraph(b, d.Graphs[name], indent+"    ")
	}
}

func describedOp(o op) string {
	words := []string{text(o, "do")}
	for _, k := range sortedKeys(o) {
		if k != "do" && o[k] != nil {
			words = append(words, fmt.Sprintf("%s=%s", k, raw(o[k])))
		}
	}
	return strings.Join(words, " ")
}

func describedStep(s step) string {
	words := []string{s.Op}
	add := func(set bool, format string, args ...any) {
		if set {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(s.Input != nil, "input %s", s.Input)
	add(s.Command != nil, "command %s", s.Command)
	for _, us := range s.Updates {
		var all []string
		for _, u := range us {
			all = append(all, fmt.Sprintf("as %q %s%s", u.AsNode, u.Values, u.Command))
		}
		add(true, "superstep [%s]", strings.Join(all, "; "))
	}
	add(s.Again != "", "again with %s", s.Again)
	add(s.Op == "crash", "keeps %d root checkpoints of the run", s.Keep)
	add(s.Lose, "loses the writes on the last")
	add(s.At != nil, "at checkpoint %s", raw(s.At))
	add(s.NS != nil, "in %s", raw(s.NS))
	add(s.Durability != "", "durability %s", s.Durability)
	add(s.Limit != nil, "limit %s", raw(s.Limit))
	add(s.InterruptBefore != nil, "interrupt before %s", raw(s.InterruptBefore))
	add(s.InterruptAfter != nil, "interrupt after %s", raw(s.InterruptAfter))
	add(s.Subgraphs, "with subgraphs")
	add(len(s.Modes) > 0, "modes %s", strings.Join(s.Modes, ","))
	return strings.Join(words, " ")
}
