package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/fault"
	"understudy/run"
	"understudy/server/internal/connection"
	"understudy/server/internal/web"
)

const runsPath = "/threads/" + someThread + "/runs"

var aRun = `{"assistant_id":"a"}`

// quick makes waiting for signs of life short.
func quick(o *Options) { o.Heartbeat = 30 * time.Millisecond }

// following makes every follower of the world read one line.
func following(w *world) *line {
	l := newLine()
	w.follow = l.follower
	return l
}

func TestStream(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	l.records <- record(1, "metadata", `{"run_id":"r","attempt":1}`)
	l.records <- record(2, "values", `{"n":1}`)
	unkept := record(3, "values", `{"n":2}`)
	unkept.Kept = false
	l.records <- unkept
	l.records <- &bridge.Record{Kind: bridge.Terminal, Kept: true}
	l.records <- &bridge.Record{Event: "error", Data: []byte(`{}`), Kept: true, Ephemeral: true}
	close(l.records)
	res, body := w.ask(t, "POST", runsPath+"/stream", aRun, "Accept-Encoding", "gzip", "Origin", "http://app.example")
	require.Equal(t, "event: metadata\r\ndata: {\"run_id\":\"r\",\"attempt\":1}\r\nid: 1-1\r\n\r\nevent: values\r\ndata: {\"n\":1}\r\nid: 1-2\r\n\r\n"+
		"event: values\r\ndata: {\"n\":2}\r\n\r\nevent: error\r\ndata: {}\r\n\r\n", body)
	for k, v := range map[string]string{
		"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Encoding": "",
		"Content-Location": runsPath + "/" + someRun, "Location": runsPath + "/" + someRun + "/stream",
		// A page reads Location to reconnect.
		"Access-Control-Expose-Headers": "x-pagination-total, x-pagination-next, content-location, location",
	} {
		require.Equal(t, v, res.Header.Get(k))
	}
	require.Equal(t, []string{"chunked"}, res.TransferEncoding)
	require.False(t, <-l.closed)
	require.Zero(t, w.s.Slots.InUse())
}

// After a stream and a wait the connection is as good as new.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	reused := 0
	for i := range 6 {
		l := following(w)
		path := runsPath + "/stream"
		if i%2 == 1 {
			path = runsPath + "/wait"
			l.result <- run.Result{Values: json.RawMessage(`{}`)}
		} else {
			l.records <- record(1, "values", `{}`)
			close(l.records)
		}
		req, err := http.NewRequest("POST", "http://"+w.addr+path, strings.NewReader(aRun))
		require.NoError(t, err)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if i.Reused {
				reused++
			}
		}}))
		res, err := w.http.Do(req)
		require.NoError(t, err)
		_, err = io.ReadAll(res.Body)
		require.NoError(t, err)
		res.Body.Close()
		require.False(t, <-l.closed)
	}
	require.Equal(t, 5, reused)
}

func TestStatelessHeaders(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	close(l.records)
	res, _ := w.ask(t, "POST", "/runs/stream", aRun)
	require.Equal(t, []string{"/runs/" + someRun, "/runs/" + someRun + "/stream"}, []string{res.Header.Get("Content-Location"), res.Header.Get("Location")})
	l = following(w)
	l.result <- run.Result{}
	res, body := w.ask(t, "POST", "/runs/wait", aRun)
	require.Equal(t, []string{runsPath + "/" + someRun, runsPath + "/" + someRun + "/join", "null"}, []string{res.Header.Get("Content-Location"), res.Header.Get("Location"), body})
}

