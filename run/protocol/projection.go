// Package protocol projects the stream records of a thread to the events of thread-scoped event streaming ("protocol v2").
//
// The log of a thread has one form, the records that clients of the v1 wire read. A Projection folds them, in their order and run after run, into
// lifecycle, values, messages in content blocks, tool calls and requests for input. The contract is conformance/PROTOCOL_V2.md.
//
// Numbering comes before filtering, and depends on records and rows of runs alone: every connection, also one after a restart, sees an event under the
// same seq and event_id. Events of a run that is kept are numbered from the time at which the run started, in microseconds, so that runs whose records
// have expired leave the numbers of later ones as they were. A run that is not kept is only seen live: its events are numbered by the time of their records.
package protocol

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/bridge"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
	"understudy/run"
)

// Source has what a projection needs in addition to records. Its methods may be called again after an error.
type Source interface {
	// Run returns the row of a run; fault.NotFound when it was deleted.
	Run(ctx context.Context, r id.Run) (*run.Run, error)
	// Show returns a record as the reader sees it; nil: the reader does not see it.
	Show(ctx context.Context, r *run.Run, rec *bridge.Record) (*bridge.Record, error)
}

const inputRequested = "input.requested"

// Event is one selected event, or, with Gap, the report that events before it are gone.
type Event struct {
	Seq    int64 // 0: it is of the connection, and not numbered
	Method string
	Data   []byte // the envelope: JSON
	Gap    *Gap

	frame []byte // the fields event and data of server-sent events; Data is its end
}

// Frame returns the event for SSE, without the closing blank line; nil for a Gap.
func (e *Event) Frame() []byte {
	switch {
	case e.frame == nil:
		return nil
	case e.Seq == 0:
		return append(e.frame, "\r\n"...)
	}
	return append(strconv.AppendInt(append(e.frame, "\r\nid: "...), e.Seq, 10), "\r\n"...)
}

// Projection is the state of one connection. Its memory grows with the runs that it has seen by their ids, and with what is open in the current one.
// It is not safe for concurrent use.
type Projection struct {
	source  Source
	filters []Filter
	first   int64 // seq of the first event, selected or not
	last    int64 // seq of the last one
	awaited int64 // see Await
	met     bool  // an event had the seq awaited
	spaces  map[string]*space
	open    []*runState // runs that have begun and not ended: one, except where attempts overlap
	latest  *runState   // the run that began last; nil: none
	ended   map[id.Run]struct{}
	out     []Event
	pairs   jsonscan.Pairs
	key     []byte // of a message
}

// runState is what has been seen of a run that has not ended.
type runState struct {
	row     *run.Run
	durable bool // its records can be read again
	n       int64
	now     bridge.Offset // of the current record
	part    int           // events of that record so far
	at      int64         // its time, in ms
	ahead   int64         // by how much offsets are ahead of the time of the run, in ms: they leave room for records of the run before
	started bool          // root `running` was sent
	state   string        // the last event of the root's lifecycle
	over    bool          // the root's terminal event was sent
	attempt int

	graphs   openGraphs
	closed   map[string]string // namespaces that have ended in this attempt, and how
	agents   map[string]string // namespaces of agents that tools called, and their names
	calls    map[string]string // tasks that call tools, and the ids of these calls, until the tasks end
	messages openMessages
	done     map[string]bool     // messages that have ended, by key
	asked    map[string][]string // interrupts, and the namespaces in which they were requested
}

// New makes a projection of a thread for what any of the filters selects.
func New(source Source, filters ...Filter) *Projection {
	return &Projection{source: source, filters: filters, spaces: map[string]*space{}, ended: map[id.Run]struct{}{}}
}

// Select replaces the filters for the events that follow.
func (p *Projection) Select(filters ...Filter) {
	p.filters = filters
	clear(p.spaces)
}

// Last returns the seq of the last event, selected or not; 0 before the first.
func (p *Projection) Last() int64 { return p.last }

// First returns the seq of the first event, selected or not; 0 before it.
func (p *Projection) First() int64 { return p.first }

// Await has Met report whether there has been an event with a seq.
func (p *Projection) Await(seq int64) { p.awaited = seq }

// Met reports whether the event awaited has been.
func (p *Projection) Met() bool { return p.met }

// Began returns when the run began that began last; zero: none has.
func (p *Projection) Began() time.Time {
	if p.latest == nil {
		return time.Time{}
	}
	return p.latest.row.StartedAt
}

