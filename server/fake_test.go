package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/compat"
	"understudy/eventstore/readmodel"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/cursor"
	"understudy/internal/fleet"
	"understudy/internal/logs"
	"understudy/run"
	"understudy/run/protocol"
	"understudy/run/spans"
	"understudy/run/usage"
	"understudy/run/webhook"
	"understudy/store"
	"understudy/thread"
	"understudy/thread/changes"
	"understudy/thread/search"
)

func TestMain(m *testing.M) {
	// fasthttp's clock never stops, and its cleaner of idle workers looks only every ten seconds whether it should.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/gofiber/fiber/v2/utils.StartTimeStampUpdater.func1.1"),
	)
}

const (
	someThread = "00000000-0000-4000-8000-000000000001"
	someRun    = "00000000-0000-7000-8000-000000000002"
	someID     = "00000000-0000-4000-8000-000000000003"
)

var someTime = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

// services stand in for all of them: they answer with fixed values, or err, and note what they were asked.
type services struct {
	err error

	mu    sync.Mutex
	asked []any

	asks      atomic.Value         // string: the interrupts of threads
	responded func([]run.Response) // after an answer to interrupts
	changed   atomic.Int32         // version of the assistant

	follow func() run.Follower
	events func(filters []protocol.Filter) protocol.Follower
	seen   int64 // answer of Seen
	touch  func([]changes.Change)
}

func (s *services) note(v ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, v...)
	return s.err
}

func (s *services) last() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return nil
	}
	return s.asked[len(s.asked)-1]
}

type fakeAssistants struct{ *services }

func (f fakeAssistants) one() *assistant.Assistant {
	return &assistant.Assistant{ID: someID, GraphID: "g", Name: "n", Version: 1 + int(f.changed.Load()), CreatedAt: someTime, UpdatedAt: someTime}
}

func (f fakeAssistants) Create(_ context.Context, n assistant.New) (*assistant.Assistant, error) {
	return f.one(), f.note(n)
}

func (f fakeAssistants) Get(_ context.Context, a id.Assistant) (*assistant.Assistant, error) {
	return f.one(), f.note(a)
}

func (f fakeAssistants) Update(_ context.Context, _ id.Assistant, p assistant.Patch) (*assistant.Assistant, error) {
	return f.one(), f.note(p)
}

func (f fakeAssistants) Delete(_ context.Context, a id.Assistant, with bool) error {
	return f.note(a, with)
}

func (f fakeAssistants) Search(_ context.Context, q assistant.Query) ([]*assistant.Assistant, bool, error) {
	return []*assistant.Assistant{f.one(), f.one()}, true, f.note(q)
}

func (f fakeAssistants) Count(_ context.Context, q assistant.Query) (int, error) { return 7, f.note(q) }

func (f fakeAssistants) Versions(_ context.Context, a id.Assistant, m json.RawMessage, limit, offset int) ([]*assistant.Assistant, error) {
	return []*assistant.Assistant{f.one()}, f.note(a, m, limit, offset)
}

func (f fakeAssistants) SetLatest(_ context.Context, _ id.Assistant, v int) (*assistant.Assistant, error) {
	return f.one(), f.note(v)
}

func (f fakeAssistants) Drawing(_ context.Context, a string, x int) (json.RawMessage, error) {
	return json.RawMessage(`{"nodes":[],"edges":[]}`), f.note(a, x)
}

func (fakeAssistants) Graphs() []string { return []string{"g"} }

func (f fakeAssistants) Nodes(_ context.Context, a id.Assistant) (json.RawMessage, error) {
	return json.RawMessage(`{"nodes":[]}`), f.note(a)
}

func (f fakeAssistants) Schemas(_ context.Context, a id.Assistant) (json.RawMessage, error) {
	return json.RawMessage(`{"graph_id":"g"}`), f.note(a)
}

func (f fakeAssistants) Subgraphs(_ context.Context, _ id.Assistant, ns string, r bool) (json.RawMessage, error) {
	return json.RawMessage(`{}`), f.note(ns, r)
}

