package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/internal/web"
	"understudy/store"
	"understudy/thread"
)

// lister has one history.
type lister struct {
	fakeThreads
	entries *fakeEntries
}

func (l lister) ReadHistory(context.Context, thread.HistoryQuery) (thread.Entries, error) {
	return l.entries, nil
}

func history(t *testing.T, e *fakeEntries) *world {
	t.Helper()
	return setup(t, func(o *Options) { o.Threads = lister{o.Threads.(fakeThreads), e} })
}

// entryOf makes entries whose values have so many bytes.
func entryOf(size int) func(int) (*checkpointer.Snapshot, error) {
	return func(n int) (*checkpointer.Snapshot, error) {
		return &checkpointer.Snapshot{Values: fmt.Appendf(nil, `{"n":%d,"x":%q}`, n, strings.Repeat("x", size))}, nil
	}
}

const historyPath = "/threads/" + someThread + "/history?limit=1000"

func TestHistoriesOfAnySize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n, size int
		whole   bool // is sent with its length
	}{{0, 0, true}, {1, 0, true}, {3, 100, true}, {2, web.WholeBytes / 4, true}, {1, web.WholeBytes, false}, {500, 5_000, false}, {3, 3 << 20, false}} {
		e := &fakeEntries{of: tt.n, make: entryOf(tt.size)}
		res, body := history(t, e).ask(t, "GET", historyPath, "")
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, "application/json", res.Header.Get("Content-Type"))
		require.Equal(t, tt.whole, res.ContentLength >= 0, "%d of %d", tt.n, tt.size)
		var got []struct{ Values struct{ N int } }
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.Len(t, got, tt.n)
		for i := range got {
			require.Equal(t, i+1, got[i].Values.N)
		}
		require.EqualValues(t, 1, e.closed.Load())
	}
}

// An error has its status as long as nothing was sent, and afterwards cuts the answer off.
func TestHistoryThatFails(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 3, 200} {
		e := &fakeEntries{of: 500}
		e.make = func(n int) (*checkpointer.Snapshot, error) {
			if n == at {
				return nil, fault.New(fault.NotFound, "the thread is gone")
			}
			return entryOf(20_000)(n)
		}
		w := history(t, e)
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.addr+historyPath, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if at < 200 {
			require.NoError(t, err)
			require.Equal(t, 404, res.StatusCode)
			require.JSONEq(t, `{"detail":"the thread is gone"}`, string(body))
		} else {
			require.Equal(t, 200, res.StatusCode)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.False(t, json.Valid(body))
		}
		require.EqualValues(t, 1, e.closed.Load())
	}
}

// What the head says of the entries is known before it is sent, however many must be read for it.
func TestHistoryInPartSaysSo(t *testing.T) {
	t.Parallel()
	for _, partial := range []bool{true, false} {
		e := &fakeEntries{of: 100, make: entryOf(100_000), partial: func(n int) (int, bool, bool) { return 42, partial && n >= 50, n >= 50 }}
		res, body := history(t, e).ask(t, "GET", historyPath, "")
		require.True(t, json.Valid([]byte(body)))
		require.Equal(t, map[bool]string{true: "partial; entries=42"}[partial], res.Header.Get("X-Understudy-Overlay"))
	}
}

// A client that reads nothing holds up the entries, and its leaving ends them.
func TestHistoryIsMadeAsItIsRead(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	e := &fakeEntries{of: 1_000_000, make: entryOf(100_000), onClose: func() { close(ended) }}
	w := history(t, e)
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", historyPath)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	require.NoError(t, conn.Close())
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on without its client")
	}
	require.Less(t, e.n, 10_000, "entries that were not read")
}

func TestHeadOfALongHistory(t *testing.T) {
	t.Parallel()
	e := &fakeEntries{of: 100, make: entryOf(100_000)}
	w := history(t, e)
	res, body := w.ask(t, "HEAD", historyPath, "")
	require.Equal(t, 200, res.StatusCode)
	require.Empty(t, body)
	require.EqualValues(t, 1, e.closed.Load())
	require.EqualValues(t, 0, w.s.Slots.InUse())
}

// tail is what lists of 500 large elements are made of, each of which may fail.
type tail struct{ at, kind int }

func (f tail) fails(n int) error {
	switch {
	case n != f.at:
		return nil
	case f.kind == 0:
		return fault.New(fault.NotFound, "it is gone")
	}
	return fault.New(fault.Conflict, "it cannot be read")
}

const tailRows, tailBytes = 500, 20_000

var tailText = []byte(`{"x":"` + strings.Repeat("x", tailBytes) + `"}`)

type tailThreads struct {
	fakeThreads
	tail
}

