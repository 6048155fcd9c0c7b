// Package usage sums up what runs used: by day, for everyone together and for each identity. Sums outlive the runs that they count.
//
// What a run used follows from its row, which is complete in the transaction that writes its end to the log. A follower of the log (NewLoop) keeps it by run, and adds
// it to the sums of its day. So runs that end at the same time never wait for each other at a row of sums. Sums of runs that are there are a read model of what is
// kept, which is one of the runs (Rebuilding); when a run is deleted, what it used moves to final sums, of which nothing else is left (Settle).
package usage

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/access"
	"understudy/id"
	"understudy/run"
)

// Kinds of sums.
const (
	All       = "all" // of a day; its Name is ""
	Graph     = "graph"
	Assistant = "assistant"
	Model     = "model"
	Caller    = "caller"
	took      = "took" // runs by how long they took: Name is the number of a bucket
	// tookBy begins the kinds of the same for each name of a kind: Name is the number of a bucket, a space and that name.
	tookBy = "took-"
)

// Sum is what runs used, of one kind and name.
type Sum struct {
	Kind   string `json:"k"`
	Name   string `json:"n,omitempty"`
	Runs   int64  `json:"r,omitempty"`
	Errors int64  `json:"e,omitempty"` // runs with status error or timeout
	Calls  int64  `json:"c,omitempty"` // of models
	Input  int64  `json:"i,omitempty"` // tokens; those that no model reported count as none
	Output int64  `json:"o,omitempty"`
	Total  int64  `json:"t,omitempty"`
}

// Add adds another sum.
func (s *Sum) Add(o *Sum) {
	s.Runs += o.Runs
	s.Errors += o.Errors
	s.Calls += o.Calls
	s.Input += o.Input
	s.Output += o.Output
	s.Total += o.Total
}

// times returns the sum, times a number.
func (s *Sum) times(n int64) Sum {
	return Sum{s.Kind, s.Name, n * s.Runs, n * s.Errors, n * s.Calls, n * s.Input, n * s.Output, n * s.Total}
}

// Ended is a run that has ended. Day and Run are its key where it is kept.
type Ended struct {
	Run      id.Run
	Identity string // a digest of whose run it was; "": that is not known
	Day      int64  // since 1970, UTC
	Sums     []Sum
}

// IdentityOf returns whose run it is, "": that is not known.
func IdentityOf(r *run.Run) string { return access.IdentityOfRun(r.Kwargs.Config) }

// maxName bounds the name of a model, which graphs may choose, in bytes.
const maxName = 200

// Of returns what a run that has ended adds to the sums, in order of kind and name. It is the same for the row of the run as it is stored.
func Of(r *run.Run, c *run.Completion) []Sum {
	whole := Sum{Kind: All, Runs: 1, Calls: value(c.LLMCalls), Input: value(c.InputTokens), Output: value(c.OutputTokens), Total: value(c.TotalTokens)}
	if r.Status == run.Error || r.Status == run.Timeout {
		whole.Errors = 1
	}
	of := func(kind, name string) Sum {
		s := whole
		s.Kind, s.Name = kind, name
		return s
	}
	out := []Sum{of(Graph, r.Graph), of(Assistant, string(r.Assistant))}
	for kind, by := range map[string]map[string]run.Usage{Model: c.ByModel, Caller: c.ByCaller} {
		for name, u := range by {
			out = append(out, Sum{Kind: kind, Name: nameOf(name), Runs: 1, Errors: whole.Errors, Calls: u.Calls, Input: value(u.Input), Output: value(u.Output), Total: value(u.Total)})
		}
	}
	in := bucket(r.EndedAt.Truncate(time.Microsecond).Sub(r.CreatedAt.Truncate(time.Microsecond)))
	for _, s := range out {
		out = append(out, Sum{Kind: tookBy + s.Kind, Name: in + " " + s.Name, Runs: 1})
	}
	out = append(out, whole, Sum{Kind: took, Name: in, Runs: 1})
	slices.SortFunc(out, compare)
	return out
}

func compare(a, b Sum) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) }