type fakeThreads struct{ *services }

func (f fakeThreads) one() *thread.View {
	asks, _ := f.asks.Load().(string)
	return &thread.View{Thread: thread.Thread{ID: someThread, Status: thread.Idle, CreatedAt: someTime, UpdatedAt: someTime, StateUpdatedAt: someTime, Interrupts: json.RawMessage(asks)}}
}

func (f fakeThreads) Create(_ context.Context, n thread.New) (*thread.View, error) {
	return f.one(), f.note(n)
}

func (f fakeThreads) Get(_ context.Context, t id.Thread) (*thread.View, error) {
	return f.one(), f.note(t)
}

func (f fakeThreads) Patch(_ context.Context, _ id.Thread, p thread.Patch) (*thread.View, error) {
	return f.one(), f.note(p)
}
func (f fakeThreads) Delete(_ context.Context, t id.Thread) error { return f.note(t) }
func (f fakeThreads) Search(_ context.Context, q thread.Search) ([]*thread.View, bool, error) {
	return []*thread.View{f.one()}, false, f.note(q)
}
func (f fakeThreads) Show(context.Context, thread.Search, *thread.View) error { return nil }
func (f fakeThreads) Count(_ context.Context, q thread.Search) (int, error)   { return 3, f.note(q) }

func (f fakeThreads) Copy(_ context.Context, t id.Thread) (*thread.View, error) {
	return f.one(), f.note(t)
}

func (f fakeThreads) ForkAt(_ context.Context, t id.Thread, at thread.Fork) (*thread.View, error) {
	return f.one(), f.note(t, at)
}

func (f fakeThreads) Usage(_ context.Context, t id.Thread) (thread.Usage, error) {
	return thread.Usage{Checkpoints: thread.Amount{Rows: 2, Bytes: 30}, Channels: map[string]thread.Amount{"b": {Rows: 1, Bytes: 4}, "a": {Rows: 3}}, Writes: thread.Amount{Rows: 1, Bytes: 5}}, f.note(t)
}

func (f fakeThreads) Tree(_ context.Context, t id.Thread, before id.Checkpoint, limit int) ([]thread.Step, error) {
	return []thread.Step{{ID: "1f0bd33e-8a23-6f9d-8001-b9fb5e9b9a58", Parent: "c0", Run: "r", Source: "loop", Number: 1}, {ID: "c0", Source: "input", Number: -1}}, f.note(t, before, limit)
}

func (f fakeThreads) Prune(_ context.Context, ids []id.Thread, s thread.Strategy, where *thread.Condition) (thread.Pruned, error) {
	if where != nil {
		return thread.Pruned{Unmatched: len(ids)}, f.note(ids, s, *where)
	}
	return thread.Pruned{Count: len(ids)}, f.note(ids, s)
}

func (f fakeThreads) State(_ context.Context, at checkpointer.Key, sub bool) (*checkpointer.Snapshot, error) {
	return &checkpointer.Snapshot{}, f.note(at, sub)
}

// Loaded has every entry.
func (f *fakeEntries) Loaded() int { return 1 }

func (f fakeThreads) ReadHistory(_ context.Context, q thread.HistoryQuery) (thread.Entries, error) {
	if err := f.note(q); err != nil {
		return nil, err
	}
	return &fakeEntries{}, nil
}

// fakeEntries are entries of a history, each created on demand.
type fakeEntries struct {
	n, of   int
	make    func(n int) (*checkpointer.Snapshot, error)
	partial func(n int) (entries int, partial, known bool)
	closed  atomic.Int32
	onClose func()
}

func (f *fakeEntries) Next(context.Context) (*checkpointer.Snapshot, error) {
	if f.n++; f.n > f.of {
		return nil, io.EOF
	}
	return f.make(f.n)
}

