// Package fleet knows the servers of a database: each reports every few seconds that it lives, how much it does, and its last log lines.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"understudy/internal/logs"
	"understudy/internal/loop"
)

const (
	beatEvery = 5 * time.Second
	// compareEvery is how many reports there are from one comparison with the other servers to the next.
	compareEvery = 6
	// goneAfter is how long a server is shown that reports nothing: it may have died, or the database is away.
	goneAfter = 10 * time.Minute
	// Lately is the age of a report up to which its server is taken to live.
	Lately   = 6 * beatEvery
	keepLogs = 24 * time.Hour
	maxBatch = 200 // log lines of a report
	batches  = 20  // of log lines of a server that are kept
	lastBeat = 2 * time.Second
)

// Server is what a server reports of itself.
type Server struct {
	ID      string    `json:"id"`
	Version string    `json:"version"`
	Address string    `json:"address"` // "": a worker without a port
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Mode    string    `json:"mode"`
	Started time.Time `json:"started_at"`
	Beat    time.Time `json:"heartbeat_at"`
	Jobs    int       `json:"jobs"` // runs that it executes at once at most
	Running int       `json:"running"`
	Workers int       `json:"workers"` // Python processes
	// WorkerMemory is the resident memory of each, in bytes.
	WorkerMemory []int64 `json:"worker_memory,omitempty"`
	// Blocked is how often code of graphs kept an event loop of a worker busy for more than a second, and BlockedAt where the last time.
	Blocked   int    `json:"blocked,omitempty"`
	BlockedAt string `json:"blocked_at,omitempty"`
	// Problems are why graphs do not import, and why the last reload changed nothing.
	Problems []Problem `json:"problems,omitempty"`
	Memory   int64     `json:"memory_bytes"`
	Streams  int       `json:"streams"` // that are open
	Draining bool      `json:"draining"`
	// Graphs are those whose runs it executes, or will when they have loaded; nil: none, or a version that does not report them.
	Graphs []string `json:"graphs,omitempty"`
	// Live says where its live streams are, which servers of one database share: see Place. "": a version that does not report it.
	Live string `json:"live,omitempty"`
	// Keys are the IDs of the encryption keys that it can read with; nil: it has none, or is of a version that does not report them.
	Keys []string `json:"keys,omitempty"`
}

// Problem is why a graph cannot be used, or was not loaded again.
type Problem struct {
	Graph  string `json:"graph,omitempty"` // "": the configuration
	At     string `json:"at,omitempty"`    // file:line; "": not known
	Error  string `json:"error"`
	Reload bool   `json:"reload,omitempty"` // of the last reload: the version before is in service
}

// Bounds of what is reported: a row of the database, every few seconds.
const (
	maxProblems    = 20
	maxProblemText = 1000
)

// Bounded returns the first problems, with texts that are not too long.
func Bounded(problems []Problem) []Problem {
	out := slices.Clone(problems[:min(len(problems), maxProblems)])
	for i := range out {
		if text := out[i].Error; len(text) > maxProblemText {
			out[i].Error = strings.ToValidUTF8(text[:maxProblemText], "") + "…"
		}
	}
	return out
}

// Place names where live streams are: in Redis below a prefix of keys, or, without one, in the memory of the server. Addresses of Redis are left out: two servers may
// know one by different names.
func Place(redis bool, prefix string) string {
	if !redis {
		return "memory"
	}
	return "redis " + prefix
}

// Apart says what is wrong with servers whose live streams are in different places; "": nothing is, as far as it is known.
func Apart(one, other *Server) string {
	mine, mineRedis := strings.CutPrefix(one.Live, "redis ")
	theirs, theirsRedis := strings.CutPrefix(other.Live, "redis ")
	switch {
	case one.Live == other.Live, one.Live == "", other.Live == "":
		return ""
	case mineRedis && theirsRedis:
		return fmt.Sprintf("--redis-prefix is %q here and %q there", mine, theirs)
	case mineRedis:
		return "the other has no Redis"
	}
	return "the other has Redis, and this one has not"
}

