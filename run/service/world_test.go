package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"understudy/assistant"
	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/redistest"
	"understudy/run"
	"understudy/run/service"
	"understudy/run/webhook"
	"understudy/storage/sqlite"
	"understudy/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withCluster{m}, redistest.Dialing) }

// script is a graph that does what a test says. Only Stream is used.
type script struct {
	graph.Graph
	stream func(ctx context.Context, inv graph.Invocation, emit func(name, data string)) error
	events []graph.Event // in place of stream
}

func (s script) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		for _, e := range s.events {
			yield(e, nil)
		}
		if s.stream == nil {
			return
		}
		err := s.stream(ctx, inv, func(name, data string) { yield(graph.Event{Name: name, Data: json.RawMessage(data)}, nil) })
		if err != nil {
			yield(graph.Event{}, err)
		}
	}
}

type wire struct{}

// world is a service at work on a database of its own.
type world struct {
	t       testing.TB
	dir     string
	options service.Options
	graphs  *graph.Registry
	rows    *sqlite.Store
	bridge  *bridge.Memory
	runs    *service.Service
	wrap    func(run.Store) run.Store            // of the next start; nil: the rows themselves
	overlay func(*sqlite.Store) *overlay.Overlay // of the next start; nil: that of the options
	stop    func()                               // ends the service and waits; idempotent
}

// newWorld serves the graphs. change may set options.
func newWorld(t testing.TB, graphs map[string]script, change func(*service.Options)) *world {
	t.Helper()
	return newWorldOn(t, nil, graphs, change)
}

// newWorldOn is newWorld with a storage that a function makes of the rows.
func newWorldOn(t testing.TB, wrap func(run.Store) run.Store, graphs map[string]script, change func(*service.Options)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), graphs: graph.NewRegistry(), wrap: wrap}
	for name, g := range graphs {
		require.NoError(t, w.graphs.Add(name, "", g))
	}
	w.options = service.Options{Jobs: 4, Grace: 5 * time.Second, Wire: wire{}, Webhooks: &webhook.Policy{AllowLoopback: true}}
	if os.Getenv("VERBOSE") != "" {
		w.options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&w.options)
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start opens the database and lets the service work, as a new process would.
func (w *world) start() {
	t := w.t
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	w.rows, err = sqlite.Open(ctx, sqlite.Options{Dir: w.dir})
	require.NoError(t, err)
	w.bridge = bridge.NewMemory(bridge.Options{})
	o := w.options
	o.Store, o.Bridge, o.Graphs = w.rows.Runs(), w.bridge, w.graphs
	if w.wrap != nil {
		o.Store = w.wrap(o.Store)
	}
	o.Snapshots = checkpointer.NewSnapshots(w.rows.Threads(), nil)
	if w.overlay != nil {
		o.Overlay = w.overlay(w.rows)
	}
	w.runs = service.New(o)
	require.NoError(t, assistant.NewService(w.rows.Assistants(), w.graphs, nil).EnsureDefaults(ctx, nil))
	busy, err := w.rows.Threads().Threads(ctx, thread.Query{Status: thread.Busy})
	require.NoError(t, err)
	var ids []id.Thread
	for _, b := range busy {
		ids = append(ids, b.ID)
	}
	require.NoError(t, w.runs.Recover(ctx, ids))
	ended := make(chan error, 1)
	go func() { ended <- w.runs.Run(ctx) }()
	var once sync.Once
	rows, br := w.rows, w.bridge
	w.stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-ended)
			require.NoError(t, br.Close())
			require.NoError(t, rows.Close())
		})
	}
}

func (w *world) thread() id.Thread {
	w.t.Helper()
	now := time.Now()
	row := &thread.Thread{ID: id.NewThread(), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Metadata: json.RawMessage(`{}`), Config: json.RawMessage(`{}`), Status: thread.Idle}
	require.NoError(w.t, w.rows.Threads().Write(w.t.Context(), func(tx thread.Tx) error { return tx.InsertThread(row) }))
	return row.ID
}

func request(graph string) run.Request {
	req := run.Request{AssistantID: graph, Strategy: run.Enqueue, IfNotExists: "reject", OnDisconnect: "continue", OnCompletion: "delete"}
	req.Input, req.Modes, req.Durability = json.RawMessage(`{"n":1}`), []string{"values"}, "async"
	return req
}

// events reads a follower to its end.
func (w *world) events(f run.Follower) (out []string) {
	w.t.Helper()
	for _, r := range w.records(f) {
		out = append(out, r.Event+" "+string(r.Data))
	}
	return out
}

// records reads to the end.
func (w *world) records(f run.Follower) (out []*bridge.Record) {
	w.t.Helper()
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	for {
		records, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(w.t, err)
		out = append(out, records...)
	}
}

func (w *world) status(t id.Thread, r id.Run) run.Status {
	w.t.Helper()
	row, err := w.runs.Get(w.t.Context(), t, r)
	require.NoError(w.t, err)
	return row.Status
}

func (w *world) row(t id.Thread) *thread.Thread {
	w.t.Helper()
	row, err := w.rows.Threads().Thread(w.t.Context(), t)
	require.NoError(w.t, err)
	return row
}

// wait joins a run until its end.
func (w *world) wait(t id.Thread, r id.Run) run.Result {
	w.t.Helper()
	f, err := w.runs.Join(w.t.Context(), t, r)
	require.NoError(w.t, err)
	defer f.Close(false)
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	res, err := f.Result(ctx)
	require.NoError(w.t, err)
	return res
}

var echo = script{stream: func(_ context.Context, _ graph.Invocation, emit func(string, string)) error {
	emit("values", `{"n":1}`)
	emit("values", `{"n":2}`)
	return nil
}}

// hang waits until it is cancelled; started gets a value each time it begins.
func hang(started chan<- id.Run) script {
	return script{stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		emit("values", `{"at":"hang"}`)
		started <- inv.Run
		<-ctx.Done()
		return context.Cause(ctx)
	}}
}
