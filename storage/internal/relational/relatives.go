package relational

import (
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
)

var (
	// LineagesOf reads the lineage of a thread and of its ancestors, the oldest first.
	LineagesOf = same("SELECT content FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND type = '" + eventstore.TypeFork + "' ORDER BY seq")
	// ForksOf reads forks of a thread, also when it is gone, behind one of them: those first that share most.
	ForksOf      = same("SELECT thread_id, seq FROM event_lineage WHERE source_thread_id = $1 AND (seq, thread_id) < ($2, $3) ORDER BY seq DESC, thread_id DESC LIMIT $4")
	putLineage   = same(upsert("event_lineage", "thread_id", "source_thread_id, seq"))
	bodiesWithin = same("SELECT seq, body, content FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq")
)

func scanLineage(r Row) eventstore.Lineage {
	var l eventstore.Lineage
	_ = json.Unmarshal(r.Bytes(0), &l) // what cannot be read names no thread
	return l
}

// relative is a thread whose log begins as another one does, up to an event.
type relative struct {
	thread id.Thread
	upTo   eventstore.Seq
}

// forksPage is how many forks of a thread are read at once.
const forksPage = 100

// member is a relative that nearest may have to look at, or the forks of one that are not read yet, which share no more than upTo.
type member struct {
	relative
	unread *relative // the last fork that is read; nil: it is the relative itself
}

// family is a heap of members. On top is what may share most, and of those that share the same a relative.
type family []member

func (f family) Len() int      { return len(f) }
func (f family) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *family) Push(m any)   { *f = append(*f, m.(member)) }
func (f *family) Pop() any {
	last := len(*f) - 1
	m := (*f)[last]
	*f = (*f)[:last]
	return m
}

func (f family) Less(i, j int) bool {
	if f[i].upTo != f[j].upTo {
		return f[i].upTo > f[j].upTo
	}
	return f[i].unread == nil && f[j].unread != nil
}

// nearest returns the relative of t with a log that shares most; the zero value when there is none. lineages are those of t. Forks are read only of threads that
// are gone, and no more than needed: a thread with a log shares more than those that are reached through it.
func nearest(q Querier, t id.Thread, lineages []eventstore.Lineage) (relative, error) {
	first := relative{upTo: unlimited}
	f, known := &family{{relative{t, unlimited}, &first}}, map[id.Thread]bool{t: true}
	add := func(r relative) {
		if r.thread != "" && r.upTo > 0 && !known[r.thread] {
			known[r.thread] = true
			heap.Push(f, member{relative: r})
		}
	}
	shared := eventstore.Seq(unlimited)
	for _, l := range slices.Backward(lineages) {
		shared = min(shared, l.Seq)
		add(relative{l.Source, shared})
	}
	for f.Len() > 0 {
		m := heap.Pop(f).(member)
		if m.unread == nil {
			if there, err := has(q, hasLog, m.thread); err != nil || there {
				return m.relative, err
			}
			m.unread = &first
		}
		n, last := 0, relative{}
		if err := q.Query(ForksOf, func(r Row) error {
			n, last = n+1, relative{id.Thread(r.Text(0)), eventstore.Seq(r.Int(1))}
			add(relative{last.thread, min(m.upTo, last.upTo)})
			return nil
		}, m.thread, m.unread.upTo, m.unread.thread, forksPage); err != nil {
			return relative{}, err
		}
		if n == forksPage {
			heap.Push(f, member{relative{m.thread, min(m.upTo, last.upTo)}, &last})
		}
	}
	return relative{}, nil
}

// putBeside inserts events as PutEvents does. Those which the relative has too share its bodies.
func (tx *Tx) putBeside(t id.Thread, of relative, events []*eventstore.Event) error {
	first, last := events[0].Seq, min(events[len(events)-1].Seq, of.upTo)
	if first > last {
		return tx.PutEvents(t, events)
	}
	type stored struct {
		body    int64
		content []byte
	}
	there := map[eventstore.Seq]stored{}
	if err := tx.Query(bodiesWithin, func(r Row) error {
		there[eventstore.Seq(r.Int(0))] = stored{r.Int(1), r.Bytes(2)}
		return nil
	}, of.thread, first, last); err != nil {
		return err
	}
	shared := func(e *eventstore.Event) (int64, bool) {
		s, found := there[e.Seq]
		return s.body, found && bytes.Equal(s.content, e.Content)
	}
	for len(events) > 0 {
		_, with := shared(events[0])
		var bodies []int64
		n := 0
		for ; n < len(events); n++ {
			body, same := shared(events[n])
			if same != with {
				break
			}
			bodies = append(bodies, body)
		}
		var err error
		if with {
			err = tx.PutShared(t, events[:n], bodies)
		} else {
			err = tx.PutEvents(t, events[:n])
		}
		if err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// putLineages notes what an imported thread is a fork of, and what its ancestors are forks of: they may be imported later, or never.
func (tx *Tx) putLineages(t id.Thread, lineages []eventstore.Lineage) error {
	fork := t
	for _, l := range slices.Backward(lineages) {
		if l.Source == "" || l.Source == fork {
			return nil
		}
		if err := tx.Exec(putLineage, fork, l.Source, l.Seq); err != nil {
			return fmt.Errorf("lineage: %w", err)
		}
		fork = l.Source
	}
	return nil
}
