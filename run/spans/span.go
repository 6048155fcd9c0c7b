// Package spans records what happened in a run and how long it took: its time in the queue, its attempts, and in them nodes, model calls, tools and saves.
// It never writes by itself: what it has collected goes into transactions that write about the run anyway.
package spans

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/graph"
)

// Level is how much is recorded.
type Level string

// Levels.
const (
	Off     Level = "off"
	Timings Level = "timings" // times, names, numbers of tokens, and types and stacks of errors
	Content Level = "content" // also inputs, outputs and texts of errors
)

// Span is one span of a run.
type Span struct {
	ID, Parent  string // ID is unique in the run: the number of the attempt, and for what is in it a number after a dot; Parent "": none
	Attempt     int    // 0: of a queue span before the first
	Kind        graph.SpanKind
	Name        string
	NS, Node    string // checkpoint namespace and name of the node that it belongs to
	Step        int
	Start       time.Time
	First       time.Time // first token of a model; zero: it did not stream
	End         time.Time // zero: it runs
	Status      graph.SpanStatus
	Error       *graph.Failure // Type, Message and Detail
	Model       string
	Provider    string
	Message     string // id of the message that a model answered with
	Usage       *graph.SpanUsage
	Checkpoints int // of a save
	Dropped     int // of an attempt: spans beyond the limit
	Input       *graph.SpanContent
	Output      *graph.SpanContent
}

// Drawn returns the ID that drawings of the graph have for the node of a node span: inner of the subgraph outer is outer:inner.
func (s Span) Drawn() string {
	if s.NS == "" {
		return s.Name
	}
	var path []string
	for part := range strings.SplitSeq(s.NS, "|") {
		if node, _, isNode := strings.Cut(part, ":"); isNode { // others number the calls of a subgraph
			path = append(path, node)
		}
	}
	return strings.Join(path, ":")
}

// stored is a span in a batch. Times are microseconds; those of First and End count from Start.
type stored struct {
	Number      string          `json:"i,omitempty"` // of the span in its attempt; "": the attempt itself
	Parent      uint64          `json:"p,omitempty"`
	Kind        string          `json:"k,omitempty"`
	Name        string          `json:"n,omitempty"`
	NS          string          `json:"ns,omitempty"`
	Node        string          `json:"nd,omitempty"` // "": of a node as Name
	Step        int             `json:"s,omitempty"`
	Start       int64           `json:"b"`
	First       int64           `json:"f,omitempty"`
	Took        *int64          `json:"t,omitempty"`  // nil: it runs
	Status      string          `json:"st,omitempty"` // "": success
	Error       *[3]string      `json:"e,omitempty"`  // type, text, stack
	Model       string          `json:"m,omitempty"`
	Provider    string          `json:"pr,omitempty"`
	Message     string          `json:"mi,omitempty"`
	Usage       *[4]int64       `json:"u,omitempty"` // input, output, total, cached
	Checkpoints int             `json:"c,omitempty"`
	Dropped     int             `json:"d,omitempty"`
	Input       json.RawMessage `json:"in,omitempty"`
	InputCut    bool            `json:"inc,omitempty"`
	Output      json.RawMessage `json:"out,omitempty"`
	OutputCut   bool            `json:"outc,omitempty"`
}

// batch is what one transaction stores.
type batch struct {
	Attempt int      `json:"a"`
	Began   int64    `json:"b"` // of the attempt, in microseconds
	Spans   []stored `json:"s"`
}

// number is that of a span within its attempt.
func (s *Span) number() string {
	prefix := strconv.Itoa(s.Attempt)
	if len(s.ID) <= len(prefix) {
		return ""
	}
	return s.ID[len(prefix)+1:]
}

