package spans

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/trace"

	"understudy/graph"
	"understudy/id"
)

const (
	maxSpans   = 20_000   // of an attempt
	maxContent = 16 << 20 // bytes of inputs and outputs of an attempt
	// flushEvery is how long spans of an attempt wait for others, flushCount how many do, until a save takes them along. The end of the attempt takes
	// what is left, so that a short one writes once.
	flushEvery = time.Second
	flushCount = 500
	// longOpen is after which a span that runs is stored without its end.
	longOpen = 2 * time.Second
)

// Policy is what is recorded of runs.
type Policy struct {
	Level Level // "": Off
	Bytes int   // of an input or output at most; 0: DefaultBytes
	// Keep is how long spans are kept; 0: as long as their run.
	Keep time.Duration
	// Langfuse names exported traces for it; nil: it gets none.
	Langfuse *Langfuse
}

// DefaultBytes is how much of an input or output is kept.
const DefaultBytes = 8 << 10

// Options are what a recorder is made of.
type Options struct {
	Attempt int
	Began   time.Time // zero: now
	Graph   string
	Policy
	Store bool // spans are stored
	Now   func() time.Time
	Log   *slog.Logger
	// Tracer exports the spans below that of Context, which is the attempt's; nil: they are not exported.
	Tracer  trace.Tracer
	Context context.Context //nolint:containedctx // only its span is read
	Thread  id.Thread
	User    string          // whose run it is; "": that is not known
	Input   json.RawMessage // of the run; nil: none
	// Asked is the context of the run, Config its configuration, and Metadata what its client says of it; nil: nothing.
	Asked, Config, Metadata json.RawMessage
}

// Recorder collects the spans of one attempt, until transactions store them. A nil Recorder records nothing. It is safe for concurrent use.
type Recorder struct {
	opts  Options
	began time.Time
	skew  time.Duration // of this machine's clock, by which graphs measure, to Now

	mu      sync.Mutex
	open    map[uint64]*open
	early   map[uint64]graph.SpanEnd // ends that came before their begins
	pending []Span                   // that are not known to be stored
	stored  int                      // how many left pending
	batch   int64                    // number of the next batch
	flushed time.Time                // when the last batch was stored
	saves   int
	total   int
	content int
	dropped int
	answer  *graph.SpanContent // the output of the last node of the graph that ended; nil: none, or it is not exported
}

// open is a span that has not ended.
type open struct {
	Span
	noted  bool       // it was stored as running
	export trace.Span // nil: it is not exported
}

// NewRecorder starts recording an attempt; nil if there is nothing to record for.
func NewRecorder(o Options) *Recorder {
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	o.Store = o.Store && (o.Level == Timings || o.Level == Content)
	if o.Tracer != nil && !trace.SpanFromContext(o.Context).IsRecording() {
		o.Tracer = nil
	}
	if !o.Store && o.Tracer == nil {
		return nil
	}
	now := o.Now()
	if o.Began.IsZero() {
		o.Began = now
	}
	r := &Recorder{opts: o, began: o.Began, skew: time.Until(now), open: map[uint64]*open{}, flushed: now}
	if o.Tracer != nil {
		r.exportRun()
	}
	return r
}

// Tracing is what a graph reports to.
func (r *Recorder) Tracing() *graph.Tracing {
	if r == nil {
		return nil
	}
	t := &graph.Tracing{Begin: r.begin, End: r.end}
	if r.opts.Level == Content {
		t.Content = r.opts.Bytes
	}
	return t
}

// ident returns the ID of a span of the attempt; that of the attempt for 0.
func (r *Recorder) ident(n uint64) string {
	if n == 0 {
		return strconv.Itoa(r.opts.Attempt)
	}
	return strconv.Itoa(r.opts.Attempt) + "." + strconv.FormatUint(n, 10)
}

// kept returns content that the attempt has room for.
func (r *Recorder) kept(c *graph.SpanContent) *graph.SpanContent {
	if c == nil || r.opts.Level != Content {
		return nil
	}
	if r.content += len(c.JSON); r.content > maxContent || !gjson.ValidBytes(c.JSON) { // batches hold it as it is
		return &graph.SpanContent{JSON: []byte("null"), Cut: true}
	}
	return c
}

