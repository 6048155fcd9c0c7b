package twin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	uuids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b`)
	versions = regexp.MustCompile(`"0*([0-9]+)\.[0-9.e-]+"`)
	times    = regexp.MustCompile(`"timestamp":"[^"]*"`)
)

func blind(doc any) string { return uuids.ReplaceAllString(string(raw(doc)), "U") }

// canonical sorts what has no order, and replaces ids by the number of their appearance.
func canonical(doc map[string]any) map[string]any {
	if s, ok := doc["states"].(map[string]any); ok {
		if live, ok := s["live"].(map[string]any); ok && live["error"] != nil {
			s["live"] = "error"
		}
	}
	sortInterrupts(doc)
	all, _ := doc["checkpoints"].([]any)
	orderCheckpoints(all)
	if steps, ok := doc["steps"].([]any); ok {
		known := numbered(map[string]int{}, all)
		for _, s := range steps {
			one := s.(map[string]any)
			one["events"] = ordered(one["events"].([]any), maps.Clone(known))
			for _, e := range one["events"].([]any) {
				withoutThread(e.([]any)[2])
			}
		}
	}
	text := string(raw(doc))
	text = versions.ReplaceAllString(text, "$1")
	text = times.ReplaceAllString(text, `"timestamp":"T"`)
	labels := map[string]string{}
	text = uuids.ReplaceAllStringFunc(text, func(u string) string {
		if labels[u] == "" {
			labels[u] = fmt.Sprintf("<%d>", len(labels)+1)
		}
		return labels[u]
	})
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	return out
}

// sortInterrupts puts lists of interrupts in an order: LangGraph keeps those of nested graphs in a set.
func sortInterrupts(x any) {
	switch x := x.(type) {
	case map[string]any:
		for key, v := range x {
			if x["channel"] == "__interrupt__" && key == "value" || key == "interrupts" || key == "__interrupt__" {
				if list, ok := v.([]any); ok {
					slices.SortStableFunc(list, func(a, b any) int { return cmp.Compare(blind(a), blind(b)) })
				}
			}
			sortInterrupts(v)
		}
	case []any:
		for _, v := range x {
			sortInterrupts(v)
		}
	}
}

// orderCheckpoints sorts checkpoints by namespace and age, and their writes by task.
func orderCheckpoints(all []any) {
	for _, c := range all {
		// An update as a node that has written keeps the rows that are there, by index: which of its edges are left depends on a set.
		writes := slices.DeleteFunc(c.(map[string]any)["writes"].([]any), func(w any) bool {
			x := w.(map[string]any)
			return strings.HasPrefix(x["path"].(string), "~__interrupt__") && strings.HasPrefix(x["channel"].(string), "branch:to:")
		})
		c.(map[string]any)["writes"] = writes
		for _, w := range writes { // LangGraph keeps edges in a set
			if x := w.(map[string]any); strings.HasPrefix(x["channel"].(string), "branch:to:") {
				x["path"], x["index"] = x["path"].(string)+" "+x["channel"].(string), 0.0
			}
		}
		slices.SortStableFunc(writes, func(a, b any) int {
			x, y := a.(map[string]any), b.(map[string]any)
			return cmp.Or(cmp.Compare(x["path"].(string), y["path"].(string)), cmp.Compare(x["index"].(float64), y["index"].(float64)), cmp.Compare(blind(a), blind(b)))
		})
	}
	// Tasks of the same node are distinguished by what the checkpoints above show of them.
	depth := func(x any) int {
		ns := x.(map[string]any)["ns"].(string)
		return len(strings.Split(ns, "|")) - 1 + min(len(ns), 1)
	}
	slices.SortStableFunc(all, func(a, b any) int { return cmp.Compare(depth(a), depth(b)) })
	known := map[string]int{}
	for start, end := 0, 0; start < len(all); start = end {
		for end = start; end < len(all) && depth(all[end]) == depth(all[start]); end++ {
		}
		slices.SortStableFunc(all[start:end], func(a, b any) int {
			x, y := a.(map[string]any), b.(map[string]any)
			return cmp.Or(cmp.Compare(blind(x["ns"]), blind(y["ns"])), cmp.Compare(withNumbers(known, x["ns"]), withNumbers(known, y["ns"])),
				cmp.Compare(x["id"].(string), y["id"].(string)))
		})
		numbered(known, all[start:end])
	}
}

// withNumbers is a document with numbers in place of the ids that are known.
func withNumbers(known map[string]int, doc any) string {
	return uuids.ReplaceAllStringFunc(string(raw(doc)), func(u string) string {
		if n, ok := known[u]; ok {
			return fmt.Sprintf("%08d", n)
		}
		return "U"
	})
}