// Logged is a line of the log of a server.
type Logged struct {
	Server string
	logs.Line
}

// Report is what a server stores of itself.
type Report struct {
	Server string
	At     time.Time
	Body   []byte
	Lines  []byte // those that are new; nil: none
}

// Store keeps reports, where several servers share a database.
type Store interface {
	// Beat stores a report in place of the one before. Of lines of the log it keeps those of the last reports, and it deletes what is older.
	Beat(ctx context.Context, r *Report, batches int, logsBefore time.Time) error
	// Servers returns the last reports, without lines.
	Servers(ctx context.Context) ([]Report, error)
	// Lines returns the newest reports with lines after a time, newest first.
	Lines(ctx context.Context, after time.Time, limit int) ([]Report, error)
	// Leave deletes the report of a server, and those before a time. Lines of the log stay.
	Leave(ctx context.Context, server string, before time.Time) error
}

// Keeper reports for a server. Its fields are set before use.
type Keeper struct {
	Self  Server // its constant part
	Load  func(*Server)
	Store Store // nil: this server is the only one
	Ring  *logs.Ring
	Now   func() time.Time
	Log   *slog.Logger

	draining atomic.Bool
	sent     uint64 // seq of the last line that is stored
	beats    int
	logged   map[string]bool // what was logged of other servers

	mu     sync.Mutex
	others map[string]Server // by ID, as they were when they reported last and did not end; nil: they were not read yet
}

// Drain has the server shown as one that ends.
func (k *Keeper) Drain() { k.draining.Store(true) }

// Run reports until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.Store == nil {
		<-ctx.Done()
		return nil
	}
	if err := k.beat(ctx); err != nil && ctx.Err() == nil {
		k.Log.WarnContext(ctx, "this server could not report itself; trying again", "error", err)
	}
	err := loop.Loop{Name: "heartbeat", Log: k.Log, Now: time.Now}.Every(ctx, beatEvery, k.beat)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastBeat)
	defer cancel()
	_ = k.beat(last) // its last lines; without them it is gone all the same
	_ = k.Store.Leave(last, k.Self.ID, k.Now().Add(-goneAfter))
	return err
}

func (k *Keeper) self() Server {
	s := k.Self
	s.Beat, s.Draining = k.Now(), k.draining.Load()
	k.Load(&s)
	return s
}

func (k *Keeper) beat(ctx context.Context) error {
	s := k.self()
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r := &Report{Server: s.ID, At: s.Beat, Body: body}
	lines, _ := k.Ring.After(k.sent, maxBatch)
	if len(lines) > 0 {
		r.Lines = logs.Encode(lines)
	}
	if err := k.Store.Beat(ctx, r, batches, s.Beat.Add(-keepLogs)); err != nil {
		return fmt.Errorf("report server %s: %w", s.ID, err)
	}
	if len(lines) > 0 {
		k.sent = lines[len(lines)-1].Seq
	}
	if ctx.Err() != nil { // the last report of a server that ends
		return nil
	}
	all, err := k.Servers(ctx)
	if err != nil {
		return err
	}
	k.note(all[1:], s.Beat)
	if k.beats++; k.beats%compareEvery == 1 {
		k.compare(ctx, &s, all[1:])
	}
	return nil
}

// note remembers other servers, also those that have left or died, until their last report is older than Lately: those that restart are back by then.
func (k *Keeper) note(others []Server, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.others == nil {
		k.others = map[string]Server{}
	}
	for _, s := range others {
		if !s.Draining {
			k.others[s.ID] = s
		}
	}
	maps.DeleteFunc(k.others, func(_ string, s Server) bool { return now.Sub(s.Beat) > Lately })
}

