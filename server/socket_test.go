package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/internal/logtest"
	"understudy/run/protocol"
	"understudy/server/internal/web"
)

// eventScript is a thread whose events are of the channel custom, and come when a test says so.
type eventScript struct {
	events   chan []protocol.Event
	err      atomic.Pointer[error] // what Next returns once events is closed
	replayed bool
	last     int64
	closed   atomic.Bool
}

func newEventScript() *eventScript { return &eventScript{events: make(chan []protocol.Event, 100)} }

func (s *eventScript) Next(ctx context.Context) ([]protocol.Event, error) {
	if !s.replayed {
		s.replayed = true
		return nil, nil
	}
	select {
	case events, ok := <-s.events:
		if !ok {
			return nil, *s.err.Load()
		}
		s.last = max(s.last, events[len(events)-1].Seq)
		return events, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *eventScript) Select(...protocol.Filter)     {}
func (s *eventScript) Last() int64                   { return s.last }
func (s *eventScript) Tree() []byte                  { return nil }
func (s *eventScript) Asked(string) ([]string, bool) { return nil, false }
func (s *eventScript) Close()                        { s.closed.Store(true) }

func (s *eventScript) fail(err error) {
	s.err.Store(&err)
	close(s.events)
}

func eventOf(seq int64, text string) protocol.Event {
	return protocol.Event{Seq: seq, Method: "custom", Data: []byte(`{"seq":` + strconv.FormatInt(seq, 10) + `,"text":` + strconv.Quote(text) + `}`)}
}

// socketClient is the other end of a WebSocket.
type socketClient struct {
	t    testing.TB
	conn net.Conn
	in   io.Reader
}

// dialSocket opens a WebSocket on a thread that s scripts.
func dialSocket(t testing.TB, w *world, s *eventScript) *socketClient {
	t.Helper()
	w.services.events = func([]protocol.Filter) protocol.Follower { return s }
	conn, buffered, _, err := ws.Dial(context.Background(), "ws://"+w.addr+protocolPath+"/stream/events")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	c := &socketClient{t: t, conn: conn, in: conn}
	if buffered != nil {
		c.in = buffered
	}
	return c
}

func (c *socketClient) send(op ws.OpCode, payload string) {
	c.t.Helper()
	require.NoError(c.t, wsutil.WriteClientMessage(c.conn, op, []byte(payload)))
}

// subscribe subscribes and reads the answer.
func (c *socketClient) subscribe() {
	c.t.Helper()
	c.send(ws.OpText, `{"id":1,"method":"subscription.subscribe","params":{"channels":["custom"]}}`)
	require.Contains(c.t, c.text(), `"success"`)
}

// frame reads the next frame.
func (c *socketClient) frame() ws.Frame {
	c.t.Helper()
	h, err := ws.ReadHeader(c.in)
	require.NoError(c.t, err)
	f := ws.Frame{Header: h, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(c.in, f.Payload)
	require.NoError(c.t, err)
	return f
}

// text reads the next message.
func (c *socketClient) text() string {
	c.t.Helper()
	for {
		f := c.frame()
		if f.Header.OpCode == ws.OpText {
			return string(f.Payload)
		}
		require.Equal(c.t, ws.OpPing, f.Header.OpCode, "%s", f.Payload)
	}
}

// end reads to the close frame.
func (c *socketClient) end() (code ws.StatusCode, reason string) {
	c.t.Helper()
	for {
		f := c.frame()
		if f.Header.OpCode == ws.OpClose {
			return ws.ParseCloseFrameData(f.Payload)
		}
	}
}

const webSocketKey = "dGhlIHNhbXBsZSBub25jZQ=="

func TestSocketHandshake(t *testing.T) {
	t.Parallel()
	good := map[string]string{"Upgrade": "websocket", "Connection": "keep-alive, Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": webSocketKey}
	listed := func(o *Options) { o.CORS.AllowOrigins = []string{"https://good.example"} }
	for _, tt := range []struct {
		name   string
		change map[string]string
		with   []func(*Options)
		want   int
	}{
		{"good", nil, nil, 101},
		{"version", map[string]string{"Sec-WebSocket-Version": "8"}, nil, 400},
		{"no key", map[string]string{"Sec-WebSocket-Key": ""}, nil, 400},
		{"short key", map[string]string{"Sec-WebSocket-Key": "YQ=="}, nil, 400},
		{"no connection", map[string]string{"Connection": "close"}, nil, 400},
		{"behind a proxy that drops it", map[string]string{"Upgrade": "", "Connection": "keep-alive"}, nil, 400},
		{"another protocol", map[string]string{"Upgrade": "h2c"}, nil, 405},
		{"any origin", map[string]string{"Origin": "https://evil.example"}, nil, 101},
		{"listed origin", map[string]string{"Origin": "https://good.example"}, []func(*Options){listed}, 101},
		{"other origin", map[string]string{"Origin": "https://evil.example"}, []func(*Options){listed}, 403},
		{"origin that contains it", map[string]string{"Origin": "https://good.example.evil.example"}, []func(*Options){listed}, 403},
		{"sandboxed page", map[string]string{"Origin": "null"}, []func(*Options){listed}, 403},
		{"own origin", map[string]string{"Origin": "http://own.example", "Host": "own.example"}, []func(*Options){listed}, 101},
		{"no origin", nil, []func(*Options){listed}, 101},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, tt.with...)
			conn, err := net.Dial("tcp", w.addr)
			require.NoError(t, err)
			defer conn.Close()
			headers := map[string]string{"Host": "server.example"}
			for _, more := range []map[string]string{good, tt.change} {
				for name, value := range more {
					headers[name] = value
				}
			}
			request := "GET " + protocolPath + "/stream/events HTTP/1.1\r\n"
			for name, value := range headers {
				request += name + ": " + value + "\r\n"
			}
			_, err = io.WriteString(conn, request+"\r\n")
			require.NoError(t, err)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer res.Body.Close()
			require.Equal(t, tt.want, res.StatusCode)
			if tt.want == 101 {
				require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", res.Header.Get("Sec-WebSocket-Accept")) // RFC 6455, 1.3
			}
		})
	}
}

