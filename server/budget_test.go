package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/store"
)

// largeItems has as many items of that size as a search asks for.
type largeItems struct {
	fakeItems
	size int
}

func (l largeItems) Search(_ context.Context, q store.Search, _ *bool) (list []*store.Item, err error) {
	for n := range q.Limit {
		list = append(list, &store.Item{Namespace: []string{"a"}, Key: fmt.Sprint(n)})
	}
	return list, nil
}

func (l largeItems) Load(_ context.Context, i *store.Item) (*store.Item, error) {
	i.Value = []byte(`"` + strings.Repeat("x", l.size) + `"`)
	return i, nil
}

// However many clients stop reading long answers, these hold no more memory than the budget. What does not fit is put off, short answers are not,
// and an answer that was begun goes on when there is room.
func TestSlowReadersShareABudget(t *testing.T) {
	t.Parallel()
	const limit, size = 24 << 20, 4 << 20
	w := setup(t, func(o *Options) { o.Items, o.MaxReads = largeItems{o.Items.(fakeItems), size}, limit })
	search := func(conn net.Conn) {
		const body = `{"namespace_prefix":["a"],"limit":12}`
		fmt.Fprintf(conn, "POST /store/items/search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	var slow []net.Conn
	statuses := map[string]int{}
	for range 40 {
		conn, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		search(conn)
		status := make([]byte, len("HTTP/1.1 200"))
		_, err = io.ReadFull(conn, status)
		require.NoError(t, err)
		if statuses[string(status[9:])]++; string(status[9:]) == "200" {
			slow = append(slow, conn)
		}
		require.LessOrEqual(t, w.s.Reads.InUse(), int64(limit+2*size))
	}
	require.GreaterOrEqual(t, statuses["200"], 3)
	require.Equal(t, 40-statuses["200"], statuses["503"])
	res, _ := w.ask(t, "POST", "/store/items/search", `{"namespace_prefix":["a"],"limit":12}`)
	require.Equal(t, []string{"503", "1"}, []string{res.Status[:3], res.Header.Get("Retry-After")})
	res, _ = w.ask(t, "GET", "/threads/"+someThread+"/history", "")
	require.Equal(t, 200, res.StatusCode)

	// Those that read again get all of it, while the last one holds what it has.
	var wg sync.WaitGroup
	for _, conn := range slow[:len(slow)-1] {
		wg.Go(func() {
			n, _ := io.Copy(io.Discard, io.LimitReader(conn, 12*size))
			if n != 12*size {
				t.Errorf("%d MB of an answer", n>>20)
			}
		})
	}
	wg.Wait()
	for _, conn := range slow {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return w.s.Reads.InUse() == 0 }, time.Minute, time.Millisecond)
	res, _ = w.ask(t, "POST", "/store/items/search", `{"namespace_prefix":["a"],"limit":3}`)
	require.Equal(t, http.StatusOK, res.StatusCode)
}
