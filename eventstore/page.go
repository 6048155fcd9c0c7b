package eventstore

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strconv"

	"understudy/id"
	"understudy/internal/jsonobj"
)

// PageQuery selects a page of rows of a thread. Pages are bounded by seq, which never changes for a row, and new rows come after
// all existing ones. So a client that continues from the last row of a page misses no row and sees none twice.
type PageQuery struct {
	Thread id.Thread
	Run    id.Run   // only rows of this run; "": all
	Types  []string // only events of these types, by current or old name; nil: all. Not for messages
	After  Seq      // only rows above it
	Before Seq      // only rows below it; 0: no bound
	// Backward selects the last rows instead of the first. They are still in ascending order.
	Backward bool
	Limit    int // at least 1
	// Bytes limits what is loaded: rows until their contents have this many bytes, at least one row. Page.Rest has the others. 0: all are loaded.
	Bytes int
	// At is the root checkpoint whose transcript is read; "": the newest. For messages only.
	At id.Checkpoint
}

// Bound returns the seq below which rows are selected.
func (q *PageQuery) Bound() Seq {
	if q.Before == 0 {
		return math.MaxInt64
	}
	return q.Before
}

// Page is a list of rows by ascending seq.
type Page struct {
	Rows []*Event
	// Rest are the places of the rows after Rows that PageQuery.Bytes left out. Load loads them from the current state of the database: rows do not
	// change, and a missing row is an error.
	Rest []Place
	Load func(ctx context.Context, places []Place) ([]*Event, error)
	More bool // there are further rows in the direction of reading
	// Incomplete reports that the conversation before these rows is not completely known.
	Incomplete bool
}

// Next returns the next row of the page. It loads the rows of Rest, about this many bytes of content at a time. After the last row
// it returns io.EOF.
func (p *Page) Next(ctx context.Context, bytes int) (*Event, error) {
	if len(p.Rows) == 0 {
		if len(p.Rest) == 0 {
			return nil, io.EOF
		}
		n := Fit(p.Rest, bytes)
		rows, err := p.Load(ctx, p.Rest[:n])
		if err != nil {
			return nil, err
		}
		p.Rows, p.Rest = rows, p.Rest[n:]
	}
	row := p.Rows[0]
	p.Rows[0], p.Rows = nil, p.Rows[1:]
	return row, nil
}

// Through passes all rows through fn, which may change them: loaded rows at once, the others when they are loaded.
func (p *Page) Through(fn func([]*Event)) {
	fn(p.Rows)
	if load := p.Load; load != nil {
		p.Load = func(ctx context.Context, places []Place) ([]*Event, error) {
			rows, err := load(ctx, places)
			fn(rows)
			return rows, err
		}
	}
}

// Pager returns pages. Each is read from one state of the database.
type Pager interface {
	// LogPage returns events as they were written.
	LogPage(ctx context.Context, q PageQuery) (*Page, error)
	// MessagePage returns the transcript of a root checkpoint: one row for each entry, in its current form, with the seq, run and
	// time of its first event. Rows whose position differs from the order of seqs have the metadata `after_seq`, as Place.After.
	// Without a recorded transcript there are no rows.
	MessagePage(ctx context.Context, q PageQuery) (*Page, error)
	// KnowsRun reports whether a run of the thread exists, or has left events.
	KnowsRun(ctx context.Context, t id.Thread, r id.Run) (bool, error)
}

// oldNames maps current types to the names that earlier writers used.
var oldNames = map[string][]string{
	TypeHuman: {"human_message"},
	TypeAI:    {"ai_message", "ai_tool_call"},
	TypeTool:  {"tool_result"},
}

// Canonical returns the current name of a type.
func Canonical(name string) string {
	for today, old := range oldNames {
		if slices.Contains(old, name) {
			return today
		}
	}
	return name
}

// Spellings returns types with their current and old names, each once.
func Spellings(types []string) []string {
	var out []string
	for _, t := range types {
		t = Canonical(t)
		if !slices.Contains(out, t) {
			out = append(append(out, t), oldNames[t]...)
		}
	}
	return out
}

// Place is a row of a transcript.
type Place struct {
	First   Seq // of its first event: the seq of the row
	Now     Seq // of the event with its current content
	Summary bool
	// Placed reports that After is the row's position. It is set for markers, and for messages inserted before older ones. Other rows follow
	// all rows with a lower seq.
	Placed bool
	// After is First of the row that this one follows, 0 for the beginning, when rows are placed in order of ascending First. Rows inserted
	// between them later do not change it.
	After Seq
	// Size is the number of content bytes of both events; set in Page.Rest.
	Size int
}

