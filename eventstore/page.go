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

// PageQuery selects a page of rows of a thread. Pages are given by seq, which a row never changes: what is written meanwhile comes
// behind all that is there, so who reads on from the last row of a page misses nothing and sees nothing twice.
type PageQuery struct {
	Thread id.Thread
	Run    id.Run   // only its rows; "" all
	Types  []string // only events of these types, under today's name or an old one; nil: all. Not for messages
	After  Seq      // only rows above it
	Before Seq      // only rows below it; 0: no bound
	// Backward gives the last rows of those selected instead of the first. They ascend all the same.
	Backward bool
	Limit    int // at least 1
	// Bytes bounds what is loaded: rows until their contents have so many bytes, one row at least. Page.Rest names the others. 0: all are loaded.
	Bytes int
	// At is the root checkpoint whose transcript is read; "": the newest. For messages only.
	At id.Checkpoint
}

// Bound is the seq that rows stay below.
func (q *PageQuery) Bound() Seq {
	if q.Before == 0 {
		return math.MaxInt64
	}
	return q.Before
}

// Page is rows by ascending seq.
type Page struct {
	Rows []*Event
	// Rest are the places of the rows behind Rows that PageQuery.Bytes left out, and Load loads them, from the state of the database by then: rows do not
	// change, and one that is gone is an error.
	Rest []Place
	Load func(ctx context.Context, places []Place) ([]*Event, error)
	More bool // there are rows beyond it, in the direction in which was read
	// Incomplete: what was said before these rows is not known as a whole.
	Incomplete bool
}

// Next takes the next row off the page, and loads those of Rest, about so many bytes of contents at a time; io.EOF after the last.
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

// Through passes all rows through fn, which may change them: those that are loaded at once, the others as they are.
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

// Pager gives pages. Each is read from one state of the database.
type Pager interface {
	// LogPage returns events as they were written.
	LogPage(ctx context.Context, q PageQuery) (*Page, error)
	// MessagePage returns the transcript of a root checkpoint: one row for each entry, as it is now, under the seq, run and time
	// of its first event. Those that do not stand where their seq says have metadata `after_seq`, as Place.After. Without a recorded
	// transcript there are no rows.
	MessagePage(ctx context.Context, q PageQuery) (*Page, error)
	// KnowsRun reports whether a run of the thread exists, or has left events.
	KnowsRun(ctx context.Context, t id.Thread, r id.Run) (bool, error)
}

// oldNames are names of types that earlier writers used, by today's.
var oldNames = map[string][]string{
	TypeHuman: {"human_message"},
	TypeAI:    {"ai_message", "ai_tool_call"},
	TypeTool:  {"tool_result"},
}

// Canonical returns today's name of a type.
func Canonical(name string) string {
	for today, old := range oldNames {
		if slices.Contains(old, name) {
			return today
		}
	}
	return name
}

// Spellings returns types with all the names under which rows may have them, each once.
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
	Now     Seq // of the event that says what it is now
	Summary bool
	// Placed: After says where the row stands. So it is for markers, and for messages that were put before older ones. Other rows stand behind
	// all with a lower seq.
	Placed bool
	// After is First of the row that this one is put behind, 0 for the beginning, when rows are put in their places by ascending First. What
	// is put between them later does not change it.
	After Seq
	// Size is how many bytes the contents of both events have; set in Page.Rest.
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

// Fit returns how many of the first places to load so that their contents have at most so many bytes: one at least, if there is one. 0 bytes: all.
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

// SeqsOf returns the seqs of all events that places name, ascending, each once.
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

// place says where the rows of a whole transcript stand.
func place(all []Place) {
	lowest, some := Seq(math.MaxInt64), false // of the rows from here on
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Placed = all[i].Summary || all[i].First > lowest
		lowest, some = min(lowest, all[i].First), some || all[i].Placed
	}
	if !some {
		return
	}
	// A row was put behind the nearest one before it that was there already. before has the rows that can be that one for those that follow:
	// they ascend.
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

// Arrange puts rows of a transcript, which ascend by seq, in the order of the conversation: seq gives that of a row, and after the one that
// it names. A row that names one that is not there stands behind those with a lower seq.
func Arrange[R any](rows []R, seq func(R) Seq, after func(R) (Seq, bool)) []R {
	// Rows are linked to the next one, so that each is put in its place at once. 0 stands for the beginning.
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

// Places returns a page of a transcript. firsts has Event.First of revisions; of has the events of q.Run, and is not looked at without one.
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
	// Mostly they ascend; markers and what was put between others do not.
	slices.SortFunc(all, func(a, b Place) int { return int(a.First - b.First) })
	if len(all) <= q.Limit {
		return all, false
	}
	if q.Backward {
		return all[len(all)-q.Limit:], true
	}
	return all[:q.Limit], true
}

// Row returns the row of a place, of the events that First and Now name.
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