// What a client must not send ends its socket with the code for it; the server continues.
func TestSocketBadMessages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, tt := range []struct {
		name string
		send func(c *socketClient)
		want ws.StatusCode
	}{
		{"binary", func(c *socketClient) { c.send(ws.OpBinary, "{}") }, ws.StatusUnsupportedData},
		{"not UTF-8", func(c *socketClient) { c.send(ws.OpText, "\xff\xfe") }, ws.StatusInvalidFramePayloadData},
		{"too large", func(c *socketClient) { _, _ = c.conn.Write(masked(ws.OpText, true, web.MaxMessage+1)) }, ws.StatusMessageTooBig},
		{"too large in pieces", func(c *socketClient) {
			_, _ = c.conn.Write(masked(ws.OpText, false, web.MaxMessage-1))
			_, _ = c.conn.Write(masked(ws.OpContinuation, true, 2))
		}, ws.StatusMessageTooBig},
		{"announces more than memory", func(c *socketClient) {
			_ = ws.WriteHeader(c.conn, ws.Header{Fin: true, OpCode: ws.OpText, Masked: true, Length: 1 << 60})
		}, ws.StatusMessageTooBig},
		{"unmasked", func(c *socketClient) { _ = ws.WriteFrame(c.conn, ws.NewTextFrame([]byte("{}"))) }, ws.StatusProtocolError},
		{"reserved bits", func(c *socketClient) {
			_ = ws.WriteHeader(c.conn, ws.Header{Fin: true, Rsv: 7, OpCode: ws.OpText, Masked: true})
		}, ws.StatusProtocolError},
		{"continues nothing", func(c *socketClient) { _, _ = c.conn.Write(masked(ws.OpContinuation, true, 2)) }, ws.StatusProtocolError},
		{"announces less than nothing", func(c *socketClient) { _, _ = c.conn.Write([]byte("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff____")) }, ws.StatusProtocolError},
		{"closes with half a code", func(c *socketClient) { c.send(ws.OpClose, "\x03") }, ws.StatusProtocolError},
		{"closes with a reserved code", func(c *socketClient) { c.send(ws.OpClose, "\x03\xed") }, ws.StatusProtocolError},
		{"closes with a code that is none", func(c *socketClient) { c.send(ws.OpClose, "\x00\x01") }, ws.StatusProtocolError},
		{"closes without a code", func(c *socketClient) { c.send(ws.OpClose, "") }, ws.StatusNormalClosure},
		{"closes with its own code", func(c *socketClient) { c.send(ws.OpClose, "\x0f\xa0") }, 4000},
		{"closes with a newer code", func(c *socketClient) { c.send(ws.OpClose, "\x03\xf4") }, web.StatusServiceRestart},
		{"closes", func(c *socketClient) { c.send(ws.OpClose, "\x03\xe8bye") }, ws.StatusNormalClosure},
	} {
		c := dialSocket(t, w, newEventScript())
		tt.send(c)
		code, reason := c.end()
		require.Equal(t, tt.want, code, "%s: %s", tt.name, reason)
	}
	c := dialSocket(t, w, newEventScript())
	for _, message := range []string{"{nope", "[]", "null", "7", `{"id":"x","method":"y"}`, strings.Repeat("[", web.MaxMessage)} {
		c.send(ws.OpText, message)
		require.Contains(t, c.text(), `"error":"invalid_argument"`, message[:1])
	}
	c.send(ws.OpText, `{"id":1,"method":"nope","params":[]}`)
	require.Equal(t, `{"type":"error","id":1,"error":"unknown_command","message":"Unknown protocol command: nope"}`, c.text())
}