// LogPlaces returns the places of rows of a log, which ascend.
func LogPlaces(seqs []Seq) []Place {
	places := make([]Place, len(seqs))
	for i, seq := range seqs {
		places[i] = Place{First: seq, Now: seq}
	}
	return places
}

// Fit returns how many of the first places to load so that their contents have at most this many bytes, at least one if there is one. 0 bytes:
// all.
func Fit(places []Place, bytes int) int {
	if bytes <= 0 {
		return len(places)
	}
	sum := 0
	for n := range places {
		if sum += places[n].Size; sum > bytes && n > 0 {
			return n
		}
	}
	return len(places)
}

// SeqsOf returns the seqs of all events in places, ascending, each once.
func SeqsOf(places []Place) []Seq {
	seqs := make([]Seq, 0, 2*len(places))
	for _, p := range places {
		seqs = append(seqs, p.First, p.Now)
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// SetSizes sets Place.Size from the sizes of contents by seq.
func SetSizes(places []Place, sizes map[Seq]int) {
	for i := range places {
		p := &places[i]
		if p.Size = sizes[p.Now]; p.First != p.Now {
			p.Size += sizes[p.First]
		}
	}
}

// place sets the positions of the rows of a whole transcript.
func place(all []Place) {
	lowest, some := Seq(math.MaxInt64), false // of the rows from here on
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Placed = all[i].Summary || all[i].First > lowest
		lowest, some = min(lowest, all[i].First), some || all[i].Placed
	}
	if !some {
		return
	}
	// A row follows the nearest earlier row with a lower seq. before has the candidates for the rows to come, in ascending order.
	var before []Seq
	for i := range all {
		for len(before) > 0 && before[len(before)-1] > all[i].First {
			before = before[:len(before)-1]
		}
		if len(before) > 0 && all[i].Placed {
			all[i].After = before[len(before)-1]
		}
		before = append(before, all[i].First)
	}
}

// Arrange puts rows of a transcript, which ascend by seq, into the order of the conversation. seq returns the seq of a row, and after that
// of the row it follows. If that row is missing, the row follows those with a lower seq.
func Arrange[R any](rows []R, seq func(R) Seq, after func(R) (Seq, bool)) []R {
	// A linked list, so that each insertion takes constant time. 0 is the beginning.
	next, bySeq := make([]int, len(rows)+1), make(map[Seq]int, len(rows)+1)
	bySeq[0] = 0
	last := 0
	for i, row := range rows {
		at := last
		if named, ok := after(row); ok {
			if known, ok := bySeq[named]; ok {
				at = known
			}
		}
		i++
		next[i], next[at] = next[at], i
		if at == last {
			last = i
		}
		bySeq[seq(row)] = i
	}
	out := make([]R, 0, len(rows))
	for i := next[0]; i != 0; i = next[i] {
		out = append(out, rows[i-1])
	}
	return out
}

// Places returns a page of a transcript. firsts has Event.First of revisions; of has the events of q.Run, and is ignored without one.
func (t *Transcript) Places(q PageQuery, firsts map[Seq]Seq, of map[Seq]bool) (page []Place, more bool) {
	all := make([]Place, 0, len(t.Entries))
	for _, e := range t.Entries {
		p := Place{First: e.Seq, Now: e.Seq, Summary: e.Summary}
		if first := firsts[e.Seq]; first != 0 {
			p.First = first
		}
		all = append(all, p)
	}
	place(all)
	bound := q.Bound()
	all = slices.DeleteFunc(all, func(p Place) bool {
		return p.First <= q.After || p.First >= bound || q.Run != "" && !of[p.First]
	})
	// Mostly they ascend; markers and inserted messages do not.
	slices.SortFunc(all, func(a, b Place) int { return int(a.First - b.First) })
	if len(all) <= q.Limit {
		return all, false
	}
	if q.Backward {
		return all[len(all)-q.Limit:], true
	}
	return all[:q.Limit], true
}

// Row returns the row of a place from the events that First and Now refer to.
func (p *Place) Row(first, now *Event) *Event {
	row := *now
	row.Seq, row.Run, row.CreatedAt = first.Seq, first.Run, first.CreatedAt
	if p.Placed {
		o := jsonobj.Of(row.Metadata)
		o.Set("after_seq", json.RawMessage(strconv.FormatInt(int64(p.After), 10)))
		row.Metadata = o.JSON()
	}
	return &row
}