func (f *fakeEntries) Partial(context.Context) (entries int, partial, known bool, err error) {
	if f.partial == nil {
		return 0, false, true, nil
	}
	entries, partial, known = f.partial(f.n)
	return entries, partial, known, nil
}

func (f *fakeEntries) Close() {
	if f.closed.Add(1) == 1 && f.onClose != nil {
		f.onClose()
	}
}

func (f fakeThreads) UpdateState(_ context.Context, at thread.Place, u [][]graph.StateUpdate) (thread.Place, error) {
	at.ID = "c"
	return at, f.note(u)
}

type fakeUsage struct{ *services }

func (f fakeUsage) Report(_ context.Context, q usage.Query) (*usage.Report, error) {
	if err := f.note(q); err != nil {
		return nil, err
	}
	n := int64(7)
	until := usage.DayOf(q.Until)
	r := &run.Run{Graph: "g", Assistant: "a", Status: run.Error, EndedAt: time.Time{}.Add(time.Second)}
	sums := usage.Of(r, &run.Completion{LLMCalls: &n, TotalTokens: &n, ByModel: map[string]run.Usage{"m": {Calls: 7, Total: &n}}})
	return usage.NewReport(until-int64(q.Days)+1, until, map[int64][]usage.Sum{until: sums}), nil
}

type fakeSearch struct{ *services }

func (f fakeSearch) Search(_ context.Context, q search.Query, limit int) ([]search.Result, search.Place, error) {
	row := search.Row{Place: search.Place{Body: 7, Thread: someThread, Seq: 4}, Run: someRun, Type: "llm.human.input", CreatedAt: someTime, Shown: 3}
	return []search.Result{{Row: row, Snippet: []search.Part{{Text: "the "}, {Text: "cat", Match: true}}}}, row.Place, f.note(q, limit)
}

type fakeModels struct{ *services }

func (f fakeModels) Branches(_ context.Context, t, after id.Thread, limit int) (*readmodel.Lineage, error) {
	row := readmodel.Row{Thread: "child", Name: "parent", Ref: 3, Checkpoint: "c", At: someTime.UnixMicro()}
	return &readmodel.Lineage{Ancestors: []readmodel.Row{row}, Forks: []readmodel.Row{row, {Thread: "other"}}, Next: "other"}, f.note(t, after, limit)
}

func (f fakeModels) Message(_ context.Context, t id.Thread, message string) (*readmodel.Message, error) {
	return &readmodel.Message{ID: message, First: 3, Seq: 7, Run: someRun, At: someTime.UnixMicro(), Checkpoint: "c"}, f.note(t, message)
}

func (f fakeModels) Recent(_ context.Context, model string, before readmodel.Place, limit int) ([]readmodel.Row, readmodel.Place, error) {
	row := readmodel.Row{Thread: someThread, Name: "completed", Seq: 9, Ref: 8, Run: someRun, At: someTime.UnixMicro()}
	return []readmodel.Row{row, {Thread: "b.c", Seq: 1}}, row.Place(), f.note(model, before, limit)
}

type fakeRuns struct{ *services }

func (f fakeRuns) one() *run.Run {
	return &run.Run{ID: someRun, Thread: someThread, Assistant: someID, Status: run.Pending, Strategy: run.Enqueue, CreatedAt: someTime, UpdatedAt: someTime, Kwargs: run.Arguments{Arguments: graph.Arguments{Modes: []string{"values"}, Durability: "async"}}}
}

func (f fakeRuns) Create(_ context.Context, t id.Thread, r run.Request) (*run.Run, error) {
	return f.one(), f.note(t, r)
}

func (f fakeRuns) CreateBatch(_ context.Context, r []run.Request) ([]*run.Run, error) {
	return []*run.Run{f.one()}, f.note(r)
}

func (f fakeRuns) Begin(_ context.Context, t id.Thread, r run.Request) (*run.Run, run.Follower, error) {
	if err := f.note(t, r); err != nil {
		return nil, nil, err
	}
	return f.one(), f.follow(), nil
}

