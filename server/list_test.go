package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/checkpointer"
	"understudy/internal/fault"
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
	}{{0, 0, true}, {1, 0, true}, {3, 100, true}, {2, wholeBytes / 4, true}, {1, wholeBytes, false}, {500, 5_000, false}, {3, 3 << 20, false}} {
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
	require.EqualValues(t, 0, w.s.slots.inUse())
}
