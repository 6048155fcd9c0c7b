package postgres

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/access"
	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/storage/storagetest"
	"understudy/store"
	"understudy/thread"
)

// tripsTo returns the address of a database over a proxy that counts how often the client asks and
// then waits for an answer.
func tripsTo(t *testing.T, address string) (through string, trips *atomic.Int64) {
	u, err := url.Parse(address)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	trips = &atomic.Int64{}
	target := u.Host
	var conns sync.WaitGroup
	t.Cleanup(conns.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				return
			}
			var answered atomic.Bool // since the client asked last
			answered.Store(true)
			conns.Go(func() {
				defer server.Close()
				_, _ = io.Copy(server, eachRead{client, func() {
					if answered.Swap(false) {
						trips.Add(1)
					}
				}})
			})
			conns.Go(func() {
				defer client.Close()
				_, _ = io.Copy(client, eachRead{server, func() { answered.Store(true) }})
			})
		}
	})
	u.Host = listener.Addr().String()
	return u.String(), trips
}

// eachRead calls fn after each read of something.
type eachRead struct {
	net.Conn
	fn func()
}

func (r eachRead) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if n > 0 {
		r.fn()
	}
	return n, err
}

// However many checkpoints are read, the database is asked as often as for one.
func TestTripsOfTranscripts(t *testing.T) {
	t.Parallel()
	address, trips := tripsTo(t, postgrestest.Database(t))
	s := open(t, Options{URL: address})
	const many = 200
	var all []id.Checkpoint
	for n := 1; n <= many; n++ {
		put := growing("t", n)
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
			node := eventstore.Node{Whole: 1, Data: []byte{0}}
			if err := tx.PutNode("t", &node); err != nil {
				return err
			}
			return tx.PutTranscriptRow(&eventstore.Row{Thread: "t", Checkpoint: put.ID, Node: node.ID, Version: fmt.Sprint(n)})
		}))
		all = append(all, put.ID)
	}
	count := func(cs []id.Checkpoint) int64 {
		_, err := s.Transcripts(t.Context(), "t", cs) // statements are prepared
		require.NoError(t, err)
		fewest := int64(1 << 60) // others may use the storage, to look after it
		for range 5 {
			before := trips.Load()
			read, err := s.Transcripts(t.Context(), "t", cs)
			require.NoError(t, err)
			fewest = min(fewest, trips.Load()-before)
			for _, c := range cs {
				require.True(t, read.Has(c))
			}
		}
		return fewest
	}
	one, whole := count(all[:1]), count(all)
	require.Positive(t, one)
	require.LessOrEqual(t, whole, one+1) // a large answer may come in pieces while the client sends what ends the read
}

// A search of threads in reach of a filter asks the database as often as one without, also while a thread has a list that is too long for the index, and again when
// what was counted before is old.
func TestTripsOfFilteredSearches(t *testing.T) {
	t.Parallel()
	address, trips := tripsTo(t, postgrestest.Database(t))
	now := time.Unix(1_700_000_000, 0)
	s := open(t, Options{URL: address, Now: func() time.Time { return now }})
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		for n := range 300 {
			if err := tx.InsertThread(storagetest.FilteredThread(n)); err != nil {
				return err
			}
		}
		return nil
	}))
	count := func(of storagetest.FilteredSearch) (first, fewest int64) {
		first, fewest = -1, 1<<60 // others may use the storage, to look after it
		for range 5 {
			before := trips.Load()
			_, err := s.Threads().Threads(access.Narrow(t.Context(), access.Threads, of.Filter), of.Query)
			require.NoError(t, err)
			if n := trips.Load() - before; first < 0 {
				first, fewest = n, min(fewest, n)
			} else {
				fewest = min(fewest, n)
			}
		}
		return first, fewest
	}
	searches := storagetest.FilteredSearches(t)
	for _, of := range searches { // statements are prepared
		count(of)
	}
	_, without := count(searches[0])
	equal := func() {
		t.Helper()
		for _, of := range searches[1:] {
			_, with := count(of)
			require.Equal(t, without, with, of.Name)
		}
	}
	equal()
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		long := storagetest.FilteredThread(300)
		long.Metadata = []byte(`{"members":["u7"` + strings.Repeat(`,"x"`, 200) + `]}`)
		return tx.InsertThread(long)
	}))
	equal()
	and := searches[slices.IndexFunc(searches, func(of storagetest.FilteredSearch) bool { return of.Name == "and" })]
	again := int64(1 << 60) // of the first search after an hour, the fewest for the reason above
	for range 5 {
		now = now.Add(time.Hour)
		first, later := count(and)
		again = min(again, first)
		require.Equal(t, without, later)
	}
	require.Equal(t, without+1, again)
}

