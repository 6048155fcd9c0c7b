package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/compat"
	"understudy/thread"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MaxBody = 100_000; o.MaxBodies = 310_000; o.BodyTimeout = 300 * time.Millisecond })
	big := func(n int) string { return `{"metadata":{"a":"` + strings.Repeat("x", n) + `"}}` }
	for _, chunked := range []bool{false, true} {
		for n, status := range map[int]int{10: 200, 9000: 200, 99_000: 200, 100_001: 413, 3_000_000: 413, 40_000_000: 413} {
			var in io.Reader = strings.NewReader(big(n))
			if chunked {
				in = struct{ io.Reader }{in}
			}
			res, err := http.Post("http://"+w.addr+"/threads", "application/json", in)
			require.NoError(t, err, n)
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			require.Equal(t, status, res.StatusCode, "%d %v %s", n, chunked, b)
			if status == 200 {
				require.Len(t, w.last().(thread.New).Metadata, n+8)
			}
		}
	}
	require.Eventually(t, func() bool { return w.s.Bodies.InUse() == 0 }, time.Minute, time.Millisecond)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()

	// Other requests hold the memory: new ones are refused, and succeed later.
	require.True(t, w.s.Bodies.Take(309_000))
	res, _ := w.ask(t, "POST", "/threads", big(50_000))
	require.Equal(t, []string{"503", "1"}, []string{res.Status[:3], res.Header.Get("Retry-After")})
	w.s.Bodies.Give(309_000)
	res, _ = w.ask(t, "POST", "/threads", big(50_000))
	require.Equal(t, 200, res.StatusCode)

	// A client that stops sending releases its memory.
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n%s", strings.Repeat("x", 20_000))
	answer, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, answer, "408")
	require.Eventually(t, func() bool { return w.s.Bodies.InUse() == 0 }, time.Minute, time.Millisecond)
}

// creating notes what bodies take while threads are created.
type creating struct {
	fakeThreads
	taken func()
}

func (c creating) Create(ctx context.Context, n thread.New) (*thread.View, error) {
	c.taken()
	return c.fakeThreads.Create(ctx, n)
}

// A body counts with the copies that serving it makes, and one that could never be let in is refused for good.
func TestBodiesCountWithTheirCopies(t *testing.T) {
	t.Parallel()
	var w *world
	var most int64
	w = setup(t, func(o *Options) {
		o.MaxBodies = 300_000
		o.Threads = creating{o.Threads.(fakeThreads), func() { most = w.s.Bodies.InUse() }}
	})
	body := func(n int) string { return `{"metadata":{"a":"` + strings.Repeat("x", n-21) + `"}}` }
	res, _ := w.ask(t, "POST", "/threads", body(90_000))
	require.Equal(t, 200, res.StatusCode)
	require.InDelta(t, 3*90_000, most, 100)
	res, answer := w.ask(t, "POST", "/threads", body(110_000))
	require.Equal(t, 413, res.StatusCode)
	require.Contains(t, answer, "100000 bytes")
	require.True(t, w.s.Bodies.Take(200_000))
	res, _ = w.ask(t, "POST", "/threads", body(50_000))
	require.Equal(t, []string{"503", "1"}, []string{res.Status[:3], res.Header.Get("Retry-After")})
	w.s.Bodies.Give(200_000)

	// So does what has arrived of one that is still being sent.
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /threads HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n%s", strings.Repeat(" ", 60_000))
	require.Eventually(t, func() bool { return w.s.Bodies.InUse() >= 3*60_000 }, time.Minute, time.Millisecond)
	res, _ = w.ask(t, "POST", "/threads", body(50_000))
	require.Equal(t, "503", res.Status[:3])
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return w.s.Bodies.InUse() == 0 }, time.Minute, time.Millisecond)
}

// A body that no handler reads must not be taken for the next request.
func TestUnreadBodies(t *testing.T) {
	t.Parallel()
	w := setup(t)
	smuggled := "DELETE /threads/" + someThread + " HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, size := range []int{0, 20_000, 1_000_000} {
		body := strings.Repeat(" ", size) + smuggled
		conn, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		go func() {
			fmt.Fprintf(conn, "GET /ok HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}()
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		answer, _ := io.ReadAll(conn)
		conn.Close()
		require.Equal(t, 1, strings.Count(string(answer), "HTTP/1.1 "), "%d: %s", size, answer)
		require.Nil(t, w.last())
	}
}

func TestHostileBodies(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, body := range []string{"{\"metadata\":{\"a\":\"\xff\"}}", "\x00", strings.Repeat("[", 1<<20), `{"metadata":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5001), `{}{}`, `{"metadata":{"a":"\ud800"}}`} {
		res, answer := w.ask(t, "POST", "/threads", body)
		require.Equal(t, []any{422, `{"detail":"Invalid JSON in request body"}`}, []any{res.StatusCode, answer})
	}
	res, _ := w.ask(t, "POST", "/threads", `{"metadata":{"n":123456789012345678901234567890}}`)
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, `{"n":123456789012345678901234567890}`, string(w.last().(thread.New).Metadata))
}

// No route with a body takes a value that could not be shown again, wherever it stands: services hear nothing of it.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const invalid, deep = `{"detail":"Invalid JSON in request body"}`, `{"detail":"Recursion limit reached"}`
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	values := []struct {
		value, want string
		status      int
	}{
		{"1e400", invalid, 422},
		{"-1e400", invalid, 422},
		{"2e308", invalid, 422},
		{"1e99999999999999999999", invalid, 422},
		{strings.Repeat("1", 310), invalid, 422},
		{"-" + strings.Repeat("1", 5000), invalid, 422},
		{strings.Repeat("9", 100_000), invalid, 422},
		{"NaN", invalid, 422},
		{"Infinity", invalid, 422},
		{"-Infinity", invalid, 422},
		{`"\ud800"`, invalid, 422},
		{nested(compat.MaxDepth), deep, 400},
		{nested(500), deep, 400},
		{nested(5000), invalid, 422},
		{strings.Repeat("[", 1<<16), invalid, 422},
	}
	ids := strings.NewReplacer("{thread_id}", someThread, "{run_id}", someRun, "{assistant_id}", someID, "{cron_id}", someID, "{checkpoint_id}", someID, "{token}", someToken)
	routes := 0
	for _, op := range operations {
		if op.body == nil {
			continue
		}
		routes++
		for _, v := range values {
			for _, body := range []string{
				`[V]`, `{"unknown":V}`, `{"metadata":{"k":V},"assistant_id":"a","graph_id":"a","schedule":"* * * * *","namespace":["a"],"key":"k","value":{}}`,
				`[{"assistant_id":"a","input":{"k":V}}]`,
				`{"assistant_id":"a","input":{"k":[V]},"values":{"k":V},"value":{"k":V},"namespace":["a"],"key":"k","schedule":"* * * * *"}`,
			} {
				res, answer := w.ask(t, strings.ToUpper(op.method), ids.Replace(op.path), strings.ReplaceAll(body, "V", v.value))
				want := []any{v.status, v.want}
				if op.tag == eventStreaming {
					want = []any{400, `{"detail":"Invalid JSON body"}`}
				}
				require.Equal(t, want, []any{res.StatusCode, answer}, "%s %s %.60s in %s", op.method, op.path, v.value, body)
			}
		}
	}
	require.Greater(t, routes, 20)
	require.Nil(t, w.last())
	res, _ := w.ask(t, "POST", "/threads", `{"metadata":{"k":`+nested(100)+`}}`)
	require.Equal(t, 200, res.StatusCode)
}