func masked(op ws.OpCode, fin bool, length int) []byte {
	f := ws.NewFrame(op, fin, []byte(strings.Repeat("x", length)))
	return ws.MustCompileFrame(ws.MaskFrameInPlace(f))
}

func TestSocketSubscriptionLimit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := dialSocket(t, w, newEventScript())
	w.services.events = func([]protocol.Filter) protocol.Follower { return newEventScript() }
	for range maxSubscriptions {
		c.subscribe()
	}
	c.send(ws.OpText, `{"id":2,"method":"subscription.subscribe","params":{"channels":["custom"]}}`)
	require.Contains(t, c.text(), "at most 64 subscriptions")
}

// A subscription that is added while events come leaves none out, and repeats none to those that were there: each sees the events after what it has seen.
func TestSocketFiltersOfLaterSubscriptions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first, second := newEventScript(), newEventScript()
	second.events, second.replayed = make(chan []protocol.Event), true
	c := dialSocket(t, w, first)
	c.subscribe()
	first.events <- []protocol.Event{eventOf(7, "a"), eventOf(8, "b")}
	require.Contains(t, c.text()+c.text(), `"b"`)
	asked := make(chan []protocol.Filter, 1)
	w.services.events = func(filters []protocol.Filter) protocol.Follower {
		asked <- filters
		return second
	}
	c.send(ws.OpText, `{"id":2,"method":"subscription.reconnect","params":{"channels":["values"],"since":5}}`)
	require.Equal(t, []protocol.Filter{{Channels: []string{"values"}, Since: 5, Resume: true}}, <-asked)
	second.events <- []protocol.Event{eventOf(6, "before")}
	require.Contains(t, c.text(), `"before"`)
	second.events <- []protocol.Event{eventOf(8, "same"), eventOf(9, "later")} // the rest comes to both
	require.Contains(t, c.text(), `"same"`)
	require.Regexp(t, `"replayed_events":2.*"meta":\{"applied_through_seq":8\}`, c.text())
	require.Eventually(t, second.closed.Load, time.Minute, time.Millisecond)
	require.False(t, first.closed.Load(), "it may have events that are not kept")
	first.events <- []protocol.Event{eventOf(9, "c")}
	require.Contains(t, c.text(), `"c"`)

	// What cannot be resumed is refused, and what was there goes on.
	third := newEventScript()
	third.events, third.replayed = make(chan []protocol.Event, 1), true
	third.events <- []protocol.Event{{Gap: &protocol.Gap{Since: 3, First: 5}}}
	w.services.events = func([]protocol.Filter) protocol.Follower { return third }
	c.send(ws.OpText, `{"id":3,"method":"subscription.reconnect","params":{"channels":["values"],"since":3}}`)
	require.Equal(t, `{"type":"error","id":3,"error":"resume_gap","message":"Events after seq 3 are no longer available; read the state of the thread again.",`+
		`"since":3,"min_available_seq":5,"meta":{"applied_through_seq":9}}`, c.text())
	first.events <- []protocol.Event{eventOf(10, "d")}
	require.Contains(t, c.text(), `"d"`)
}

// What is of the connection has no seq: it is sent like an event, and does not change where a client resumes.
func TestSocketShowsWhatIsNotNumbered(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := newEventScript()
	c := dialSocket(t, w, s)
	c.subscribe()
	notice := `{"type":"error","id":null,"error":"end_not_saved","message":"the disk is full","run_id":"r"}`
	s.events <- []protocol.Event{eventOf(7, "a"), {Method: "error", Data: []byte(notice)}}
	require.Contains(t, c.text(), `"a"`)
	require.Equal(t, notice, c.text())
	s.fail(fmt.Errorf("%w: slow", bridge.ErrInterrupted))
	require.Contains(t, c.text(), `"meta":{"applied_through_seq":7}`)
	_, reason := c.end()
	require.Contains(t, reason, "since 7")
}

