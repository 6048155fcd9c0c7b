package answer

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph"
	"understudy/graph/message"
)

// stream is a message of a model whose tokens come.
type stream struct {
	place  place  // of the node that calls the model
	task   string // of the node, its whole namespace
	hidden bool
	number int // of the message; -1: nothing was shown
	hash   maphash.Hash
	spoke  bool // it has text
	ended  bool
	lost   bool   // its text was too long to wait
	text   []byte // that waits
}

// place is a node of a graph, which its namespace names.
type place struct{ graph, node string }

// speakers are the models of a place that may speak at the same time.
type speakers struct {
	open map[*stream]struct{} // that speak or wait, and have not ended
	// Tasks of the node that have spoken, and are not known to have written. Several execute one node after a fan-out.
	tasks   map[string]struct{}
	unnamed int // updates of the node that belong to none of its known tasks
}

// say shows a text as a message of its own.
func (a *Answer) say(text string) {
	if !a.live || text == "" {
		return
	}
	a.pieces = append(a.pieces, Piece{a.shown, text})
	a.shown++
}

// abandon ends all streams.
func (a *Answer) abandon() {
	for _, s := range a.waiting {
		s.lost = true
	}
	if a.current != nil {
		a.finish(a.current)
	}
	a.advance()
	clear(a.speakers)
}

// token adds a chunk of a message: [chunk, metadata]. Messages that come as a whole are seen in the updates too.
func (a *Answer) token(data []byte) {
	pair := gjson.ParseBytes(data)
	m, ok := message.Read([]byte(pair.Get("0").Raw))
	if !ok || m.Type != message.TypeAIChunk {
		return
	}
	s := a.streams[m.ID]
	if s == nil {
		s = a.newStream(pair.Get("1"))
		a.streams[m.ID] = s
	}
	if s.hidden {
		return
	}
	if text := m.Text(); text != "" {
		s.spoke = true
		_, _ = s.hash.WriteString(text)
		a.show(s, text)
	}
	if _, ended := finishOf(m.ResponseMetadata); ended || m.Last {
		a.end(s)
	}
}

// newStream returns a stream that shows nothing yet, if clients see the model that makes it: models of middleware, such as summarizers, those of subagents, and
// those that tools call speak to the graph. So do those of subgraphs, unless the client chose to see them.
func (a *Answer) newStream(metadata gjson.Result) *stream {
	s := &stream{place: place{node: metadata.Get("langgraph_node").String()}, number: -1}
	s.hash.SetSeed(a.seed)
	var tags []string
	for _, tag := range metadata.Get("tags").Array() {
		tags = append(tags, tag.String())
	}
	ns := metadata.Get("langgraph_checkpoint_ns").String()
	s.task = ns
	if at := strings.LastIndexByte(ns, '|'); at >= 0 {
		s.place.graph = ns[:at]
	}
	nested, inTool := false, s.place.node == "tools"
	for i, level := range strings.Split(ns, "|") {
		nested = nested || i > 0 && !a.subgraphs
		inTool = inTool || strings.HasPrefix(level, "tools:")
	}
	caller := graph.CallerOf(s.place.node, nested, metadata.Get("lc_source").String(), tags...)
	s.hidden = caller != graph.Lead || inTool || slices.Contains(tags, "nostream") || slices.Contains(tags, "langsmith:nostream")
	return s
}

// show shows a text of a stream, or keeps it until the stream is the current one.
func (a *Answer) show(s *stream, text string) {
	if a.current == nil {
		a.current = s
	}
	if a.current == s {
		a.begin(s)
		if s.number < 0 {
			s.number = a.shown
			a.shown++
		}
		a.pieces = append(a.pieces, Piece{s.number, text})
		return
	}
	if s.lost {
		return
	}
	if len(s.text) == 0 {
		a.waiting = append(a.waiting, s)
	}
	s.text = append(s.text, text...)
	a.begin(s)
	if a.held += len(text); a.held > maxWaiting {
		a.held -= len(s.text)
		s.text, s.lost = nil, true
	}
}

// begin notes that a stream is not complete.
func (a *Answer) begin(s *stream) {
	s.ended = false
	at := a.speakers[s.place]
	if at == nil {
		at = &speakers{open: map[*stream]struct{}{}, tasks: map[string]struct{}{}}
		a.speakers[s.place] = at
	}
	if _, ok := at.open[s]; !ok {
		at.open[s], at.tasks[s.task] = struct{}{}, struct{}{}
	}
}

// finish undoes begin. Its task may speak again.
func (a *Answer) finish(s *stream) {
	s.ended = true
	if at := a.speakers[s.place]; at != nil {
		delete(at.open, s)
	}
}

// end notes that a stream is complete.
func (a *Answer) end(s *stream) {
	if s.spoke && !s.lost {
		a.sums[s.hash.Sum64()] = true
	}
	a.finish(s)
	if a.current == s {
		a.advance()
	}
}

// advance lets the next streams speak when the current one has ended.
func (a *Answer) advance() {
	for a.current == nil || a.current.ended {
		// What comes of it later would be in the middle of another message: it begins a new one.
		if a.current != nil {
			a.current.number = -1
		}
		a.current = nil
		if len(a.waiting) == 0 {
			return
		}
		s := a.waiting[0]
		a.waiting = a.waiting[1:]
		ended, text := s.ended, string(s.text)
		a.held -= len(s.text)
		s.text = nil
		if s.lost {
			continue
		}
		if a.show(s, text); ended {
			a.finish(s)
		}
	}
}

// endOf ends the streams of a task that has written. An update names its node, and not which of the node's tasks it is of: the ids of its messages may.
func (a *Answer) endOf(p place, update gjson.Result) {
	at := a.speakers[p]
	if at == nil {
		return
	}
	task, known := a.taskOf(p, update)
	if known {
		delete(at.tasks, task)
	} else if at.unnamed++; at.unnamed < len(at.tasks) {
		return
	}
	current := a.current
	for s := range at.open {
		if s != current && (!known || s.task == task) {
			a.end(s)
		}
	}
	if current != nil && current.place == p && !current.ended && (!known || current.task == task) {
		a.end(current) // the last one: others take its place
	}
	if !known || len(at.tasks) == 0 {
		delete(a.speakers, p)
	}
}

// taskOf returns the task at a place that has streamed a message of an update.
func (a *Answer) taskOf(p place, update gjson.Result) (task string, ok bool) {
	look := func(m gjson.Result) bool {
		if s := a.streams[m.Get("id").String()]; s != nil && s.place == p {
			if _, speaks := a.speakers[p].tasks[s.task]; speaks { // else a message of before, which the node writes again
				task, ok = s.task, true
			}
		}
		return !ok
	}
	if update.IsArray() { // of a node that wrote several times
		update.ForEach(func(_, u gjson.Result) bool { return eachMessage(u, look) })
	} else {
		eachMessage(update, look)
	}
	return task, ok
}

// eachMessage calls fn for the messages of an update until it returns false, which it then returns too.
func eachMessage(update gjson.Result, fn func(gjson.Result) bool) bool {
	written := update.Get("messages")
	if !written.IsArray() {
		return fn(written)
	}
	more := true
	written.ForEach(func(_, m gjson.Result) bool {
		more = fn(m)
		return more
	})
	return more
}