func (f fakeRuns) BeginWait(ctx context.Context, t id.Thread, r run.Request) (*run.Run, run.Follower, error) {
	return f.Begin(ctx, t, r)
}

func (f fakeRuns) Get(_ context.Context, t id.Thread, r id.Run) (*run.Run, error) {
	return f.one(), f.note(t, r)
}

func (fakeRuns) Completions(context.Context, ...*run.Run) (map[id.Run]*run.Completion, error) {
	return nil, nil
}

func (fakeRuns) Progress(context.Context, *run.Run) (*run.Completion, error) { return nil, nil }

func (f fakeRuns) List(_ context.Context, _ id.Thread, q run.Query) ([]*run.Run, error) {
	return []*run.Run{f.one()}, f.note(q)
}

func (f fakeRuns) Recent(_ context.Context, q run.Recent) ([]*run.Run, id.Run, error) {
	return []*run.Run{f.one()}, "0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10", f.note(q)
}

func (f fakeRuns) Spans(_ context.Context, r id.Run) (*run.Run, []spans.Span, error) {
	at := time.Unix(0, 0)
	return f.one(), []spans.Span{
		{ID: "1", Attempt: 1, Kind: graph.AttemptSpan, Name: "g", Start: at, Status: graph.SpanRunning},
		{
			ID: "1.1", Parent: "1", Attempt: 1, Kind: graph.ModelSpan, Name: "m", NS: "n:1", Node: "n", Step: 1, Start: at, First: at.Add(time.Second), End: at.Add(2 * time.Second),
			Status: graph.SpanError, Error: &graph.Failure{Type: "E", Message: "t", Detail: "s"}, Model: "x", Message: "id", Usage: &graph.SpanUsage{Input: 1, Output: 2, Total: 3, Cached: 1},
			Input: &graph.SpanContent{JSON: []byte(`["in"]`), Cut: true}, Output: &graph.SpanContent{JSON: []byte(`"out"`)},
		},
	}, f.note(r)
}

// Newest has one run of each thread.
func (f fakeRuns) Newest(_ context.Context, threads []id.Thread, limit int, fn func(*run.Run) error) error {
	for _, t := range threads[:min(limit, len(threads))] {
		x := f.one()
		x.Thread = t
		if err := fn(x); err != nil {
			return err
		}
	}
	return f.note(threads)
}

func (f fakeRuns) Delete(_ context.Context, t id.Thread, r id.Run) error { return f.note(t, r) }
func (f fakeRuns) Join(_ context.Context, t id.Thread, r id.Run) (run.Follower, error) {
	if err := f.note(t, r); err != nil {
		return nil, err
	}
	return f.follow(), nil
}

func (f fakeRuns) JoinStream(_ context.Context, t id.Thread, r id.Run, after *bridge.Offset, modes []string, cancel bool) (run.Follower, error) {
	if err := f.note(t, r, modes, cancel, after); err != nil {
		return nil, err
	}
	return f.follow(), nil
}

func (f fakeRuns) StreamThread(_ context.Context, t id.Thread, after *bridge.Offset, modes []string) (run.Follower, error) {
	if err := f.note(t, modes, after); err != nil {
		return nil, err
	}
	return f.follow(), nil
}

func (f fakeRuns) StreamEvents(_ context.Context, t id.Thread, filter protocol.Filter) (run.Follower, error) {
	if err := f.note(t, filter); err != nil {
		return nil, err
	}
	return f.follow(), nil
}

func (f fakeRuns) FollowEvents(_ context.Context, t id.Thread, filters ...protocol.Filter) (protocol.Follower, error) {
	if err := f.note(t, filters); err != nil {
		return nil, err
	}
	return f.events(filters), nil
}

func (f fakeRuns) StartOrResume(_ context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	return f.one(), f.note(t, req)
}

func (f fakeRuns) Respond(_ context.Context, t id.Thread, req run.Request, responses []run.Response) (*run.Run, error) {
	if f.responded != nil {
		f.responded(responses)
	}
	return f.one(), f.note(t, req, responses)
}

