package gateway

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/server/deerflow"
)

// revisedWithin is how many further rows are read for what became of messages: middleware changes them right after they were said.
const revisedWithin = 50

// messageTypes are the types that a message may have at first, and get.
var messageTypes = []string{eventstore.TypeHuman, eventstore.TypeAI, eventstore.TypeTool, eventstore.TypeSystem, eventstore.TypeMessage, eventstore.TypeSummarize}

// runRows returns the first rows of a run that have one of the types of q, if it has some, and are about a task, if one is named. It reads on until there are limit of
// them, however far apart they are.
func (s *feeds) runRows(ctx context.Context, q eventstore.PageQuery, limit int, task string) ([]*deerflow.Row, error) {
	types := eventstore.Spellings(q.Types)
	if slices.ContainsFunc(types, func(name string) bool { return strings.HasPrefix(name, "llm.") }) {
		q.Types = slices.Concat(types, messageTypes) // a message may get another type
	}
	found := &revisedRows{limit: limit, places: map[eventstore.Seq]*deerflow.Row{}, wanted: func(e *eventstore.Event) bool {
		return !instructs(e) && (len(types) == 0 || slices.Contains(types, e.Type))
	}}
	err := s.eachEvent(ctx, q, limit+revisedWithin, func(e *eventstore.Event) bool {
		if e.First != 0 {
			found.revise(e)
			return true
		}
		if task != "" && gjson.GetBytes(e.Metadata, "task_id").String() != task {
			return true
		}
		return found.add(&deerflow.Row{Event: e, Thread: q.Thread})
	})
	if err != nil {
		return nil, err
	}
	return found.first(), nil
}

// revisedRows collects rows that are wanted as they are after their revisions.
type revisedRows struct {
	limit   int
	wanted  func(*eventstore.Event) bool
	kept    []*deerflow.Row // the wanted ones, and the last few, which revisions may still make wanted or not
	settled int             // how many of kept are not among the last few
	places  map[eventstore.Seq]*deerflow.Row
}

// add adds a row. It reports whether further ones are needed.
func (r *revisedRows) add(row *deerflow.Row) bool {
	r.kept, r.places[row.Seq] = append(r.kept, row), row
	if len(r.kept)-r.settled > revisedWithin {
		if old := r.kept[r.settled]; r.wanted(old.Event) {
			r.settled++
		} else {
			r.kept = slices.Delete(r.kept, r.settled, r.settled+1)
			delete(r.places, old.Seq)
		}
	}
	return r.settled < r.limit
}

// revise puts a message as it is now in its place.
func (r *revisedRows) revise(e *eventstore.Event) {
	if row := r.places[e.First]; row != nil {
		now := *e
		now.Seq, now.CreatedAt = row.Seq, row.CreatedAt
		row.Event = &now
	}
}

// first returns the first rows that are wanted.
func (r *revisedRows) first() []*deerflow.Row {
	rows := slices.DeleteFunc(r.kept, func(row *deerflow.Row) bool { return !r.wanted(row.Event) })
	return rows[:min(r.limit, len(rows))]
}