// Elsewhere reports whether another server executes runs of a graph: one that reported so in the last 30 seconds. Until the others have been read it is assumed.
func (k *Keeper) Elsewhere(graph string) bool {
	if k.Store == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.others == nil {
		return true
	}
	now := k.Now() // reports may stop to come
	for _, s := range k.others {
		if now.Sub(s.Beat) <= Lately && slices.Contains(s.Graphs, graph) {
			return true
		}
	}
	return false
}

// Executing returns the graphs whose runs other servers execute, by their reports of the last 30 seconds. known is false until the others have been read, and while
// one executes runs that does not report its graphs.
func (k *Keeper) Executing() (graphs []string, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.others == nil {
		return nil, k.Store == nil
	}
	now := k.Now()
	for _, s := range k.others {
		switch {
		case s.Jobs == 0 || now.Sub(s.Beat) > Lately:
		case len(s.Graphs) == 0:
			return nil, false
		default:
			graphs = append(graphs, s.Graphs...)
		}
	}
	slices.Sort(graphs)
	return slices.Compact(graphs), true
}

// compare logs, once for each, other servers that do not share live streams with this one: clients would miss events, and the server alone looks fine; and
// those that execute runs of other graphs: their assistants are listed here.
func (k *Keeper) compare(ctx context.Context, self *Server, others []Server) {
	for i := range others {
		other := &others[i]
		if other.Draining || self.Beat.Sub(other.Beat) > Lately {
			continue
		}
		where := []any{"other", other.ID, "other_host", other.Host, "other_address", other.Address}
		if why := Apart(self, other); why != "" && k.first("streams of "+other.ID) {
			k.Log.WarnContext(ctx, "another server of this database has its live streams elsewhere: clients of one miss events of runs of the other",
				append(where, "why", why, "fix", ApartFix)...)
		}
		if otherGraphs(self, other) && k.first("graphs of "+other.ID) {
			k.Log.WarnContext(ctx, "another server of this database serves other graphs: each lists the assistants of both, and refuses new runs of those that it does not serve",
				append(where, "graphs", strings.Join(self.Graphs, ", "), "other_graphs", strings.Join(other.Graphs, ", "),
					"fix", "give both the same langgraph.json, or each a database of its own (--database-url, --data)")...)
		}
	}
}

// first reports whether something is to be logged for the first time.
func (k *Keeper) first(what string) bool {
	if k.logged == nil {
		k.logged = map[string]bool{}
	}
	known := k.logged[what]
	k.logged[what] = true
	return !known
}

// otherGraphs reports whether two servers that execute runs differ in their graphs. One with none, or of a version that does not report them, is not known to.
func otherGraphs(a, b *Server) bool {
	mine, theirs := slices.Sorted(slices.Values(a.Graphs)), slices.Sorted(slices.Values(b.Graphs))
	return len(mine) > 0 && len(theirs) > 0 && !slices.Equal(mine, theirs)
}

// ApartFix is what to do about servers that Apart finds.
const ApartFix = "give all servers of the database the same --redis-url and --redis-prefix, and restart those that differ"