func (f fakeRuns) Fork(_ context.Context, t id.Thread, req run.Request) (*run.Run, error) {
	return f.one(), f.note(t, req)
}

func (f fakeRuns) Inject(_ context.Context, t id.Thread, req run.Request, check func(id.Assistant) error) (*run.Run, error) {
	if err := check(someID); err != nil {
		return nil, err
	}
	return f.one(), f.note(t, req)
}

func (f fakeRuns) Seen(context.Context, id.Thread) (int64, error) { return f.seen, nil }

func (f fakeRuns) SetPush(_ context.Context, t id.Thread, r id.Run, change func(list []webhook.Push, over bool) ([]webhook.Push, error)) error {
	list, err := change(nil, false)
	if err != nil {
		return err
	}
	return f.note(t, r, list)
}

func (f fakeRuns) Cancel(_ context.Context, t id.Thread, r []id.Run, a run.Action, wait bool) error {
	return f.note(t, r, wait, a)
}
func (f fakeRuns) CancelAll(_ context.Context, s string, a run.Action) error { return f.note(a, s) }
func (f fakeRuns) CountActive(_ context.Context, of run.Active) (run.ActiveCount, error) {
	return run.ActiveCount{Runs: 300}, f.note(of.Status, of.Graph)
}

func (f fakeRuns) CancelSome(_ context.Context, of run.Active, above id.Thread, a run.Action) (int, id.Thread, error) {
	if above != "" {
		return 0, "", f.note(of, above, a)
	}
	return 50, "0190d0f2-7b5a-7b7e-8000-3c7e5b1f5d10", f.note(of, above, a)
}

func (f fakeRuns) Queue(context.Context) (run.Queue, error) {
	return run.Queue{Pending: 4, Running: 2, Due: 1, First: someTime, Middle: someTime, FirstDue: someTime}, f.note()
}
func (f fakeRuns) Load() (most, used int) { return 10, 3 }

type fakeCrons struct{ *services }

func (f fakeCrons) one() *run.Cron {
	return &run.Cron{ID: someID, Assistant: someID, Schedule: "* * * * *", CreatedAt: someTime, UpdatedAt: someTime}
}

func (f fakeCrons) Create(_ context.Context, n run.NewCron) (*run.Cron, error) {
	return f.one(), f.note(n)
}

func (f fakeCrons) Get(_ context.Context, c id.Cron) (*run.Cron, error) {
	return f.one(), f.note(c)
}

func (f fakeCrons) Update(_ context.Context, _ id.Cron, p run.CronPatch) (*run.Cron, error) {
	return f.one(), f.note(p)
}
func (f fakeCrons) Delete(_ context.Context, c id.Cron) error { return f.note(c) }
func (f fakeCrons) Search(_ context.Context, q run.CronQuery) ([]*run.Cron, bool, error) {
	return []*run.Cron{f.one()}, false, f.note(q)
}

func (f fakeCrons) Count(_ context.Context, q run.CronQuery) (int, error) { return 1, f.note(q) }

type fakeItems struct{ *services }

func (f fakeItems) Put(_ context.Context, i store.Item) error { return f.note(i) }
func (f fakeItems) Get(_ context.Context, ns []string, key string, refresh *bool) (*store.Item, error) {
	return nil, f.note(ns, key, refresh)
}

func (f fakeItems) Delete(_ context.Context, ns []string, key string) error    { return f.note(ns, key) }
func (f fakeItems) Load(_ context.Context, i *store.Item) (*store.Item, error) { return i, nil }
func (f fakeItems) Search(_ context.Context, q store.Search, _ *bool) ([]*store.Item, error) {
	return nil, f.note(q)
}

func (f fakeItems) Namespaces(_ context.Context, q store.Namespaces) ([][]string, error) {
	return [][]string{{"a", "b"}}, f.note(q)
}