// A history with transcripts asks the database as often for a page of many checkpoints as for one, of a thread whose messages were condensed.
func TestTripsOfHistories(t *testing.T) {
	t.Parallel()
	address, trips := tripsTo(t, postgrestest.Database(t))
	s := open(t, Options{URL: address})
	threads := thread.NewService(thread.Options{
		Store: s.Threads(), Snapshots: checkpointer.NewSnapshots(s.Threads(), nil), Overlay: overlay.New(s, overlay.Config{Settings: overlay.Defaults()}),
	})
	_, err := threads.Create(t.Context(), thread.New{ID: "t"})
	require.NoError(t, err)
	graphs := s.Saver()
	const first, many = 10, 64 // checkpoints of the first page and of a later one
	said := []string{}
	for n := range first + 2*many {
		if said = append(said, fmt.Sprint("m", n)); len(said) > 7 {
			said = append([]string{fmt.Sprint("summary", n)}, said[5:]...)
		}
		put := &checkpointer.Put{
			Checkpoint: checkpointer.Checkpoint{
				Key: checkpointer.Key{Thread: "t", ID: id.Checkpoint(fmt.Sprintf("%03d", n))}, Data: fmt.Appendf(nil, `{"channel_versions":{"messages":"%d"}}`, n),
				Metadata: json.RawMessage(`{"source":"loop"}`), Tasks: json.RawMessage(`[]`), Shape: "shape",
			},
			Blobs:     []checkpointer.Blob{{Channel: "messages", Version: fmt.Sprint(n), Type: "msgpack", Data: messages(said)}},
			ShapeJSON: json.RawMessage(`{"out":["messages"],"channels":{"messages":{"kind":"LastValue"}}}`),
		}
		if n > 0 {
			put.Parent = id.Checkpoint(fmt.Sprintf("%03d", n-1))
		}
		require.NoError(t, graphs.Save(t.Context(), graph.Save{Put: put}))
	}
	count := func(limit int) int64 {
		fewest := int64(1 << 60) // statements are prepared in the first round, and others may use the storage, to look after it
		for range 5 {
			threads.Overlay.Forget("t") // nothing is remembered
			before := trips.Load()
			list, err := threads.History(t.Context(), thread.HistoryQuery{Thread: "t", Limit: limit})
			require.NoError(t, err)
			fewest = min(fewest, trips.Load()-before)
			require.Len(t, list, limit)
			require.Contains(t, string(list[0].Values), `"m0"`, "the condensed messages are shown")
		}
		return fewest
	}
	one, page := count(1), count(first)
	require.Positive(t, one)
	require.LessOrEqual(t, page, one+1) // a large answer may come in pieces while the client sends what ends the read
	second, third := count(first+many), count(first+2*many)
	require.LessOrEqual(t, second-page, one+1)
	require.LessOrEqual(t, third-second, one+1)
}

// messages is a list of messages of people, with their texts as IDs.
func messages(said []string) []byte {
	out := msgp.AppendArrayHeader(nil, uint32(len(said)))
	for _, text := range said {
		out = msgp.AppendMapHeader(out, 3)
		for _, s := range []string{"type", "human", "id", text, "content", text} {
			out = msgp.AppendString(out, s)
		}
	}
	return out
}