// post makes a request and returns its body while it arrives.
func (w *world) post(t *testing.T, path, body string) (*http.Response, *bufio.Reader) {
	t.Helper()
	res, err := w.http.Post("http://"+w.addr+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res, bufio.NewReader(res.Body)
}

// until reads a body until it holds the text that often, and returns what was read.
func until(t *testing.T, body *bufio.Reader, text string, times int) string {
	t.Helper()
	var seen strings.Builder
	for strings.Count(seen.String(), text) < times {
		b, err := body.ReadByte()
		require.NoError(t, err, "after %q", seen.String())
		seen.WriteByte(b)
	}
	return seen.String()
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	w := setup(t, quick)
	l := following(w)
	_, body := w.post(t, runsPath+"/stream", aRun)
	until(t, body, ": heartbeat\r\n\r\n", 2)
	l.records <- record(1, "values", `{}`)
	close(l.records)
	rest, err := io.ReadAll(body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(rest), "event: values\r\ndata: {}\r\nid: 1-1\r\n\r\n"), "%s", rest)
}

// They come also when there is always something to send.
func TestHeartbeatsBetweenEvents(t *testing.T) {
	t.Parallel()
	w := setup(t, quick)
	var enough atomic.Bool
	w.follow = func() run.Follower {
		return newFollower(func(context.Context) ([]*bridge.Record, error) {
			if enough.Load() {
				return nil, io.EOF
			}
			return []*bridge.Record{record(1, "values", `{}`)}, nil
		}, nil, func(bool) {})
	}
	_, body := w.post(t, runsPath+"/stream", aRun)
	found := 0
	for found < 3 {
		line, err := body.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, ": heartbeat") {
			found++
		}
	}
	enough.Store(true)
	_, err := io.Copy(io.Discard, body)
	require.NoError(t, err)
}

func TestWait(t *testing.T) {
	t.Parallel()
	w := setup(t, quick)
	l := following(w)
	res, body := w.post(t, runsPath+"/wait", aRun)
	until(t, body, "\n", 2)
	l.result <- run.Result{Values: json.RawMessage(`{"n":2}`)}
	rest, err := io.ReadAll(body)
	require.NoError(t, err)
	require.Regexp(t, `^\n*\{"n":2\}$`, string(rest))
	require.Equal(t, []string{"application/json", runsPath + "/" + someRun + "/join"}, []string{res.Header.Get("Content-Type"), res.Header.Get("Location")})
	l = following(w)
	l.result <- run.Result{Error: json.RawMessage(`{"error":"E","message":"m"}`)}
	_, text := w.ask(t, "GET", runsPath+"/"+someRun+"/join", "")
	require.Equal(t, `{"__error__":{"error":"E","message":"m"}}`, text)
}

func TestWaitThatFails(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, c := range []struct {
		err  error
		body string
	}{
		{fault.New(fault.NotFound, "Run not found"), `{"__error__":{"error":"HTTPException","message":"404: Run not found"}}`},
		{errors.New("secret"), `{"__error__":{"error":"HTTPException","message":"500: Internal Server Error"}}`},
	} {
		w.follow = func() run.Follower {
			return newFollower(nil, func(context.Context) (run.Result, error) { return run.Result{}, c.err }, func(bool) {})
		}
		_, body := w.ask(t, "POST", runsPath+"/wait", aRun)
		require.Equal(t, c.body, body)
	}
}

func TestUnknownRuns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.err = fault.New(fault.NotFound, "Run not found")
	res, body := w.ask(t, "GET", runsPath+"/"+someRun+"/join", "")
	require.Equal(t, []any{200, `{"__error__":{"error":"HTTPException","message":"404: Run not found"}}`, runsPath + "/" + someRun + "/join"}, []any{res.StatusCode, body, res.Header.Get("Location")})
	res, body = w.ask(t, "GET", runsPath+"/"+someRun+"/stream", "", "Last-Event-ID", "nonsense")
	require.Equal(t, []any{200, "event: error\r\ndata: {\"error\":\"HTTPException\",\"message\":\"404: Run not found\"}\r\n\r\n"}, []any{res.StatusCode, body})
	require.Equal(t, "text/event-stream; charset=utf-8", res.Header.Get("Content-Type"))
	require.Zero(t, w.s.Slots.InUse())
}