func (r *Recorder) begin(b graph.SpanBegin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total >= maxSpans {
		if r.dropped++; r.dropped == 1 {
			r.opts.Log.Warn("further spans of a run are not recorded", "limit", maxSpans)
		}
		return
	}
	r.total++
	o := &open{Span: Span{
		ID: r.ident(b.ID), Parent: r.ident(b.Parent), Attempt: r.opts.Attempt, Kind: b.Kind, Name: b.Name, NS: b.NS, Node: b.Node, Step: b.Step,
		Start: b.At.Add(r.skew), Status: graph.SpanRunning, Provider: b.Provider, Input: r.kept(b.Input),
	}}
	if r.opts.Tracer != nil {
		o.export = r.export(&o.Span, b.Parent)
	}
	r.open[b.ID] = o
	if e, ended := r.early[b.ID]; ended {
		delete(r.early, b.ID)
		r.close(o, e)
	}
}

func (r *Recorder) end(e graph.SpanEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.open[e.ID]; o != nil {
		r.close(o, e)
	} else if r.dropped == 0 && len(r.early) < maxSpans {
		if r.early == nil {
			r.early = map[uint64]graph.SpanEnd{}
		}
		r.early[e.ID] = e
	}
}

// close moves a span to those that wait. The caller holds r.mu.
func (r *Recorder) close(o *open, e graph.SpanEnd) {
	delete(r.open, e.ID)
	s := o.Span
	s.End, s.Status, s.Error, s.Model, s.Message, s.Usage = e.At.Add(r.skew), e.Status, e.Error, e.Model, e.Message, e.Usage
	if !e.First.IsZero() {
		s.First = e.First.Add(r.skew)
	}
	s.Output = r.kept(e.Output)
	if r.opts.Tracer != nil && s.Kind == graph.NodeSpan && s.Parent == r.ident(0) && s.Output != nil {
		r.answer = s.Output
	}
	if o.export != nil {
		exportEnd(o.export, &s)
	}
	r.wait(s)
}

// wait has a span stored with the next batch. The caller holds r.mu.
func (r *Recorder) wait(s Span) {
	if r.opts.Store {
		r.pending = append(r.pending, s)
	}
}

// Saved records a save of checkpoints. It is exported by its own span.
func (r *Recorder) Saved(began time.Time, checkpoints int, err error) {
	if r == nil || !r.opts.Store {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total >= maxSpans {
		r.dropped++
		return
	}
	r.total++
	r.saves++
	s := Span{
		ID: r.ident(0) + ".s" + strconv.Itoa(r.saves), Parent: r.ident(0), Attempt: r.opts.Attempt, Kind: graph.SaveSpan, Name: "save",
		Start: began, End: r.opts.Now(), Status: graph.SpanSuccess, Checkpoints: checkpoints,
	}
	if err != nil {
		s.Status, s.Error = graph.SpanError, &graph.Failure{Type: "SaveError"}
	}
	r.wait(s)
}

// Due reports whether enough spans wait that a save should take them along.
func (r *Recorder) Due() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) > 0 && (len(r.pending) >= flushCount || r.opts.Now().Sub(r.flushed) >= flushEvery)
}

// NoteOpen has spans that have been running for long stored as they are, for readers on other servers, and for what remains if this one dies.
func (r *Recorder) NoteOpen() {
	if r == nil || !r.opts.Store {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.opts.Now().Add(-longOpen)
	for _, o := range r.open {
		if !o.noted && o.Start.Before(before) {
			o.noted = true
			r.pending = append(r.pending, o.Span)
		}
	}
}

// Close ends exported spans that are open when the attempt is over.
func (r *Recorder) Close(status graph.SpanStatus) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.open {
		if o.export != nil {
			s := o.Span
			s.End, s.Status = r.opts.Now(), openStatus(status)
			exportEnd(o.export, &s)
			o.export = nil
		}
	}
	r.exportAnswer()
}

// Now returns the spans of the attempt that are not stored, those that run included.
func (r *Recorder) Now() []Span {
	if r == nil || !r.opts.Store {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := append([]Span(nil), r.pending...)
	for _, o := range r.open {
		list = append(list, o.Span)
	}
	return append(list, Span{
		ID: r.ident(0), Attempt: r.opts.Attempt, Kind: graph.AttemptSpan, Name: r.opts.Graph, Start: r.began, Status: graph.SpanRunning, Dropped: r.dropped,
	})
}
