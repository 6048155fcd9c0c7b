package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStream: events come through one by one, as soon as the upstream writes them, and those that the recorder hides or changes do so.
func TestStream(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("Content-Location", "/threads/"+aThread+"/runs/"+aRun)
		w.(http.Flusher).Flush()
		for e := range next {
			_, _ = io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	})
	w.recorder.event = verdict
	for _, tt := range []struct{ method, path, note string }{
		{http.MethodPost, "/threads/" + aThread + "/runs/stream", "begin " + aThread},
		{http.MethodGet, "/threads/" + aThread + "/runs/" + aRun + "/stream", "join " + aThread + " " + aRun},
		{http.MethodGet, "/threads/" + aThread + "/stream", "join " + aThread + " "},
	} {
		res := w.do(tt.method, tt.path, nil) // the head is here before the first event
		require.Contains(t, w.recorder.notes(), tt.note)
		in := bufio.NewReader(res.Body)
		for _, e := range [][2]string{
			{"event: metadata\r\ndata: {}\r\nid: 1\r\n\r\n"},
			{": heartbeat\r\n\r\n"},
			{"data: \u2028\u2029\r\n\r\n"},
			{"data: hide\r\nid: 2\r\n\r\ndata: change\r\nid: 3\r\n\r\n", "data: it was changed\r\nid: 3\r\n\r\n"},
		} {
			next <- e[0]
			want := e[1]
			if want == "" {
				want = e[0]
			}
			got := make([]byte, len(want))
			_, err := io.ReadFull(in, got)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		res.Body.Close()
		next <- "data: the client has left\r\n\r\n"
		<-w.recorder.ended
		for left := false; !left; { // the upstream learns it from its next writes
			select {
			case next <- "x":
			default:
				left = true
			}
		}
		close(next)
		next = make(chan string)
	}
	require.Equal(t, `created {"run_id":"`+aRun+`"}`, w.recorder.notes()[1])
}

// TestRawStream: what is not understood streams too, with no event held for its end.
func TestRawStream(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	w := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for e := range next {
			_, _ = io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	})
	go func() { next <- "da" }()
	res := w.do(http.MethodPost, "/runs/stream", strings.NewReader("{}"))
	got := make([]byte, 2)
	_, err := io.ReadFull(res.Body, got)
	require.NoError(t, err)
	require.Equal(t, "da", string(got))
	close(next)
}

// TestAnswerBeforeTheEndOfTheRequest: an upstream may answer while the body of the request still comes. The stream of a request that is forwarded as it comes does
// not break off then.
func TestAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	t.Parallel()
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = rc.Flush()
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "data: %s %v\n\n", body, err)
	})
	for _, path := range []string{"/threads/" + aThread + "/stream/events", "/mcp", "/a2a/" + aRun} {
		for _, framing := range [][3]string{{"Content-Length: 4", "{}", "{}"}, {"Transfer-Encoding: chunked", "2\r\n{}\r\n", "2\r\n{}\r\n0\r\n\r\n"}} {
			c, err := net.Dial("tcp", w.addr)
			require.NoError(t, err)
			require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n%s", path, framing[0], framing[1])
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			first := make([]byte, len("data: one\n\n"))
			_, err = io.ReadFull(res.Body, first)
			require.NoError(t, err)
			_, err = io.WriteString(c, framing[2])
			require.NoError(t, err)
			rest, err := io.ReadAll(res.Body)
			require.NoError(t, err, path)
			require.Equal(t, "data: {}{} <nil>\n\n", string(rest))
			res.Body.Close()
			c.Close()
		}
	}
}

// TestClientLeaves: a client that leaves before or during the answer ends the call to the upstream at once.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	begun, left := make(chan struct{}), make(chan struct{})
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Begin") != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	for _, path := range []string{"/x", "/threads/" + aThread + "/runs/stream", "/threads/" + aThread + "/runs/wait"} {
		for _, begin := range []string{"", "1"} {
			r, err := http.NewRequest(http.MethodPost, w.url+path, strings.NewReader("{}"))
			require.NoError(t, err)
			r.Header.Set("X-Begin", begin)
			tr := &http.Transport{DisableKeepAlives: true}
			ctx, cancel := contextOf(r)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if res, err := tr.RoundTrip(ctx); err == nil {
					_, _ = io.ReadAll(res.Body)
					res.Body.Close()
				}
			}()
			<-begun
			cancel()
			<-left
			<-done
			if path != "/x" {
				<-w.recorder.ended
			}
		}
	}
}