func (f tailThreads) Search(context.Context, thread.Search) (page []*thread.View, _ bool, _ error) {
	for n := range tailRows {
		page = append(page, &thread.View{Thread: thread.Thread{ID: someThread, StreamHigh: int64(n)}})
	}
	return page, false, nil
}

func (f tailThreads) Show(_ context.Context, _ thread.Search, v *thread.View) error {
	v.Values = tailText
	return f.fails(int(v.StreamHigh))
}

type tailEvents struct {
	fakeEvents
	tail
}

func (f tailEvents) Messages(context.Context, eventstore.PageQuery) (*eventstore.Page, error) {
	page := &eventstore.Page{Rest: make([]eventstore.Place, tailRows)}
	for n := range page.Rest {
		page.Rest[n] = eventstore.Place{First: eventstore.Seq(n), Size: tailBytes}
	}
	page.Load = func(_ context.Context, places []eventstore.Place) (rows []*eventstore.Event, err error) {
		for _, p := range places {
			if err := f.fails(int(p.First)); err != nil {
				return nil, err
			}
			rows = append(rows, &eventstore.Event{Seq: p.First, Content: tailText})
		}
		return rows, nil
	}
	return page, nil
}

func (f tailEvents) Events(ctx context.Context, q eventstore.PageQuery) (*eventstore.Page, error) {
	return f.Messages(ctx, q)
}

type tailItems struct {
	fakeItems
	tail
}

func (f tailItems) Search(context.Context, store.Search, *bool) (items []*store.Item, _ error) {
	for n := range tailRows {
		items = append(items, &store.Item{Key: strconv.Itoa(n)})
	}
	return items, nil
}

func (f tailItems) Load(_ context.Context, i *store.Item) (*store.Item, error) {
	n, _ := strconv.Atoi(i.Key)
	if err := f.fails(n); err != nil {
		if f.kind == 0 {
			return nil, nil
		}
		return nil, err
	}
	return &store.Item{Key: i.Key, Value: tailText}, nil
}

type tailRuns struct {
	fakeRuns
	tail
}

func (f tailRuns) List(context.Context, id.Thread, run.Query) (runs []*run.Run, _ error) {
	for n := range tailRows {
		runs = append(runs, &run.Run{ID: id.Run(strconv.Itoa(n)), Left: true})
	}
	return runs, nil
}

func (f tailRuns) Get(_ context.Context, _ id.Thread, r id.Run) (*run.Run, error) {
	n, _ := strconv.Atoi(string(r))
	return &run.Run{ID: r, Kwargs: run.Arguments{Arguments: graph.Arguments{Input: tailText}}}, f.fails(n)
}

// Every list that may be large is sent while it is made. One that fails before its first byte has a status, one that fails later is cut off; an element
// that is gone by then is passed over where elements come and go by themselves. Rows of a log do not.
func TestLargeListsThatFail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, path, body string
		log                bool
	}{
		{"POST", "/threads/search", `{"limit":1000}`, false},
		{"POST", "/store/items/search", `{"namespace_prefix":["a"],"limit":1000}`, false},
		{"GET", "/threads/" + someThread + "/runs?limit=1000", "", false},
		{"GET", "/threads/" + someThread + "/messages?limit=1000", "", true},
		{"GET", "/threads/" + someThread + "/runs/" + someRun + "/events?limit=1000", "", true},
	} {
		for _, f := range []tail{{-1, 0}, {0, 1}, {20, 1}, {400, 1}, {3, 0}, {400, 0}} {
			w := setup(t, func(o *Options) {
				s := o.Items.(fakeItems).services
				o.Threads, o.Events, o.Items, o.Runs = tailThreads{fakeThreads{s}, f}, tailEvents{fakeEvents{s}, f}, tailItems{fakeItems{s}, f}, tailRuns{fakeRuns{s}, f}
			})
			req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+w.addr+tt.path, strings.NewReader(tt.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			name := fmt.Sprintf("%s %+v", tt.path, f)
			fails, early := f.at >= 0 && (f.kind == 1 || tt.log), f.at < 50
			switch {
			case !fails:
				require.NoError(t, err, name)
				require.True(t, json.Valid(body), name)
				rows := tailRows
				if f.at >= 0 {
					rows--
				}
				require.Equal(t, rows, strings.Count(string(body), "xxxx\"}"), name)
			case early:
				require.NoError(t, err, name)
				require.Equal(t, map[int]int{0: 404, 1: 409}[f.kind], res.StatusCode, name)
			default:
				require.Equal(t, 200, res.StatusCode, name)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
			}
			require.Eventually(t, func() bool { return w.s.Slots.InUse() == 0 }, 5*time.Second, time.Millisecond, name)
		}
	}
}