// nameOf makes of a name that a graph chose one that each storage keeps as it is, and JSON too. A name that Postgres refused would stop all sums.
func nameOf(name string) string {
	name = strings.ReplaceAll(string([]rune(name)), "\x00", "\uFFFD")
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// DayOf returns the day of a time.
func DayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// Date is the inverse of DayOf.
func Date(day int64) time.Time { return time.Unix(day*24*60*60, 0).UTC() }

// perOctave is how many buckets of durations there are between one and its double, so that a percentile is right within 19 %.
const perOctave = 4

func bucket(d time.Duration) string {
	ms := max(1, float64(d.Microseconds())/1000)
	return strconv.Itoa(int(math.Ceil(perOctave * math.Log2(ms))))
}

// Report is what was used in some days.
type Report struct {
	Since, Until int64 // days, both included
	Whole        Day
	Days         []Day              // one for each day
	By           map[string][]Named // by kind, those with the most tokens first
}

// Took is how long runs took, from creation to end; 0: that is not known of any.
type Took struct{ P50, P95 time.Duration }

// Day is the use of a day.
type Day struct {
	Day int64
	Sum
	Took
}

// Named is the use of one graph, model or other name.
type Named struct {
	Sum
	Took
}

// MaxNamed bounds the sums of a kind in a report.
const MaxNamed = 100

// NewReport puts the sums of days together. A sum may come in parts.
func NewReport(since, until int64, days map[int64][]Sum) *Report {
	r := &Report{Since: since, Until: until, By: map[string][]Named{Graph: {}, Assistant: {}, Model: {}, Caller: {}}}
	whole, named := &part{}, map[string]map[string]*part{}
	for kind := range r.By {
		named[kind] = map[string]*part{}
	}
	for day := since; day <= until; day++ {
		d := &part{}
		for i := range days[day] {
			s := &days[day][i]
			switch kind, ofName := strings.CutPrefix(s.Kind, tookBy); {
			case s.Kind == All:
				d.Add(s)
			case s.Kind == took:
				d.took(s.Name, s.Runs)
			case ofName && named[kind] != nil:
				in, name, _ := strings.Cut(s.Name, " ")
				partOf(named[kind], name).took(in, s.Runs)
			case named[s.Kind] != nil:
				partOf(named[s.Kind], s.Name).Add(s)
			}
		}
		r.Days = append(r.Days, Day{day, d.Sum, percentiles(d.buckets)})
		whole.add(d)
	}
	r.Whole = Day{Sum: whole.Sum, Took: percentiles(whole.buckets)}
	for kind := range r.By {
		r.By[kind] = most(kind, named[kind])
	}
	return r
}

// part is a part of a report.
type part struct {
	Sum
	buckets map[int]int64 // runs by how long they took
}

// took adds runs to the bucket with a number.
func (p *part) took(number string, runs int64) {
	if n, err := strconv.Atoi(number); err == nil {
		p.count(n, runs)
	}
}

func (p *part) count(n int, runs int64) {
	if p.buckets == nil {
		p.buckets = map[int]int64{}
	}
	p.buckets[n] += runs
}

func (p *part) add(o *part) {
	p.Add(&o.Sum)
	for n, runs := range o.buckets {
		p.count(n, runs)
	}
}

func partOf(byName map[string]*part, name string) *part {
	if byName[name] == nil {
		byName[name] = &part{}
	}
	return byName[name]
}

// most returns the sums of a kind, one for each name; what is beyond MaxNamed is together under the name "".
func most(kind string, byName map[string]*part) []Named {
	names := slices.SortedFunc(maps.Keys(byName), func(a, b string) int {
		x, y := byName[a], byName[b]
		return cmp.Or(cmp.Compare(y.Total, x.Total), cmp.Compare(y.Runs, x.Runs), cmp.Compare(a, b))
	})
	out := []Named{}
	named := func(name string, p *part) {
		p.Kind, p.Name = kind, name
		out = append(out, Named{p.Sum, percentiles(p.buckets)})
	}
	for _, name := range names[:min(len(names), MaxNamed)] {
		named(name, byName[name])
	}
	if len(names) > MaxNamed {
		rest := &part{}
		for _, name := range names[MaxNamed:] {
			rest.add(byName[name])
		}
		named("", rest)
	}
	return out
}

// percentiles returns the upper bounds of the buckets with the run in the middle and with that at 95 %.
func percentiles(buckets map[int]int64) (t Took) {
	order, all := []int{}, int64(0)
	for n, runs := range buckets {
		order = append(order, n)
		all += runs
	}
	slices.Sort(order)
	seen := int64(0)
	for _, n := range order {
		seen += buckets[n]
		upTo := time.Duration(math.Pow(2, float64(n)/perOctave) * float64(time.Millisecond)).Round(time.Millisecond)
		if t.P50 == 0 && 2*seen >= all {
			t.P50 = upTo
		}
		if t.P95 == 0 && 100*seen >= 95*all {
			t.P95 = upTo
		}
	}
	return t
}
