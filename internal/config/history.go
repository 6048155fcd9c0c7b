package config

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"understudy/run/spans"
)

// History is the history section: where transcripts replace the messages that summarization left.
type History struct {
	Overlay
	// Search keeps an index of the words of messages.
	Search bool
	// JSONL is the folder for files with the events of each thread, absolute; "" for none.
	JSONL string
	// Graphs has the complete settings of graphs with their own.
	Graphs map[string]Overlay
}

// Overlay is history, or one entry of history.graphs.
type Overlay struct {
	// State and the others select responses: state of a thread, its history, values of threads,
	// results of runs, streams.
	State, History, Threads, Wait, Stream, Updates bool
	// Markers is how condensed messages are marked: attached, system, summary_marker or off.
	Markers string
	// Key is the key of the values that holds messages.
	Key string
	// Partial keeps what a run streamed of an answer and did not save, and shows it after the run.
	Partial bool
	// FullThreads shows whole transcripts in lists of threads, not only the first message and the
	// last ones.
	FullThreads bool
	// MaxBytes bounds the values of one history; later entries show what the graph has. 0 for no
	// limit.
	MaxBytes ByteSize
}

// markerForms are what markers may be.
var markerForms = []string{"attached", "off", "summary_marker", "system"}

// traceLevels are what traces may be.
var traceLevels = []string{string(spans.Off), string(spans.Timings), string(spans.Content)}

func defaultHistory() History {
	return History{Search: true, Overlay: Overlay{State: true, History: true, Threads: true, Wait: true, Stream: true, Updates: true, Markers: "attached", Key: "messages", Partial: true, MaxBytes: 16 * MiB}}
}

// history reads the section. What an entry of graphs leaves out is as the section says, wherever
// in it graphs stands.
func (f *file) history(v value, key string) {
	h := &f.c.History
	var graphs value
	fields := f.overlay(&h.Overlay)
	fields["jsonl"] = f.jsonl
	fields["traces"] = func(v value, key string) {
		s, _ := v.data.(string)
		if !slices.Contains(traceLevels, s) {
			f.wrong(v, key, `write one of %s`, list(traceLevels))
			return
		}
		f.c.Traces.Level = spans.Level(s)
	}
	fields["traces_bytes"] = f.setSize(&f.c.Traces.Bytes, MiB)
	fields["traces_days"] = func(v value, key string) {
		n, _ := v.data.(json.Number)
		days, err := n.Float64()
		if err != nil || days <= 0 || days > 36500 {
			f.wrong(v, key, "write a number of days above 0, or leave it out: spans are kept as long as their run")
			return
		}
		f.c.Traces.Age = time.Duration(days * float64(24*time.Hour))
	}
	fields["search"] = f.setBool(&h.Search)
	fields["graphs"] = func(v value, _ string) { graphs = v }
	f.section(v, key, fields)
	if graphs.data == nil {
		return
	}
	key = join(key, "graphs")
	members, ok := graphs.data.([]member)
	if !ok {
		f.wrong(graphs, key, `is %s; write an object: {"agent": {"markers": "off"}}`, graphs.kind())
		return
	}
	h.Graphs = make(map[string]Overlay, len(members))
	for _, m := range members {
		one := h.Overlay
		f.section(m.value, join(key, m.key), f.overlay(&one))
		h.Graphs[m.key] = one
	}
}

// overlay reads the settings that the section and its entries of graphs have in common.
func (f *file) overlay(to *Overlay) map[string]func(value, string) {
	return map[string]func(value, string){
		"overlay": func(v value, key string) {
			f.section(v, key, map[string]func(value, string){
				"state": f.setBool(&to.State), "history": f.setBool(&to.History), "threads": f.shownThreads(to), "max_bytes": f.setSize(&to.MaxBytes, GiB),
				"wait": f.setBool(&to.Wait), "stream": f.setBool(&to.Stream), "updates": f.setBool(&to.Updates),
			})
		},
		"partial": f.setBool(&to.Partial),
		"markers": func(v value, key string) {
			s, _ := v.data.(string)
			if !slices.Contains(markerForms, s) {
				f.wrong(v, key, `write one of %s`, list(markerForms))
				return
			}
			to.Markers = s
		},
		"key": func(v value, key string) {
			if s := f.text(v, key, "messages"); s != "" {
				to.Key = s
			} else if _, isText := v.data.(string); isText {
				f.wrong(v, key, `is empty; name the key of the values that holds the messages, such as "messages"`)
			}
		},
	}
}

// shownThreads reads overlay.threads: a switch, or "full".
func (f *file) shownThreads(to *Overlay) func(value, string) {
	return func(v value, key string) {
		on, isSwitch := v.data.(bool)
		if to.FullThreads = v.data == "full"; !isSwitch && !to.FullThreads {
			f.wrong(v, key, `is %s; write true, false or "full"`, v.kind())
			return
		}
		to.Threads = on || to.FullThreads
	}
}

// setSize reads a size: a number of bytes, or text with a unit.
func (f *file) setSize(to *ByteSize, most ByteSize) func(value, string) {
	return func(v value, key string) {
		text, _ := v.data.(string)
		if n, ok := v.data.(json.Number); ok {
			text = n.String()
		}
		size, err := parseSize(text)
		if err != nil || size > most {
			f.wrong(v, key, `write a number of bytes, or a size with its unit such as "16MiB", of at most %s`, most)
			return
		}
		*to = size
	}
}

// strangers warns of settings for graphs that do not exist.
func (f *file) strangers() {
	for _, name := range slices.Sorted(maps.Keys(f.c.History.Graphs)) {
		if !slices.ContainsFunc(f.c.Graphs, func(g Graph) bool { return g.ID == name }) {
			f.warn("history.graphs."+name, "there is no such graph")
		}
	}
}
