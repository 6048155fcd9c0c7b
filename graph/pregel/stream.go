package pregel

import (
	"context"
	"strconv"
	"sync"
	"time"

	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonplus"
)

// mostQueued is how many bytes of events may wait for the reader of a run before emitters block.
const mostQueued = 16 << 20

// stream is the queue between a run and its reader.
type stream struct {
	mu     sync.Mutex
	events []graph.Event
	size   int
	closed bool
	lost   bool          // an event was not queued, or dropped before it was taken
	notify chan struct{} // has room for one; filled when events are queued
	space  chan struct{} // closed when there is room again; nil without waiters
}

func newStream() *stream { return &stream{notify: make(chan struct{}, 1)} }

// push adds an event. While the reader is far behind it blocks, until ctx ends.
func (s *stream) push(ctx context.Context, e graph.Event) {
	e.Data = jsonplus.Shown(e.Data)
	s.mu.Lock()
	for s.size > mostQueued && !s.closed {
		if s.space == nil {
			s.space = make(chan struct{})
		}
		space := s.space
		s.mu.Unlock()
		select {
		case <-space:
		case <-ctx.Done():
			s.mu.Lock()
			s.lost = true
			s.mu.Unlock()
			return
		}
		s.mu.Lock()
	}
	if s.closed {
		s.lost = true
	} else {
		s.events = append(s.events, e)
		s.size += len(e.Data) + 64
		s.wake()
	}
	s.mu.Unlock()
}

func (s *stream) wake() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// take returns the queued events. spare becomes the buffer for coming events.
func (s *stream) take(spare []graph.Event) []graph.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events, s.size = spare[:0], 0
	if s.space != nil {
		close(s.space)
		s.space = nil
	}
	return events
}

// close drops queued and later events.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = s.lost || len(s.events) > 0
	s.closed, s.events = true, nil
	if s.space != nil {
		close(s.space)
		s.space = nil
	}
}

// incomplete reports whether events were lost.
func (s *stream) incomplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// modes are the stream modes of a run.
type modes struct {
	values, updates, tasks, checkpoints, debug, custom bool
	messages, tuples, events, tools, ids               bool
	subgraphs                                          bool
}

func modesOf(names []string, subgraphs bool) modes {
	m := modes{subgraphs: subgraphs}
	for _, name := range names {
		switch name {
		case "values":
			m.values = true
		case "updates":
			m.updates = true
		case "tasks":
			m.tasks = true
		case "checkpoints":
			m.checkpoints = true
		case "debug":
			m.debug = true
		case "custom":
			m.custom = true
		case "messages":
			m.messages = true
		case "messages-tuple":
			m.tuples = true
		case "events":
			m.events = true
		case "tools":
			m.tools = true
		case graph.ModeIDs:
			m.ids = true
		}
	}
	if m.tuples {
		m.messages = false
	}
	return m
}

// anyMessages reports whether messages are streamed.
func (m modes) anyMessages() bool { return m.messages || m.tuples }

// emits reports whether events of this graph are shown.
func (l *loop) emits() bool { return l.x.out != nil && (!l.nested || l.x.modes.subgraphs) }

func (l *loop) emit(name string, data []byte) {
	e := graph.Event{Name: name, NS: l.ns, Data: data}
	if l.ns == "" && name == "updates" && l.x.saves != nil && graph.MayCondense(data) {
		if e.Hold = l.x.saves.last(); l.keeps && l.x.durability != durabilityExit {
			e.Checkpoint = l.lineage.saved
		}
	}
	l.x.out.push(l.x.ctx, e)
}

// emitDebug wraps a payload of `tasks` or `checkpoints` for the debug mode.
func (l *loop) emitDebug(kind string, step int, payload []byte) {
	b := append(make([]byte, 0, len(payload)+128), `{"step":`...)
	b = strconv.AppendInt(b, int64(step), 10)
	b = append(b, `,"timestamp":"`...)
	b = time.Now().UTC().AppendFormat(b, "2006-01-02T15:04:05.000000+00:00")
	b = append(b, `","type":"`...)
	b = append(b, kind...)
	b = append(b, `","payload":`...)
	l.emit("debug", append(append(b, payload...), '}'))
}

// emitValues emits the state. held is closed when its checkpoint is committed; nil: the event does not wait for a commit.
func (l *loop) emitValues(data []byte, held <-chan struct{}, at id.Checkpoint) {
	e := graph.Event{Name: "values", NS: l.ns, Data: data}
	if l.ns == "" {
		e.Hold, e.Checkpoint = held, at
	}
	l.x.out.push(l.x.ctx, e)
}