func TestJoinArguments(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	close(l.records)
	w.ask(t, "GET", runsPath+"/"+someRun+`/stream?stream_mode=["values","updates"]&cancel_on_disconnect=true`, "", "Last-Event-ID", "17-3")
	n := len(w.asked)
	require.Equal(t, []any{[]string{"values", "updates"}, true, &bridge.Offset{MS: 17, N: 3}}, w.asked[n-3:])
	w.ask(t, "GET", runsPath+"/"+someRun+`/stream?stream_mode=values&stream_mode=updates`, "")
	n = len(w.asked)
	require.Equal(t, []string{"values", "updates"}, w.asked[n-3], "as Python's client sends a list")
	w.ask(t, "GET", "/threads/"+someThread+"/stream?stream_modes=lifecycle", "", "Last-Event-ID", "0-0")
	n = len(w.asked)
	require.Equal(t, []any{[]string{"lifecycle"}, &bridge.Offset{}}, w.asked[n-2:])
	res, body := w.ask(t, "GET", "/threads/"+someThread+"/stream", "", "Last-Event-ID", "abc")
	require.Equal(t, []any{422, `{"detail":"Invalid last-event-id: must be a valid Redis stream ID"}`}, []any{res.StatusCode, body})
}

// dial sends a request by hand and returns the connection and a reader after the head of the answer.
func dial(t testing.TB, w *world, method, path, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	r := bufio.NewReader(conn)
	for {
		l, err := r.ReadString('\n')
		require.NoError(t, err)
		if l == "\r\n" {
			return conn, r
		}
	}
}

// The head is there before the first event, and a client that goes is missed at once.
func TestLeaving(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, path := range []string{"/stream", "/wait"} {
		l := following(w)
		conn, _ := dial(t, w, "POST", runsPath+path, aRun)
		require.NoError(t, conn.Close())
		select {
		case left := <-l.closed:
			require.True(t, left, path)
		case <-time.After(time.Minute):
			t.Fatal("nobody noticed")
		}
	}
	require.Eventually(t, func() bool { return w.s.Slots.InUse() == 0 }, time.Minute, time.Millisecond)
}

func TestLeavingAJoinThatCancels(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	conn, _ := dial(t, w, "GET", runsPath+"/"+someRun+"/join?cancel_on_disconnect=true", "")
	require.NoError(t, conn.Close())
	require.True(t, <-l.closed)
	require.Eventually(t, func() bool { return w.last() == run.CancelInterrupt }, time.Minute, time.Millisecond)
}

// A next request that is already on the way is neither lost nor taken for a farewell.
func TestPipelining(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	conn, r := dial(t, w, "POST", runsPath+"/stream", aRun)
	fmt.Fprint(conn, "GET /ok HTTP/1.1\r\nHost: x\r\n\r\n")
	time.Sleep(20 * time.Millisecond)
	l.records <- record(1, "values", `{}`)
	close(l.records)
	require.False(t, <-l.closed)
	var got strings.Builder
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	for !strings.Contains(got.String(), `"ok":true`) {
		b, err := r.ReadByte()
		require.NoError(t, err, got.String())
		got.WriteByte(b)
	}
	require.Contains(t, got.String(), "event: values")
}

// A client that stops reading is dropped, without the end that would mark the stream as complete.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.WriteTimeout = 200 * time.Millisecond })
	l := newLine()
	big := record(1, "values", `"`+strings.Repeat("x", 1<<20)+`"`)
	w.follow = func() run.Follower {
		return newFollower(func(context.Context) ([]*bridge.Record, error) { return []*bridge.Record{big}, nil }, nil, func(left bool) { l.closed <- left })
	}
	_, r := dial(t, w, "POST", runsPath+"/stream", aRun)
	select {
	case left := <-l.closed:
		require.True(t, left)
	case <-time.After(time.Minute):
		t.Fatal("still there")
	}
	all, _ := io.ReadAll(r)
	require.False(t, bytes.HasSuffix(all, []byte("\r\n0\r\n\r\n")))
	require.Zero(t, w.s.Slots.InUse())
}