// savedBy are keys of a checkpoint's metadata that the server's saver keeps, and LangGraph's memory saver does not.
var savedBy = []string{
	"thread_id", "checkpoint_id", "checkpoint_map", "checkpoint_ns", "langgraph_step", "langgraph_node", "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns",
}

// withoutThread removes what depends on the saver from the metadata of a checkpoint.
func withoutThread(data any) {
	event, ok := data.(map[string]any)
	if !ok {
		return
	}
	if payload, ok := event["payload"]; ok {
		withoutThread(payload)
	}
	if metadata, ok := event["metadata"].(map[string]any); ok {
		if metadata["source"] == "fork" { // the memory saver takes the run's name from the reader of the copy
			delete(metadata, "run_id")
		}
		if _, checkpoint := event["next"]; checkpoint {
			for _, key := range savedBy {
				delete(metadata, key)
			}
		}
	}
}

// numbered adds the ids of a list to those that are known, by number of appearance.
func numbered(known map[string]int, list []any) map[string]int {
	for _, x := range list {
		for _, u := range uuids.FindAllString(string(raw(x)), -1) {
			if _, ok := known[u]; !ok {
				known[u] = len(known)
			}
		}
	}
	return known
}

// ordered sorts the events of concurrent tasks: those between two states. Tasks that look the same are distinguished by
// the checkpoints that know them, else by the order in which they started.
func ordered(events []any, known map[string]int) []any {
	out := make([]any, 0, len(events))
	start := 0
	first := numbered(known, events)
	flush := func(end int) {
		part := slices.Clone(events[start:end])
		slices.SortStableFunc(part, func(a, b any) int {
			return cmp.Or(cmp.Compare(blind(a), blind(b)), cmp.Compare(withNumbers(first, a), withNumbers(first, b)))
		})
		out = append(out, part...)
	}
	for i, e := range events {
		name := e.([]any)[0].(string)
		if name != "values" && name != "checkpoints" && name != "debug" {
			continue
		}
		if data, ok := e.([]any)[2].(map[string]any); ok && (data["__interrupt__"] != nil || name == "debug" && data["type"] != "checkpoint") {
			continue
		}
		flush(i)
		out = append(out, e)
		start = i + 1
	}
	flush(len(events))
	return out
}

// differences returns where two documents differ, leaf by leaf.
func differences(path string, want, got any, out []string) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		all := maps.Clone(w)
		maps.Copy(all, g)
		for _, k := range slices.Sorted(maps.Keys(all)) {
			x, inWant := w[k]
			y, inGot := g[k]
			switch {
			case !inWant:
				out = append(out, fmt.Sprintf("%s/%s: LangGraph has none; pregel %s", path, k, raw(y)))
			case !inGot:
				out = append(out, fmt.Sprintf("%s/%s: LangGraph %s; pregel has none", path, k, raw(x)))
			default:
				out = differences(path+"/"+k, x, y, out)
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			out = differences(fmt.Sprintf("%s/%d", path, i), w[i], g[i], out)
		}
		return out
	}
	if a, b := string(raw(want)), string(raw(got)); a != b {
		out = append(out, fmt.Sprintf("%s:\n    LangGraph %s\n    pregel    %s", path, a, b))
	}
	return out
}

// byNamespace returns the events of each step by namespace.
func byNamespace(doc map[string]any) map[string]any {
	all, _ := doc["checkpoints"].([]any)
	orderCheckpoints(all)
	known := numbered(map[string]int{}, all)
	for _, s := range doc["steps"].([]any) {
		slices.SortStableFunc(s.(map[string]any)["events"].([]any), func(a, b any) int {
			x, y := a.([]any)[1], b.([]any)[1]
			return cmp.Or(cmp.Compare(blind(x), blind(y)), cmp.Compare(withNumbers(known, x), withNumbers(known, y)))
		})
	}
	return doc
}

// compared returns the differences of two answers.
func compared(c testCase, inPython, inGo map[string]any) []string {
	want, got := canonical(inPython), canonical(inGo)
	if slices.ContainsFunc(c.Graph.Nodes, func(n nodeDesc) bool { return n.Defer }) {
		// LangGraph draws edges to deferred nodes from whatever ran last.
		want["drawings"], got["drawings"] = nil, nil
	}
	// What of a state cannot be computed: LangGraph raises, here rows are shown.
	if s, ok := want["states"].(map[string]any); ok && got["states"] != nil {
		mine := got["states"].(map[string]any)
		if s["live"] == "error" {
			mine["live"] = "error"
		}
		for i, r := range s["records"].([]any) {
			if r.(map[string]any)["error"] != nil && i < len(mine["records"].([]any)) {
				mine["records"].([]any)[i] = r
			}
		}
	}
	return differences("", want, got, nil)
}