// TestWait: the signs of life of a wait pass at once.
func TestWait(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	w := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for s := range next {
			_, _ = io.WriteString(w, s)
			w.(http.Flusher).Flush()
		}
	})
	res := w.do(http.MethodPost, "/threads/"+aThread+"/runs/wait", strings.NewReader("{}"))
	one := make([]byte, 1)
	for range 3 {
		next <- "\n"
		_, err := io.ReadFull(res.Body, one)
		require.NoError(t, err)
		require.Equal(t, "\n", string(one))
	}
	next <- "\n{\"values\":"
	_, err := io.ReadFull(res.Body, one)
	require.NoError(t, err)
	next <- "\"short\"}"
	close(next)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, `{"values":"the whole story"}`, string(rest))
	<-w.recorder.ended
}

func TestTail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"", ""}, {"\n\n", "\n\n"}, {"short", "the whole story"}, {"\r\n short\n", "\r\n the whole story\n"}, {"\n" + strings.Repeat("short", 30), "\n" + strings.Repeat("short", 30)},
	} {
		for _, lengths := range [][]byte{nil, {0, 0, 0, 0}, {3, 1}} {
			b := &tail{src: io.NopCloser(&pieces{tt.in, lengths}), limit: 100, held: plenty(), whole: shout}
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
		}
	}
}

// TestShutdown: streams are cut at once, so that their readers come back; a plain call may end.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(end)
			return
		}
		begun <- struct{}{}
		<-end
		_, _ = io.WriteString(w, "done")
	})
	stream := w.do(http.MethodGet, "/threads/"+aThread+"/stream", nil)
	plain := make(chan string)
	go func() {
		_, got := w.get("/x")
		plain <- got
	}()
	<-begun
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	got, err := io.ReadAll(stream.Body)
	require.Error(t, err, "cut, not ended")
	require.Equal(t, "data: 1\n\n", string(got))
	require.Equal(t, "done", <-plain)
	<-stopped
	<-w.recorder.ended
}

// TestManyStreams: 1,000 streams at once, each complete, with plain calls between them.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	const streams, each = 1000, 20
	release := make(chan struct{})
	var open sync.WaitGroup
	open.Add(streams)
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 0\n\n")
		w.(http.Flusher).Flush()
		open.Done()
		<-release
		for i := 1; i < each; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	})
	var want bytes.Buffer
	for i := range each {
		fmt.Fprintf(&want, "data: %d\n\n", i)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: streams}
	defer tr.CloseIdleConnections()
	var all sync.WaitGroup
	errs := make(chan error, streams)
	for range streams {
		all.Go(func() {
			r, err := http.NewRequest(http.MethodGet, w.url+"/threads/"+aThread+"/stream", nil)
			if err == nil {
				var res *http.Response
				if res, err = tr.RoundTrip(r); err == nil {
					var got []byte
					got, err = io.ReadAll(res.Body)
					res.Body.Close()
					if err == nil && !bytes.Equal(want.Bytes(), got) {
						err = fmt.Errorf("got %q", got)
					}
				}
			}
			errs <- err
		})
	}
	open.Wait()
	for range 20 {
		status, _ := w.get("/x")
		require.Equal(t, 200, status)
	}
	close(release)
	all.Wait()
	for range streams {
		require.NoError(t, <-errs)
		<-w.recorder.ended
	}
}

// TestSlowReader: an upstream is held by a client that does not read, and nothing piles up between them.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		event := "data: " + strings.Repeat("x", 100_000) + "\n\n"
		for {
			_ = rc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := io.WriteString(w, event); err != nil {
				close(blocked)
				return
			}
		}
	})
	w.do(http.MethodGet, "/threads/"+aThread+"/stream", nil)
	<-blocked
}