// A client that reads a few bytes a minute is not stuck; one that reads nothing for a minute is.
func TestVerySlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, client := net.Pipe()
		o := &web.Open{Outlet: (&connection.Outlets{WriteTimeout: time.Minute}).Of(conn)}
		wrote := make(chan error, 1)
		write := func() {
			wrote <- o.Write(func(dst []byte) []byte { return append(dst, strings.Repeat("x", 100)...) })
		}
		const chunk = "00000064\r\n"
		for range 2 {
			go write()
			got := make([]byte, 0, 112)
			for len(got) < cap(got) {
				time.Sleep(50 * time.Second)
				n, err := client.Read(got[len(got):min(len(got)+10, cap(got))])
				require.NoError(t, err)
				got = got[:len(got)+n]
			}
			require.NoError(t, <-wrote)
			require.Equal(t, chunk+strings.Repeat("x", 100)+"\r\n", string(got))
		}
		began := time.Now()
		go write()
		require.ErrorIs(t, <-wrote, web.ErrStuck)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.Less(t, time.Since(began), 2*time.Minute)
		require.NoError(t, conn.Close())
		require.NoError(t, client.Close())
	})
}

func TestFollowersThatFail(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for name, next := range map[string]func(context.Context) ([]*bridge.Record, error){
		"slow":   func(context.Context) ([]*bridge.Record, error) { return nil, bridge.ErrSlow },
		"away":   func(context.Context) ([]*bridge.Record, error) { return nil, bridge.ErrInterrupted },
		"closed": func(context.Context) ([]*bridge.Record, error) { return nil, bridge.ErrClosed },
		"broken": func(context.Context) ([]*bridge.Record, error) { return nil, errors.New("broken") },
		"panic":  func(context.Context) ([]*bridge.Record, error) { panic("oops") },
	} {
		closed := make(chan bool, 1)
		w.follow = func() run.Follower { return newFollower(next, nil, func(left bool) { closed <- left }) }
		res, err := http.Post("http://"+w.addr+runsPath+"/stream", "application/json", strings.NewReader(aRun))
		require.NoError(t, err, name)
		said, err := io.ReadAll(res.Body)
		res.Body.Close()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		require.Equal(t, name == "slow" || name == "away", string(said) == ": interrupted, come back with the last id\r\n\r\n", "%s: %q", name, said)
		require.False(t, <-closed, name)
	}
	// A panic while waiting is no end of the world either.
	w.follow = func() run.Follower {
		return newFollower(nil, func(context.Context) (run.Result, error) { panic("oops") }, func(bool) {})
	}
	res, err := http.Post("http://"+w.addr+runsPath+"/wait", "application/json", strings.NewReader(aRun))
	require.NoError(t, err)
	_, err = io.ReadAll(res.Body)
	res.Body.Close()
	require.Error(t, err)
	res, _ = w.ask(t, "GET", "/ok", "")
	require.Equal(t, 200, res.StatusCode)
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MaxStreams = 1 })
	l := following(w)
	conn, _ := dial(t, w, "GET", "/threads/"+someThread+"/stream", "")
	asked := len(w.asked)
	for _, path := range []string{"/stream", "/wait"} {
		res, body := w.ask(t, "POST", runsPath+path, aRun)
		require.Equal(t, []any{503, `{"detail":"Too many open streams. Try again later."}`}, []any{res.StatusCode, body})
	}
	require.Len(t, w.asked, asked) // no run was made
	conn.Close()
	<-l.closed
}

func TestHead(t *testing.T) {
	t.Parallel()
	w := setup(t)
	l := following(w)
	res, _ := w.ask(t, "HEAD", "/threads/"+someThread+"/stream", "")
	require.Equal(t, []any{200, "text/event-stream; charset=utf-8"}, []any{res.StatusCode, res.Header.Get("Content-Type")})
	<-l.closed
	require.Eventually(t, func() bool { return w.s.Slots.InUse() == 0 }, time.Minute, time.Millisecond)
}