// Add returns the selected events of the next record. After an error nothing has changed, and the record may be added again. The slice is valid until the
// next call.
func (p *Projection) Add(ctx context.Context, rec *bridge.Record) ([]Event, error) {
	p.out = p.out[:0]
	if rec.Event == EndNotSaved { // whatever is selected: without it a client waits for an end that cannot come
		p.out = append(p.out, unsaved(rec))
		return p.out, nil
	}
	if rec.Run == "" || rec.Ephemeral {
		return nil, nil
	}
	if _, over := p.ended[rec.Run]; over {
		return nil, nil
	}
	i := slices.IndexFunc(p.open, func(st *runState) bool { return st.row.ID == rec.Run })
	if rec.Kind == bridge.Terminal {
		if i < 0 {
			p.ended[rec.Run] = struct{}{} // it was cancelled before it began
			return nil, nil
		}
		row, err := p.row(ctx, rec.Run)
		if err != nil {
			return nil, err
		}
		p.open[i].take(rec)
		p.end(p.open[i], row)
		return p.out, nil
	}
	if i < 0 {
		begun, err := p.begin(ctx, rec)
		if err != nil {
			return nil, err
		}
		if !begun {
			return nil, nil
		}
		i = len(p.open) - 1
	}
	st := p.open[i]
	if rec.Attempt > 0 && rec.Attempt < st.attempt {
		return nil, nil // from a server that does not know yet that it has lost the run
	}
	base, ns, _ := strings.Cut(rec.Event, "|")
	shown := rec
	if rec.Summarizer || p.shows(base, ns) { // who subscribes in the middle of a summary must not see the rest of it
		var err error
		if shown, err = p.source.Show(ctx, st.row, rec); err != nil {
			return nil, err
		}
	}
	st.take(rec)
	p.attempt(st, rec)
	st.at = max(st.at, rec.Offset.MS-st.ahead)
	if !st.started {
		st.started = true
		p.rootLifecycle(st, "running", "")
	}
	p.record(st, base, ns, rec, shown)
	return p.out, nil
}

// take notes the record whose events come.
func (st *runState) take(rec *bridge.Record) {
	if rec.Offset != (bridge.Offset{}) { // that of an end may have none
		st.now, st.part = rec.Offset, 0
	}
}

// shows reports whether the source is read for a record: whether what it shows is sent.
func (p *Projection) shows(base, ns string) bool {
	switch base {
	case "values", "updates", "messages":
		sp := p.space(ns)
		for i := range p.filters {
			if sp.matches[i] && p.filters[i].channel(base) {
				return true
			}
		}
	}
	return false
}

// selects reports whether a filter selects an event.
func (p *Projection) selects(seq int64, sp *space, method string) bool {
	for i := range p.filters {
		if f := &p.filters[i]; seq > f.Since && sp.matches[i] && f.channel(method) {
			return true
		}
	}
	return false
}

// row returns the row of a run; nil when it was deleted.
func (p *Projection) row(ctx context.Context, r id.Run) (*run.Run, error) {
	row, err := p.source.Run(ctx, r)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return row, err
}

// begin opens the run of a record, after it has ended those before that are over.
func (p *Projection) begin(ctx context.Context, rec *bridge.Record) (bool, error) {
	row, err := p.row(ctx, rec.Run)
	if err != nil {
		return false, err
	}
	if row == nil {
		p.ended[rec.Run] = struct{}{}
		return false, nil
	}
	// The next run of a thread may begin on another server before the live stream has the end of the one before.
	if err := p.settle(ctx); err != nil {
		return false, err
	}
	p.latest = &runState{
		row: row, durable: row.Durable(), attempt: rec.Attempt, at: rec.Offset.MS, closed: map[string]string{}, agents: map[string]string{}, calls: map[string]string{},
		done: map[string]bool{}, asked: map[string][]string{},
	}
	if p.latest.durable { // else the first record seen may be any
		p.latest.at = row.StartedAt.UnixMilli()
		p.latest.ahead = rec.Offset.MS - p.latest.at
	} else if p.awaited > row.StartedAt.UnixMicro() {
		p.last = max(p.last, p.awaited) // a reader that resumes in the middle of it
	}
	p.open = append(p.open, p.latest)
	return true, nil
}

// Settle ends runs that are over although no record says so: their server died before it published one. Call it when nothing comes.
func (p *Projection) Settle(ctx context.Context) ([]Event, error) {
	p.out = p.out[:0]
	err := p.settle(ctx)
	return p.out, err
}