func (s *Span) store() stored {
	out := stored{
		Number: s.number(), Kind: string(s.Kind), Name: s.Name, NS: s.NS, Step: s.Step, Start: s.Start.UnixMicro(), Model: s.Model, Provider: s.Provider,
		Message: s.Message, Checkpoints: s.Checkpoints, Dropped: s.Dropped,
	}
	if s.Node != s.Name || s.Kind != graph.NodeSpan {
		out.Node = s.Node
	}
	if s.Status != graph.SpanSuccess {
		out.Status = string(s.Status)
	}
	if prefix := len(strconv.Itoa(s.Attempt)) + 1; len(s.Parent) > prefix {
		out.Parent, _ = strconv.ParseUint(s.Parent[prefix:], 10, 64) // graphs have numbers
	}
	if !s.First.IsZero() {
		out.First = max(1, s.First.Sub(s.Start).Microseconds())
	}
	if !s.End.IsZero() {
		took := max(0, s.End.Sub(s.Start).Microseconds())
		out.Took = &took
	}
	if e := s.Error; e != nil {
		out.Error = &[3]string{e.Type, e.Message, e.Detail}
	}
	if u := s.Usage; u != nil {
		out.Usage = &[4]int64{u.Input, u.Output, u.Total, u.Cached}
	}
	if c := s.Input; c != nil {
		out.Input, out.InputCut = c.JSON, c.Cut
	}
	if c := s.Output; c != nil {
		out.Output, out.OutputCut = c.JSON, c.Cut
	}
	return out
}

// span is the inverse of store.
func (s *stored) span(attempt int) Span {
	of := strconv.Itoa(attempt)
	out := Span{
		ID: of, Attempt: attempt, Kind: graph.SpanKind(s.Kind), Name: s.Name, NS: s.NS, Node: s.Node, Step: s.Step, Start: time.UnixMicro(s.Start).UTC(),
		Status: graph.SpanStatus(s.Status), Model: s.Model, Provider: s.Provider, Message: s.Message, Checkpoints: s.Checkpoints, Dropped: s.Dropped,
	}
	if s.Number != "" {
		out.ID, out.Parent = of+"."+s.Number, of
	}
	if s.Parent > 0 {
		out.Parent = of + "." + strconv.FormatUint(s.Parent, 10)
	}
	if out.Node == "" && out.Kind == graph.NodeSpan {
		out.Node = s.Name
	}
	if out.Status == "" {
		out.Status = graph.SpanSuccess
	}
	if s.First > 0 {
		out.First = out.Start.Add(time.Duration(s.First) * time.Microsecond)
	}
	if s.Took != nil {
		out.End = out.Start.Add(time.Duration(*s.Took) * time.Microsecond)
	}
	if e := s.Error; e != nil {
		out.Error = &graph.Failure{Type: e[0], Message: e[1], Detail: e[2]}
	}
	if u := s.Usage; u != nil {
		out.Usage = &graph.SpanUsage{Input: u[0], Output: u[1], Total: u[2], Cached: u[3]}
	}
	if s.Input != nil {
		out.Input = &graph.SpanContent{JSON: s.Input, Cut: s.InputCut}
	}
	if s.Output != nil {
		out.Output = &graph.SpanContent{JSON: s.Output, Cut: s.OutputCut}
	}
	return out
}

// encode returns spans of an attempt as a batch.
func encode(attempt int, began time.Time, list []Span) []byte {
	return append(appendSpans(begin(attempt, began), list), end...)
}

// begin returns the beginning of an encoded batch, end is what follows its spans.
func begin(attempt int, began time.Time) []byte {
	return fmt.Appendf(nil, `{"a":%d,"b":%d,"s":[`, attempt, began.UnixMicro())
}

const end = "]}"

// appendSpans appends encoded spans to the beginning of a batch. Contents are valid JSON and copied as they are: encoding/json would read each again.
func appendSpans(dst []byte, list []Span) []byte {
	grow := 0
	for i := range list {
		grow += 256 + size(list[i].Input) + size(list[i].Output)
	}
	dst = slices.Grow(dst, grow)
	for i := range list {
		s := list[i].store()
		in, out := s.Input, s.Output
		s.Input, s.Output = nil, nil
		head, _ := json.Marshal(s) // texts and numbers
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = append(dst, head[:len(head)-1]...)
		if in != nil {
			dst = append(append(dst, `,"in":`...), in...)
		}
		if out != nil {
			dst = append(append(dst, `,"out":`...), out...)
		}
		dst = append(dst, '}')
	}
	return dst
}

func size(c *graph.SpanContent) int {
	if c == nil {
		return 0
	}
	return len(c.JSON)
}

// decode is the inverse of encode.
func decode(body []byte) (attempt int, began time.Time, list []Span, err error) {
	var b batch
	if err := json.Unmarshal(body, &b); err != nil {
		return 0, time.Time{}, nil, fmt.Errorf("decode spans: %w", err)
	}
	list = make([]Span, len(b.Spans))
	for i := range b.Spans {
		list[i] = b.Spans[i].span(b.Attempt)
	}
	return b.Attempt, time.UnixMicro(b.Began).UTC(), list, nil
}
