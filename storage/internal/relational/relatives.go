package relational

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"understudy/eventstore"
	"understudy/id"
)

var (
	// LineagesOf reads the lineage of a thread and of its ancestors, the oldest first.
	LineagesOf = same("SELECT content FROM events JOIN event_bodies USING (body) WHERE thread_id = $1 AND type = '" + eventstore.TypeFork + "' ORDER BY seq")
	// ForksOf reads forks of a thread, also when it is gone.
	ForksOf      = same("SELECT thread_id, seq FROM event_lineage WHERE source_thread_id = $1 ORDER BY thread_id LIMIT $2")
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

// maxRelatives bounds how many relatives are looked at.
const maxRelatives = 1000

// relatives returns threads whose log may begin as that of t, those first that share most. lineages are those of t.
func relatives(q Querier, t id.Thread, lineages []eventstore.Lineage) ([]relative, error) {
	var list []relative
	seen := map[id.Thread]bool{t: true}
	add := func(r relative) {
		if r.thread != "" && !seen[r.thread] && len(list) < maxRelatives {
			seen[r.thread] = true
			list = append(list, r)
		}
	}
	// below adds the forks of a thread, and theirs.
	below := func(of relative) error {
		for next := len(list); ; next++ {
			if err := q.Query(ForksOf, func(r Row) error {
				add(relative{id.Thread(r.Text(0)), min(of.upTo, eventstore.Seq(r.Int(1)))})
				return nil
			}, of.thread, maxRelatives); err != nil {
				return err
			}
			if next >= len(list) {
				return nil
			}
			of = list[next]
		}
	}
	if err := below(relative{t, unlimited}); err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(lineages) {
		add(relative{l.Source, l.Seq})
		if err := below(relative{l.Source, l.Seq}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(a, b relative) int { return cmp.Compare(b.upTo, a.upTo) })
	return list, nil
}

// nearest returns the relative with a log that shares most; the zero value when there is none.
func nearest(q Querier, t id.Thread, lineages []eventstore.Lineage) (relative, error) {
	list, err := relatives(q, t, lineages)
	if err != nil {
		return relative{}, err
	}
	for _, r := range list {
		if r.upTo <= 0 {
			break
		}
		if there, err := has(q, hasLog, r.thread); err != nil || there {
			return r, err
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