// The end of a socket says what to do next.
func TestSocketEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want ws.StatusCode
		text string
	}{
		{fmt.Errorf("%w: slow", bridge.ErrInterrupted), web.StatusTryAgainLater, "since 7"},
		{bridge.ErrClosed, web.StatusServiceRestart, "connect again"},
		{io.EOF, ws.StatusInternalServerError, "deleted"},
		{io.ErrNoProgress, ws.StatusInternalServerError, "Internal Server Error"},
	} {
		w := setup(t)
		s := newEventScript()
		c := dialSocket(t, w, s)
		c.subscribe()
		s.events <- []protocol.Event{eventOf(7, "a")}
		require.Contains(t, c.text(), `"a"`)
		s.fail(tt.err)
		if tt.want == web.StatusTryAgainLater {
			require.Contains(t, c.text(), `"meta":{"applied_through_seq":7}`)
		}
		code, reason := c.end()
		require.Equal(t, tt.want, code, reason)
		require.Contains(t, reason, tt.text)
		require.NoError(t, c.conn.Close())
		require.NoError(t, w.stop()) // waits for the socket
		require.True(t, s.closed.Load())
	}
}

// A panic ends the socket, not the process.
func TestSocketPanic(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := newEventScript()
	c := dialSocket(t, w, s)
	c.subscribe()
	close(s.events) // Next reads an error that is not there
	code, _ := c.end()
	require.Equal(t, ws.StatusInternalServerError, code)
	res, _ := w.ask(t, "GET", "/ok", "")
	require.Equal(t, 200, res.StatusCode)
}

// What is asked of a socket that has ended is not waited for, however many commands the client had sent.
func TestSocketAskAfterItsEnd(t *testing.T) {
	t.Parallel()
	k := &socket{asked: make(chan func(), 1), over: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	k.cancel(web.ErrLeft)
	close(k.over)
	done := make(chan error, 1)
	go func() {
		for range 10 {
			if err := k.ask(func() error { return nil }); !errors.Is(err, web.ErrLeft) {
				done <- fmt.Errorf("not %w: %w", web.ErrLeft, err)
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "it waits for a goroutine that has ended")
	}
}

func TestSocketShutdown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	idle, following := dialSocket(t, w, newEventScript()), dialSocket(t, w, newEventScript())
	following.subscribe()
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	for _, c := range []*socketClient{idle, following} {
		code, _ := c.end()
		require.Equal(t, web.StatusServiceRestart, code)
		c.conn.Close()
	}
	require.NoError(t, <-stopped)
}

// A client from which nothing comes has left.
func TestSocketSilence(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
	c := dialSocket(t, w, newEventScript())
	_, err := io.Copy(io.Discard, c.in) // to its end
	require.NoError(t, err)
}

// Clients are pinged, and their pings are answered.
func TestSocketPings(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Heartbeat = 500 * time.Millisecond }) // a ping after 2 s, the end after 6 s of silence
	c := dialSocket(t, w, newEventScript())
	require.Equal(t, ws.OpPing, c.frame().Header.OpCode)
	c.send(ws.OpPing, "x")
	f := c.frame()
	for f.Header.OpCode == ws.OpPing {
		f = c.frame()
	}
	require.Equal(t, ws.OpPong, f.Header.OpCode)
	require.Equal(t, "x", string(f.Payload))
}

// heardConn counts the deadlines for what is read.
type heardConn struct {
	net.Conn
	deadlines int
}

func (c *heardConn) SetReadDeadline(time.Time) error {
	c.deadlines++
	return nil
}

// Every frame of a client, also a pong, gives it time for the next one.
func TestSocketPongsKeepClients(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	for range 3 {
		in.Write(masked(ws.OpPong, true, 4))
	}
	conn := &heardConn{}
	_, _, err := New(options(&services{})).NewWebsocket(conn, &in).Read()
	require.ErrorIs(t, err, web.ErrLeft)
	require.Equal(t, 4, conn.deadlines)
}

// goneListener accepts connections whose clients have left once they have sent their requests.
type goneListener struct{ net.Listener }

func (l goneListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return goneConn{c}, err
}

type goneConn struct{ net.Conn }

func (goneConn) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A client that leaves before the answer to its handshake keeps no slot, and has a line in the log.
func TestSocketLeavesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var log logtest.Buffer
	o := options(&services{})
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, goneListener{ln}) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+protocolPath+"/stream/events HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+webSocketKey+"\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.Copy(io.Discard, conn) // to its end
	require.NoError(t, err)
	require.Zero(t, s.Slots.InUse())
	cancel()
	require.NoError(t, <-done)
	require.Regexp(t, `msg=request .*route=/threads/\{thread_id\}/stream/events status=101 .*ended=left`, log.String())
}