// When the server goes, open responses are cut short: readers come back with the last id that they saw.
func TestShutdown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var lines []*line
	var mu sync.Mutex
	w.follow = func() run.Follower {
		mu.Lock()
		defer mu.Unlock()
		l := newLine()
		l.records <- record(1, "values", `{}`)
		lines = append(lines, l)
		return l.follower()
	}
	var readers []*bufio.Reader
	for i := range 20 {
		path := runsPath + "/stream"
		if i%2 == 1 {
			path = runsPath + "/wait"
		}
		_, r := dial(t, w, "POST", path, aRun)
		readers = append(readers, r)
	}
	w.ask(t, "GET", "/ok", "") // an idle connection
	require.NoError(t, w.stop())
	for i, r := range readers {
		rest, _ := io.ReadAll(r)
		require.False(t, bytes.HasSuffix(rest, []byte("0\r\n\r\n")), "%s", rest)
		if i%2 == 0 {
			require.Contains(t, string(rest), "event: values")
		}
	}
	for _, l := range lines {
		require.False(t, <-l.closed)
	}
	_, err := net.DialTimeout("tcp", w.addr, time.Second)
	require.Error(t, err)
}

func TestShutdownAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, New(options(&services{})).Serve(ctx, ln))
	}
}

func TestManyEventsArriveInOrder(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Heartbeat = time.Hour }) // on a busy machine there would be some among the events
	const count = 20_000
	next := 0
	w.follow = func() run.Follower {
		return newFollower(func(context.Context) ([]*bridge.Record, error) {
			if next == count {
				return nil, io.EOF
			}
			var list []*bridge.Record
			for range min(1+next%700, count-next) {
				list = append(list, record(int64(next), "messages", fmt.Sprintf(`[%d,"%s"]`, next, strings.Repeat("é", next%900))))
				next++
			}
			return list, nil
		}, nil, func(bool) {})
	}
	_, body := w.ask(t, "POST", runsPath+"/stream", aRun)
	events := strings.Split(strings.TrimSuffix(body, "\r\n\r\n"), "\r\n\r\n")
	require.Len(t, events, count)
	for i, e := range events {
		require.True(t, strings.HasPrefix(e, fmt.Sprintf("event: messages\r\ndata: [%d,", i)), e)
		require.True(t, strings.HasSuffix(e, fmt.Sprintf("id: 1-%d", i)), e)
	}
}

// BenchmarkStream writes events through a real socket to a reader that only counts bytes.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{200, 20_000} {
		for _, batch := range []int{1, 50} {
			b.Run(fmt.Sprintf("%dB/%d_ready", size, batch), func(b *testing.B) {
				w := setup(b)
				r := record(1, "messages", `"`+strings.Repeat("x", size)+`"`)
				left := b.N
				list := make([]*bridge.Record, batch)
				for i := range list {
					list[i] = r
				}
				w.follow = func() run.Follower {
					return newFollower(func(context.Context) ([]*bridge.Record, error) {
						if left <= 0 {
							return nil, io.EOF
						}
						n := min(left, batch)
						left -= n
						return list[:n], nil
					}, nil, func(bool) {})
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				res, err := http.Post("http://"+w.addr+runsPath+"/stream", "application/json", strings.NewReader(aRun))
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(b, err)
				res.Body.Close()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkWaitRoute is a whole request for a run whose result is there at once.
func BenchmarkWaitRoute(b *testing.B) {
	w := setup(b)
	w.follow = func() run.Follower {
		return newFollower(nil, func(context.Context) (run.Result, error) { return run.Result{Values: json.RawMessage(`{"n":2}`)}, nil }, func(bool) {})
	}
	b.ReportAllocs()
	for b.Loop() {
		res, err := w.http.Post("http://"+w.addr+runsPath+"/wait", "application/json", strings.NewReader(aRun))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// BenchmarkIdleStreams reports the server's memory per idle stream, without the client's socket.
func BenchmarkIdleStreams(b *testing.B) {
	w := setup(b)
	w.follow = func() run.Follower { return newLine().follower() }
	const count = 1000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		conns := make([]net.Conn, count)
		for i := range conns {
			conns[i], _ = dial(b, w, "GET", "/threads/"+someThread+"/stream", "")
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		used := after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse
		b.ReportMetric(float64(used)/count, "B/stream")
		for _, c := range conns {
			c.Close()
		}
		for w.s.Slots.InUse() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
}