// record makes a record with its frame, as the run service publishes it.
func record(n int64, event, data string) *bridge.Record {
	return &bridge.Record{Offset: bridge.Offset{MS: 1, N: n}, Event: event, Data: []byte(data), Kept: true, Frame: compat.AppendFrame(nil, event, []byte(data))}
}

// scripted is a follower made of functions.
type scripted struct {
	next   func(context.Context) ([]*bridge.Record, error)
	result func(context.Context) (run.Result, error)
	close  func(left bool)
}

func newFollower(next func(context.Context) ([]*bridge.Record, error), result func(context.Context) (run.Result, error), close func(left bool)) run.Follower {
	return &scripted{next, result, close}
}

func (s *scripted) Next(ctx context.Context) ([]*bridge.Record, error) { return s.next(ctx) }
func (s *scripted) Result(ctx context.Context) (run.Result, error)     { return s.result(ctx) }
func (s *scripted) EnsureDurable(context.Context) error                { return nil }
func (s *scripted) Close(left bool)                                    { s.close(left) }

// line is a follower that returns the records sent to it. Closing records ends it.
type line struct {
	records chan *bridge.Record
	result  chan run.Result
	closed  chan bool // left
}

func newLine() *line {
	return &line{records: make(chan *bridge.Record, 1000), result: make(chan run.Result, 1), closed: make(chan bool, 10)}
}

func (l *line) follower() run.Follower {
	return newFollower(func(ctx context.Context) ([]*bridge.Record, error) {
		select {
		case r, ok := <-l.records:
			if !ok {
				return nil, io.EOF
			}
			return []*bridge.Record{r}, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, func(ctx context.Context) (run.Result, error) {
		select {
		case r := <-l.result:
			return r, nil
		case <-ctx.Done():
			return run.Result{}, context.Cause(ctx)
		}
	}, func(left bool) { l.closed <- left })
}

// world is a server on a port of its own.
type world struct {
	*services
	s    *Server
	addr string
	ln   net.Listener
	http *http.Client
	stop func() error // ends the server and waits for it
}

func options(f *services) Options {
	hub := changes.NewHub(slog.New(slog.DiscardHandler))
	f.touch = hub.Add
	return Options{Ratings: &Ratings{Tokens: someTokens, Now: time.Now}, Changes: hub, Search: fakeSearch{f}, ReadModels: fakeModels{f}, Usage: fakeUsage{f}, Doctor: fakeDoctor{f}, Fleet: &fleet.Keeper{Ring: logs.NewRing(), Now: time.Now, Load: func(*fleet.Server) {}}, Assistants: fakeAssistants{f}, Threads: fakeThreads{f}, Events: fakeEvents{f}, Runs: fakeRuns{f}, Crons: fakeCrons{f}, Items: fakeItems{f}, Version: "1.0.0", LangGraphVersion: func() string { return "1.2.22" }}
}

func setup(t testing.TB, change ...func(*Options)) *world {
	t.Helper()
	f := &services{}
	o := options(f)
	for _, c := range change {
		c(&o)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &world{services: f, s: New(o), addr: ln.Addr().String(), ln: ln}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.s.Serve(ctx, ln) }()
	transport := &http.Transport{DisableCompression: true} // tests see what is sent
	w.http = &http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var once sync.Once
	var result error
	w.stop = func() error {
		once.Do(func() {
			cancel()
			transport.CloseIdleConnections()
			result = <-done
		})
		return result
	}
	t.Cleanup(func() { _ = w.stop() })
	return w
}

// ask sends a request and reads the whole answer. Headers come in pairs.
func (w *world) ask(t testing.TB, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://"+w.addr+path, in)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.http.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(b)
}

// someToken is that of an address for feedback.
var (
	someTokens, _ = cursor.New(bytes.Repeat([]byte("k"), cursor.Size))
	someToken     = someTokens.Seal(`{"t":"` + someThread + `","r":"` + someRun + `","e":99999999999}`)
)