// Servers returns the servers of the database, this one first, then by their IDs.
func (k *Keeper) Servers(ctx context.Context) ([]Server, error) {
	list := []Server{k.self()}
	if k.Store == nil {
		return list, nil
	}
	reports, err := k.Store.Servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range reports {
		var s Server
		if r.Server == k.Self.ID || k.Now().Sub(r.At) > goneAfter {
			continue
		}
		if err := json.Unmarshal(r.Body, &s); err != nil {
			return nil, fmt.Errorf("report of server %s: %w", r.Server, err)
		}
		list = append(list, s)
	}
	slices.SortStableFunc(list[1:], func(a, b Server) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// LogQuery selects lines of logs.
type LogQuery struct {
	Server string     // "": all
	Level  slog.Level // and above
	Text   string     // in the message or an attribute, whatever the case
	Limit  int

	NoRequests bool // leaves out the lines of requests
}

func (q *LogQuery) match(l *Logged) bool {
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) != nil || level < q.Level || q.Server != "" && l.Server != q.Server {
		return false
	}
	if q.NoRequests && l.Message == logs.Request {
		return false
	}
	text := strings.ToLower(q.Text)
	if strings.Contains(strings.ToLower(l.Message), text) {
		return true
	}
	for key, v := range l.Attrs {
		if strings.Contains(strings.ToLower(key+"="+v), text) {
			return true
		}
	}
	return false
}

// Logs returns the last lines, oldest first: those of this server at once, of others up to five seconds later.
func (k *Keeper) Logs(ctx context.Context, q LogQuery) ([]Logged, error) {
	list, _, err := k.logs(ctx, &q, nil, true)
	return list, err
}

// logs returns lines behind those of seen, by server, of this server and perhaps of others, and what is closed when this server has more.
func (k *Keeper) logs(ctx context.Context, q *LogQuery, seen map[string]uint64, others bool) (list []Logged, more <-chan struct{}, err error) {
	add := func(server string, lines []logs.Line) {
		for _, line := range lines {
			if l := (Logged{server, line}); line.Seq > seen[server] && q.match(&l) {
				list = append(list, l)
			}
		}
	}
	own, more := k.Ring.After(seen[k.Self.ID], 1<<20)
	add(k.Self.ID, own)
	if others && k.Store != nil && q.Server != k.Self.ID {
		after := k.Now().Add(-keepLogs)
		if seen != nil {
			after = k.Now().Add(-4 * beatEvery)
		}
		reports, err := k.Store.Lines(ctx, after, 5*batches)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range reports {
			if r.Server == k.Self.ID {
				continue
			}
			lines, err := logs.Decode(r.Lines)
			if err != nil {
				return nil, nil, fmt.Errorf("log of server %s: %w", r.Server, err)
			}
			add(r.Server, lines)
		}
	}
	slices.SortStableFunc(list, func(a, b Logged) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Server, b.Server), cmp.Compare(a.Seq, b.Seq))
	})
	if len(list) > q.Limit {
		list = list[len(list)-q.Limit:]
	}
	return list, more, nil
}

// Follower returns lines as they are written.
type Follower struct {
	k     *Keeper
	q     LogQuery
	seen  map[string]uint64
	asked time.Time // when the lines of other servers were read
}

// othersEvery is how long lines of other servers, which come every beatEvery, are not asked for, however many this server writes.
const othersEvery = beatEvery / 2

// Follow follows lines that are written from now on, and returns up to q.Limit that were before.
func (k *Keeper) Follow(ctx context.Context, q LogQuery) (*Follower, []Logged, error) {
	f := &Follower{k: k, q: q, seen: map[string]uint64{}, asked: k.Now()}
	all := LogQuery{Level: slog.Level(-100), Limit: 1 << 20}
	list, _, err := k.logs(ctx, &all, nil, true)
	if err != nil {
		return nil, nil, err
	}
	return f, f.chosen(list), nil
}

// chosen notes lines as seen, and returns those of the query.
func (f *Follower) chosen(list []Logged) (out []Logged) {
	for i := range list {
		f.seen[list[i].Server] = max(f.seen[list[i].Server], list[i].Seq)
		if f.q.match(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out[max(0, len(out)-f.q.Limit):]
}

// Next waits for lines.
func (f *Follower) Next(ctx context.Context) ([]Logged, error) {
	all := LogQuery{Level: slog.Level(-100), Limit: 1 << 20}
	for {
		now := f.k.Now()
		others := now.Sub(f.asked) >= othersEvery
		if others {
			f.asked = now
		}
		list, more, err := f.k.logs(ctx, &all, f.seen, others)
		if err != nil {
			return nil, err
		}
		if out := f.chosen(list); len(out) > 0 {
			return out, nil
		}
		timer := time.NewTimer(othersEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-more:
			timer.Stop()
		case <-timer.C:
		}
	}
}