// Overdue reports whether Settle would end a run.
func (p *Projection) Overdue(ctx context.Context) (bool, error) {
	for _, st := range p.open {
		row, err := p.row(ctx, st.row.ID)
		if err != nil {
			return false, err
		}
		if row == nil || row.Status.Over() {
			return true, nil
		}
	}
	return false, nil
}

// Open reports whether a run has begun and not ended.
func (p *Projection) Open() bool { return len(p.open) > 0 }

func (p *Projection) settle(ctx context.Context) error {
	rows := make([]*run.Run, len(p.open))
	for i, st := range p.open {
		var err error
		if rows[i], err = p.row(ctx, st.row.ID); err != nil {
			return err
		}
	}
	for i, st := range slices.Clone(p.open) {
		if rows[i] == nil || rows[i].Status.Over() {
			p.end(st, rows[i])
		}
	}
	return nil
}

// eventsOfAttempt is the distance between the numbers of attempts. A server that is killed has not written the last records that it showed: because of the
// distance, no later event has the number of one that a reader has seen and that is gone, and all readers count the next attempt from the same number.
const eventsOfAttempt = 1 << 18

// skip leaves out numbers, up to those of what comes next.
func (st *runState) skip() {
	if st.durable { // else ids are those of records
		st.n = (st.n/eventsOfAttempt + 1) * eventsOfAttempt
	}
}

// attempt closes what an earlier attempt of the run has left open: the next one calls its models and subgraphs again.
func (p *Projection) attempt(st *runState, rec *bridge.Record) {
	next := rec.Attempt
	if rec.Event == "metadata" {
		next = max(next, int(jsonInt(jsonscan.Raw(rec.Data, "attempt"))))
	}
	if next <= st.attempt {
		return
	}
	if st.attempt > 0 && st.started {
		st.skip() // what was open depends on what was written
		p.finishMessages(st, st.messages.all())
		p.closeSpaces(st, "", "interrupted", "")
		clear(st.closed)
		clear(st.agents)
		clear(st.calls)
		st.skip()
	}
	if st.attempt = next; st.durable {
		st.ahead = rec.Offset.MS - st.at
	}
}

// record projects one record of a run. shown is the record as the reader sees it; nil: not at all, and its events are only counted.
func (p *Projection) record(st *runState, base, ns string, rec, shown *bridge.Record) {
	switch base {
	case "values", graph.ModeIDs, "tasks": // a graph shows its first checkpoint before its first task, which says whose it is
	default:
		p.openSpace(st, ns)
	}
	switch base {
	case "values":
		p.values(st, ns, rec, shown)
	case "updates":
		p.updates(st, ns, rec, shown)
	case "messages":
		p.message(st, ns, rec.Data, shown == nil)
	case "tools":
		p.tools(st, ns, rec.Data)
	case "custom":
		p.emit(st, ns, "custom", "", func(b []byte) []byte { return append(append(append(b, `{"payload":`...), rec.Data...), '}') })
	case graph.ModeChannels:
		p.emit(st, ns, customOf+jsonscan.Text(rec.Data, "name"), "", func(b []byte) []byte { return append(b, rec.Data...) })
	case "tasks":
		p.tasks(st, ns, rec.Data)
	case graph.ModeIDs:
		p.emit(st, ns, "checkpoints", "", func(b []byte) []byte { return append(b, rec.Data...) })
	}
}

// values sends the state of a namespace, after the interrupts that it carries.
func (p *Projection) values(st *runState, ns string, rec, shown *bridge.Record) {
	p.interrupts(st, ns, rec.Data)
	if emptyState(rec.Data) { // as the graph has it: what a reader sees must not change how events are counted
		return
	}
	p.emit(st, ns, "values", "", func(b []byte) []byte {
		if shown == nil {
			return append(b, `{}`...)
		}
		return appendState(b, shown.Data)
	})
}

// updates sends what each node has written.
func (p *Projection) updates(st *runState, ns string, rec, shown *bridge.Record) {
	p.interrupts(st, ns, rec.Data)
	var from []byte
	if shown != nil {
		from = shown.Data
	}
	jsonscan.Each(rec.Data, func(key []byte, start, end int) bool {
		node := text(key)
		if node == interruptKey || string(rec.Data[start:end]) == "null" {
			return true
		}
		p.emit(st, ns, "updates", node, func(b []byte) []byte {
			delta := jsonscan.Raw(from, node)
			if len(delta) == 0 {
				delta = json.RawMessage("{}")
			}
			return appendState(b, delta)
		})
		return true
	})
}