// What a client sends together with its handshake, or in any pieces after it, is read once and in order, also through TLS.
func TestSocketFramesBehindTheHandshake(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	sent.WriteString("GET " + protocolPath + "/stream/events HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + webSocketKey + "\r\n\r\n")
	head := sent.Len()
	const many = 60
	for i := range many {
		subscribe := fmt.Sprintf(`{"id":%d,"method":"subscription.subscribe","params":{"channels":["custom"]}%s}`, i+1, strings.Repeat(" ", i*i))
		require.NoError(t, wsutil.WriteClientMessage(&sent, ws.OpText, []byte(subscribe)))
	}
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	for _, cut := range []int{head, head + 1, head + 7, head + 4000, 16 << 10, 16<<10 + 1, 40_000, sent.Len()} {
		for _, secure := range []bool{false, true} {
			s := New(options(&services{events: func([]protocol.Filter) protocol.Follower { return newEventScript() }}))
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := ln.Addr().String()
			if secure {
				ln = tls.NewListener(ln, certified.TLS)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.Serve(ctx, ln) }()
			var conn net.Conn
			if secure {
				conn, err = tls.Dial("tcp", address, certified.Client().Transport.(*http.Transport).TLSClientConfig)
			} else {
				conn, err = net.Dial("tcp", address)
			}
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = conn.Write(sent.Bytes()[:cut])
			require.NoError(t, err)
			in := bufio.NewReader(conn)
			for line := "x"; line != "\r\n"; { // the answer to the handshake
				line, err = in.ReadString('\n')
				require.NoError(t, err)
			}
			_, err = conn.Write(sent.Bytes()[cut:])
			require.NoError(t, err)
			c := &socketClient{t: t, conn: conn, in: in}
			for i := range many {
				require.Contains(t, c.text(), fmt.Sprintf(`"id":%d,`, i+1), "cut at %d, TLS: %t", cut, secure)
			}
			require.NoError(t, conn.Close())
			cancel()
			require.NoError(t, <-done)
		}
	}
}

// Clients whose machines have gone without a word are found by pings that nothing answers, however many they are; one that answers stays.
func TestSocketsHalfOpen(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Heartbeat = 100 * time.Millisecond })
	const many = 200
	for range many {
		dialSocket(t, w, newEventScript())
	}
	alive := dialSocket(t, w, newEventScript())
	pings := 0
	for opened := false; !opened || w.s.Slots.InUse() > 1; {
		f := alive.frame() // one for each ping
		require.Equal(t, ws.OpPing, f.Header.OpCode)
		alive.send(ws.OpPong, "")
		opened = opened || w.s.Slots.InUse() > 1
		pings++
	}
	require.GreaterOrEqual(t, pings, web.SilentBeats/web.PingBeats)
	alive.subscribe()
}

// Messages that are being sent in pieces take of the budget for bodies.
func TestSocketMessagesTakeOfTheBudget(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.MaxBodies = web.BodyCopies * web.MaxMessage })
	first, second := dialSocket(t, w, newEventScript()), dialSocket(t, w, newEventScript())
	_, err := first.conn.Write(masked(ws.OpText, false, 10))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !w.s.Bodies.Has(1) }, 30*time.Second, time.Millisecond)
	_, err = second.conn.Write(masked(ws.OpText, false, 10))
	require.NoError(t, err)
	code, _ := second.end()
	require.Equal(t, web.StatusTryAgainLater, code)
	first.conn.Close()
	require.Eventually(t, func() bool { return w.s.Bodies.Has(web.BodyCopies * web.MaxMessage) }, 30*time.Second, time.Millisecond)
}

// A command is answered while events wait, in the order in which commands came.
func TestSocketCommands(t *testing.T) {
	t.Parallel()
	w := setup(t)
	c := dialSocket(t, w, newEventScript())
	c.send(ws.OpText, `{"id":1,"method":"run.start","params":{"assistant_id":"a"}}`)
	c.send(ws.OpText, `{"id":2,"method":"agent.getTree"}`)
	var answer struct {
		ID     int
		Result struct {
			RunID string `json:"run_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(c.text()), &answer))
	require.Equal(t, someRun, answer.Result.RunID)
	require.Contains(t, c.text(), `"id":2,"error":"no_such_run"`)
}
