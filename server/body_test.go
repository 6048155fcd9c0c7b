package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/server/internal/web"
	"understudy/store"
)

// dialed is a connection to a world.
func dialed(t *testing.T, w *world) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// answered reads the answer to a request.
func answered(t *testing.T, in *bufio.Reader) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Contains(t, string(b), "detail")
	return res
}

// A head that is too large is refused while it is being sent, and the client sees why.
func TestLongHeadsAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	conn := dialed(t, w)
	_, err := io.WriteString(conn, "GET /store/items?key="+strings.Repeat("a", 16<<10))
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	_, err = in.Peek(1) // it has been refused
	require.NoError(t, err)
	for range 4 {
		_, err = io.WriteString(conn, strings.Repeat("a", 16<<10))
		require.NoError(t, err)
	}
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answered(t, in).StatusCode)
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// A body that is certain to be refused is refused before any of it has arrived, and the client sees why however it goes on.
func TestBodiesAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	const free, smuggled = 300_000, "GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"
	w := setup(t, func(o *Options) { o.MaxBody = 20 << 20; o.MaxBodies = 100 << 20 })
	require.True(t, w.s.Bodies.Take(100<<20-free))
	body := strings.Repeat(smuggled, 24<<20/len(smuggled))
	for _, tt := range []struct {
		size   int
		head   string
		status int
	}{
		{free, "", 503},
		{free, "Expect: 100-continue\r\n", 503},
		{20 << 20, "", 503},
		{20 << 20, "Connection: close\r\n", 503},
		{21 << 20, "", 413},
		{21 << 20, "Expect: 100-continue\r\n", 413},
		{1 << 40, "", 413},
	} {
		for _, sent := range []int{0, 1, 100_000, free, 18 << 20} { // before the answer is read
			conn := dialed(t, w)
			in := bufio.NewReader(conn)
			fmt.Fprintf(conn, "POST /threads HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n", tt.head, tt.size)
			rest := strings.NewReader(body[:min(tt.size, len(body))])
			n, err := io.CopyN(conn, rest, int64(min(sent, tt.size)))
			require.NoError(t, err, "after %d of %d bytes", n, tt.size)
			res := answered(t, in)
			require.Equal(t, tt.status, res.StatusCode, "%+v", tt)
			require.True(t, res.Close)
			require.Equal(t, map[bool]string{true: "1"}[tt.status == 503], res.Header.Get("Retry-After"))
			// What still comes is not taken for requests.
			_, err = io.CopyN(conn, rest, 1<<20)
			require.True(t, err == nil || errors.Is(err, io.EOF), "%v", err)
			_, err = in.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, conn.Close())
		}
	}

	// Small bodies and those that nothing wants leave the connection usable.
	patient := setup(t, func(o *Options) { o.BodyRest = time.Minute }) // a busy machine may need longer than the default to take a body that is there
	conn := dialed(t, patient)
	in := bufio.NewReader(conn)
	for range 3 {
		fmt.Fprintf(conn, "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n%s", strings.Repeat(" ", 70_000))
		res := answered(t, in)
		require.Equal(t, []any{404, false}, []any{res.StatusCode, res.Close})
	}
}

// Of uploads that begin together and fit one at a time, one is served. The others are refused soon.
func TestUploadsThatBeginTogether(t *testing.T) {
	t.Parallel()
	const size, many = 16 << 20, 8
	w := setup(t, func(o *Options) { o.MaxBodies = web.BodyCopies*size + web.BodyCopies*size/3 })
	begun, statuses := make(chan struct{}), make(chan string, many)
	var wg sync.WaitGroup
	for range many {
		conn := dialed(t, w)
		fmt.Fprintf(conn, "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat(" ", 100_000)) // all are let in
		wg.Go(func() {
			<-begun
			_, err := io.WriteString(conn, strings.Repeat(" ", size-100_000-2)+"{}")
			if err != nil {
				t.Error(err)
			}
			line, _ := bufio.NewReader(conn).ReadString('\r')
			statuses <- strings.TrimSpace(line)
		})
	}
	require.Eventually(t, func() bool { return w.s.Bodies.InUse() >= many*64<<10 }, time.Minute, time.Millisecond)
	close(begun)
	wg.Wait()
	close(statuses)
	got := map[string]int{}
	for s := range statuses {
		got[s]++
	}
	require.Positive(t, got["HTTP/1.1 200 OK"], "%v", got)
	require.Equal(t, many, got["HTTP/1.1 200 OK"]+got["HTTP/1.1 503 Service Unavailable"], "%v", got)
	require.Eventually(t, func() bool { return w.s.Bodies.InUse() == 0 }, time.Minute, time.Millisecond)
}

// forgetting keeps no items.
type forgetting struct{ fakeItems }

func (forgetting) Put(context.Context, store.Item) error { return nil }

// An upload takes its size and little more, and the system gets it back when it was served. Not parallel: it measures the heap.
func TestMemoryOfUploads(t *testing.T) {
	const size = 96 << 20
	w := setup(t, func(o *Options) { o.Items = forgetting{o.Items.(fakeItems)} })
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	conn := dialed(t, w)
	const head, tail = `{"namespace":["a"],"key":"k","value":{"x":"`, `"}}`
	fmt.Fprintf(conn, "PUT /store/items HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(head)+size+len(tail), head)
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range size / len(block) {
		_, err := conn.Write(block)
		require.NoError(t, err)
	}
	fmt.Fprint(conn, tail)
	line, err := bufio.NewReader(conn).ReadString('\r')
	require.NoError(t, err)
	require.Contains(t, line, "204")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size+size/3))
	require.Eventually(t, func() bool {
		runtime.ReadMemStats(&after)
		return after.HeapSys-after.HeapReleased < before.HeapSys-before.HeapReleased+size/2
	}, 30*time.Second, 10*time.Millisecond)
}