// interrupts sends the interrupts of a record, each once, and the end of the run that they mean.
func (p *Projection) interrupts(st *runState, ns string, data []byte) {
	asks := false
	eachInterrupt(data, func(name string, item json.RawMessage) {
		if _, sent := st.asked[name]; sent {
			return
		}
		st.asked[name], asks = p.space(ns).levels, true
		p.emit(st, ns, inputRequested, "", func(b []byte) []byte {
			b = jsonobj.AppendText(append(b, `{"interrupt_id":`...), name)
			payload := jsonscan.Raw(item, "value")
			if payload == nil {
				payload = json.RawMessage("null")
			}
			return append(append(append(b, `,"payload":`...), payload...), '}')
		})
	})
	if !asks || st.over {
		return
	}
	st.over = true
	// The graphs that lead to the interrupt have stopped. Others may still be running next to them.
	for at := ns; at != ""; at = parentOf(at) {
		p.closeSpaces(st, at, "interrupted", "")
	}
	p.rootLifecycle(st, "interrupted", "")
}

// end ends a run, and all that is open in it. row: as it ended; nil: it was deleted, as a rollback does.
func (p *Projection) end(st *runState, row *run.Run) {
	state, why, ended := "interrupted", "", int64(0)
	if row != nil {
		if !row.EndedAt.IsZero() { // not the time of the record: another server may have published it, or none
			st.at = max(st.at, row.EndedAt.UnixMilli())
			ended = row.EndedAt.UnixMicro()
		}
		switch row.Status {
		case run.Success:
			if len(st.asked) == 0 {
				state = "completed"
			}
		case run.Error, run.Timeout:
			state, why = "failed", jsonscan.Text(row.Error, "message")
		}
	}
	p.finishMessages(st, st.messages.all())
	p.closeSpaces(st, "", state, "")
	if st.started && !st.over {
		st.over = true
		// The seq of the last event is the time at which the run ended: whether a reader has seen the whole run is known after its records have expired.
		st.n = max(st.n, ended-st.row.StartedAt.UnixMicro()-1)
		p.rootLifecycle(st, state, why)
	}
	p.open = slices.DeleteFunc(p.open, func(o *runState) bool { return o == st })
	p.ended[st.row.ID] = struct{}{}
}

// number assigns the seq of the next event.
func (p *Projection) number(st *runState) int64 {
	st.n++
	st.part++
	p.last = max(st.row.StartedAt.UnixMicro()+st.n, p.last+1)
	if p.first == 0 {
		p.first = p.last
	}
	p.met = p.met || p.last == p.awaited
	return p.last
}

// emit numbers an event, and encodes it if it is selected.
func (p *Projection) emit(st *runState, ns, method, node string, data func([]byte) []byte) {
	p.emitIn(st, p.space(ns), method, node, data)
}

func (p *Projection) emitIn(st *runState, sp *space, method, node string, data func([]byte) []byte) {
	seq := p.number(st)
	if !p.selects(seq, sp, method) {
		return
	}
	if strings.HasPrefix(method, customOf) {
		method = "custom"
	}
	b := append(append(append(make([]byte, 0, 512), "event: "...), method...), "\r\ndata: "...)
	start := len(b)
	b = append(b, `{"type":"event","event_id":"`...)
	if st.durable {
		// The live stream may have its records under other offsets than the database.
		b = strconv.AppendInt(append(append(b, st.row.ID...), '-'), st.n, 10)
	} else {
		b = append(b, st.now.String()...)
		b = strconv.AppendInt(append(b, '.'), int64(st.part), 10)
	}
	b = strconv.AppendInt(append(b, `","seq":`...), seq, 10)
	b = append(append(b, `,"method":"`...), method...)
	b = append(append(b, `","params":{"namespace":`...), sp.json...)
	b = strconv.AppendInt(append(b, `,"timestamp":`...), st.at, 10)
	b = data(append(b, `,"data":`...))
	if node != "" {
		b = jsonobj.AppendText(append(b, `,"node":`...), node)
	}
	b = append(b, `}}`...)
	p.out = append(p.out, Event{Seq: seq, Method: method, Data: b[start:len(b):len(b)], frame: b})
}