// What a step of a run reads comes with one round trip, and what it writes with the commit.
func TestTripsOfSteps(t *testing.T) {
	t.Parallel()
	address, trips := tripsTo(t, postgrestest.Database(t))
	s := open(t, Options{URL: address})
	now := time.Now()
	at := func(n int) *checkpointer.Put {
		put := growing("t", n)
		put.Parent = id.Checkpoint(fmt.Sprintf("%06d", n-1))
		return put
	}
	steps := []struct {
		name string
		do   func(tx *Tx, n int) error
	}{
		{"create a run on a new thread", func(tx *Tx, n int) error {
			of := id.Thread(fmt.Sprint("new", n))
			tx.ExpectNew(of)
			if err := tx.InsertThread(&thread.Thread{ID: of, CreatedAt: now, UpdatedAt: now}); err != nil {
				return err
			}
			return tx.InsertRun(&run.Run{ID: id.Run(of), Thread: of, Graph: "g", Status: run.Running, CreatedAt: now, UpdatedAt: now})
		}},
		{"create a run", func(tx *Tx, n int) error {
			tx.ExpectCreate("t")
			th, err := tx.Thread("t")
			if err != nil {
				return err
			}
			if _, err := tx.HasActiveRuns("t"); err != nil {
				return err
			}
			if err := tx.AppendEvents("t", []*eventstore.Event{{Thread: "t", Type: "run.start", Run: id.Run(fmt.Sprint("r", n)), Content: []byte("{}")}}); err != nil {
				return err
			}
			if err := tx.InsertRun(&run.Run{ID: id.Run(fmt.Sprint("r", n)), Thread: "t", Graph: "g", Attempt: 1, Status: run.Running, CreatedAt: now, UpdatedAt: now}); err != nil {
				return err
			}
			return tx.UpdateThread(th)
		}},
		{"save a checkpoint", func(tx *Tx, n int) error {
			of := &run.Run{ID: id.Run(fmt.Sprint("r", n)), Thread: "t"}
			put := at(n + 1)
			tx.ExpectPuts(put)
			tx.ExpectSave(of)
			if attempt, status, _, err := tx.Fence(of.ID); err != nil || attempt != 1 || status != run.Running {
				return fmt.Errorf("fence: %d, %s: %w", attempt, status, err)
			}
			for _, c := range []id.Checkpoint{put.ID, put.Parent} {
				if _, err := tx.TranscriptRow("t", c); err != nil {
					return err
				}
			}
			return tx.PutCheckpoint(put)
		}},
		{"update the state", func(tx *Tx, n int) error {
			put := at(n + 1)
			put.Thread = "u"
			tx.ExpectPuts(put)
			tx.ExpectUpdate("u")
			if _, err := tx.Thread("u"); err != nil {
				return err
			}
			if _, err := tx.HasActiveRuns("u"); err != nil {
				return err
			}
			if latest, err := tx.Find(checkpointer.Key{Thread: "u"}); err != nil || latest != put.Parent && n > 0 {
				return fmt.Errorf("latest is %s: %w", latest, err)
			}
			return tx.PutCheckpoint(put)
		}},
		{"end a run", func(tx *Tx, n int) error {
			of := &run.Run{ID: id.Run(fmt.Sprint("r", n)), Thread: "t"}
			tx.ExpectEnd(of)
			r, err := tx.Run("t", of.ID)
			if err != nil {
				return err
			}
			r.Status = run.Success
			if err := tx.UpdateRun(r); err != nil {
				return err
			}
			if active, err := tx.HasActiveRuns("t"); err != nil || active {
				return fmt.Errorf("active: %t: %w", active, err)
			}
			if head, err := tx.Head("t"); err != nil || head == nil || head.ID != at(n+1).ID {
				return fmt.Errorf("head %v: %w", head, err)
			}
			messages := 0
			if err := tx.RunMessages("t", of.ID, func(*eventstore.Event) error { messages++; return nil }); err != nil {
				return err
			}
			if _, err := tx.TakeModelCalls(of.ID); err != nil {
				return err
			}
			if err := tx.AppendEvents("t", []*eventstore.Event{{Thread: "t", Type: "run.end", Run: of.ID, Content: []byte("{}")}}); err != nil {
				return err
			}
			th, err := tx.Thread("t")
			if err != nil {
				return err
			}
			return tx.UpdateThread(th)
		}},
	}
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
		for _, of := range []id.Thread{"t", "u"} {
			if err := tx.InsertThread(&thread.Thread{ID: of, CreatedAt: now, UpdatedAt: now}); err != nil {
				return err
			}
		}
		return nil
	}))
	fewest := make([]int64, len(steps))
	for n := range 5 { // statements are prepared in the first round, and others may use the storage, to look after it
		for i, step := range steps {
			before := trips.Load()
			require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return step.do(tx, n) }), step.name)
			if took := trips.Load() - before; n == 0 || took < fewest[i] {
				fewest[i] = took
			}
		}
	}
	for i, step := range steps {
		want := int64(2)
		if i == 0 {
			want = 1 // of a new thread there is nothing to read
		}
		require.Equal(t, want, fewest[i], step.name)
	}
}

// The namespaces of a page come with a number of round trips that does not grow with theirs.
func TestTripsOfNamespaces(t *testing.T) {
	t.Parallel()
	address, trips := tripsTo(t, postgrestest.Database(t))
	s := open(t, Options{URL: address})
	var items []*store.Item
	for n := range 500 {
		items = append(items, &store.Item{Namespace: []string{"users", fmt.Sprintf("u%03d", n)}, Key: "k", Value: json.RawMessage(`{}`)})
	}
	require.NoError(t, s.Items().Apply(t.Context(), items))
	fewest := map[int]int64{}
	for _, limit := range []int{10, 500, 10, 500} {
		before := trips.Load()
		list, err := s.Items().ListNamespaces(t.Context(), store.Namespaces{Prefix: []string{"users"}, Limit: limit})
		require.NoError(t, err)
		require.Len(t, list, limit)
		if took := trips.Load() - before; fewest[limit] == 0 || took < fewest[limit] {
			fewest[limit] = took
		}
	}
	require.Equal(t, fewest[10], fewest[500])
}
