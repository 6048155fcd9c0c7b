package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/graph/agent/llm"
	"understudy/internal/logtest"
)

const secret = "SECRET-5f2a91c0"

// echo is a decoder: "end" completes an answer, "error …" fails it, "odd …" is not understood, "{…}" has no content.
type echo struct{ complete bool }

func (d *echo) Event(_ string, data []byte) (c llm.Chunk, given bool, err error) {
	text := string(data)
	switch {
	case text == "end", text == `"end"`:
		d.complete = true
	case strings.HasPrefix(text, "error "):
		err = &llm.Error{Status: http.StatusOK, Type: text, Code: text, Param: text, RequestID: text, Message: text}
	case strings.HasPrefix(text, "odd "):
		err = &Misunderstood{What: text}
	case !strings.HasPrefix(text, "{"):
		c.Content = text
	}
	return c, !c.Empty(), err
}

func (d *echo) Whole(data []byte) (llm.Chunk, error) {
	if string(data) == `{"end":1}` {
		data = []byte("end")
	}
	c, _, err := d.Event("", data)
	return c, err
}
func (d *echo) Complete() bool          { return d.complete }
func (d *echo) Ended() bool             { return false }
func (d *echo) Last() (llm.Chunk, bool) { return llm.Chunk{}, false }

// answers is a transport.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func body(r io.Reader) answers {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(r)}, nil
	}
}

func client(o Options) *Client {
	if o.URL == "" {
		o.URL = "https://model.test/v1"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Decoder = func() Decoder { return &echo{} }
	o.Explain = func([]byte, *llm.Error) {}
	return New(o)
}

func ask(ctx context.Context, c *Client) (text string, err error) {
	for chunk, failure := range c.Stream(ctx, []byte("{}")) {
		text, err = text+chunk.Content, failure
	}
	return text, err
}

// A model that hangs is in the log within five seconds, and again while it hangs: which, where, and how long it is waited for. One that has begun to answer is not.
func TestWaitsAreLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers bool
		after   time.Duration
		lines   int
	}{
		"quick":   {false, 3 * time.Second, 0},
		"hangs":   {false, 5 * time.Second, 1},
		"long":    {false, time.Minute, 2},
		"answers": {true, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := &logtest.Buffer{}
				client := client(Options{
					URL: "https://user:" + secret + "@model.test/v1?key=" + secret, Model: "m", Retries: -1, Secrets: []string{secret}, Log: slog.New(slog.NewTextHandler(log, nil)),
					Transport: answers(func(r *http.Request) (*http.Response, error) {
						if c.answers {
							return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(&slow{ctx: r.Context(), text: "data: Hi\n\n"})}, nil
						}
						<-r.Context().Done()
						return nil, context.Cause(r.Context())
					}),
				})
				ctx, cancel := context.WithTimeout(t.Context(), c.after)
				defer cancel()
				_, err := ask(ctx, client)
				require.Error(t, err)
				require.Equal(t, c.lines, strings.Count(log.String(), "\n"), log.String())
				if c.lines > 0 {
					require.Contains(t, log.String(), `msg="waiting for the first byte of a model" model=m at=https://model.test/v1 duration_ms=4000 timeout=10m0s`)
				}
				require.NotContains(t, log.String(), secret)
			})
		})
	}
}

// Each retry is a line of the log: attempt, wait, cause and model, and no secret. A storm of them does not fill the log.
func TestRetriesAreLogged(t *testing.T) {
	t.Parallel()
	const storm = 500
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var calls atomic.Int32
		c := client(Options{
			Model: "m", Retries: 2, Secrets: []string{secret}, Log: slog.New(slog.NewJSONHandler(&log, nil)),
			Transport: answers(func(*http.Request) (*http.Response, error) {
				n := calls.Add(1)
				if n == 1 || n > 3 {
					return nil, fmt.Errorf("reset by %s%s", secret, strings.Repeat("x", 10_000))
				}
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}}, Body: io.NopCloser(strings.NewReader("no"))}, nil
			}),
		})
		ask := func() {
			_, err := ask(t.Context(), c)
			require.Error(t, err)
		}
		ask()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		for i, want := range []string{"reset by [redacted]", "429 Too Many Requests"} {
			line := gjson.Parse(lines[i])
			require.Equal(t, "WARN", line.Get("level").Str)
			require.Equal(t, "m", line.Get("model").Str)
			require.EqualValues(t, i+1, line.Get("attempt").Int())
			require.EqualValues(t, 3, line.Get("attempts").Int())
			require.Contains(t, line.Get("cause").Str, want)
			require.Less(t, len(line.Get("cause").Str), 600)
			require.Regexp(t, `^(7s|\d+(\.\d+)?m?s)$`, line.Get("wait").Str)
		}
		require.Equal(t, "7s", gjson.Get(lines[1], "wait").Str)
		require.NotContains(t, log.String(), secret)

		log.Reset()
		var all sync.WaitGroup
		for range storm {
			all.Go(ask)
		}
		all.Wait()
		logged := strings.Count(log.String(), "\n")
		require.Less(t, logged, 60)
		time.Sleep(time.Minute) // of the bubble
		ask()
		left := 0
		gjson.ForEachLine(log.String(), func(line gjson.Result) bool {
			left += int(line.Get("left_out").Int())
			return true
		})
		require.Equal(t, 2*storm, logged+left, "logged and counted")
	})
}

// endless repeats a text.
type endless struct {
	text string
	read int
}

func (r *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], r.text[(r.read+n)%len(r.text):])
	}
	r.read += n
	return n, nil
}

// An answer without events ends soon, whatever its values are.
func TestAnswersWithoutEventsAreBounded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{}": "10000 JSON values", "[] ": "10000 JSON values", `{"a":"bcd"}`: "10000 JSON values",
		`{"a":` + strings.Repeat(" ", 100_000) + `1}`: "one piece has more than 4 times",
	} {
		stream := &endless{text: text}
		_, err := ask(t.Context(), client(Options{Transport: body(stream), MaxEvent: 100_000, MaxBody: 4 << 20, Retries: -1}))
		require.ErrorContains(t, err, want)
		require.Less(t, stream.read, 1<<20, "%.20q", text)
	}
	stream := &endless{text: `{"end":1}`}
	_, err := ask(t.Context(), client(Options{Transport: body(stream), MaxBody: 4 << 20, Retries: -1}))
	require.NoError(t, err)
	require.Less(t, stream.read, 1<<20, "after the answer")
}

// Chunks without content are not kept until the first token.
func TestEmptyChunksAreNotHeld(t *testing.T) {
	t.Parallel()
	a := &attempt{yield: func(llm.Chunk, error) bool { return true }}
	for range 100 {
		a.emit(llm.Chunk{})
	}
	require.Empty(t, a.held)
	a.emit(llm.Chunk{Model: "m"})
	require.Len(t, a.held, 1)
}

// The key of a request is sent to the same host, and never without TLS when the configured address has it.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		followed bool
	}{
		{"https://model.test/v1", "https://model.test/v2", true},
		{"http://model.test/v1", "http://model.test/v2", true},
		{"http://model.test/v1", "https://model.test/v2", true},
		{"https://model.test/v1", "http://model.test/v2", false},
		{"https://model.test:80/v1", "http://model.test:80/v2", false},
		{"https://model.test/v1", "https://other.test/v1", false},
	} {
		var seen []string
		c := client(Options{URL: tt.from, Header: http.Header{"Authorization": {"Bearer " + secret}}, Retries: -1, Transport: answers(func(r *http.Request) (*http.Response, error) {
			seen = append(seen, r.URL.String()+" "+r.Header.Get("Authorization"))
			if r.URL.String() == tt.to {
				return body(strings.NewReader("data: Hi\n\ndata: end\n\n"))(r)
			}
			return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {tt.to}}, Body: http.NoBody}, nil
		})})
		text, err := ask(t.Context(), c)
		if tt.followed {
			require.NoError(t, err)
			require.Equal(t, "Hi", text)
			require.Len(t, seen, 2)
			continue
		}
		require.ErrorContains(t, err, "the server redirects to "+tt.to)
		require.Len(t, seen, 1, "the key went to %s", tt.to)
	}
}

// slow is a body that has a text at once, and then a piece each second of a day, until the request is canceled.
type slow struct {
	ctx         context.Context
	text, piece string
	pieces      int
}

func (b *slow) Read(p []byte) (int, error) {
	if b.text != "" {
		n := copy(p, b.text)
		b.text = b.text[n:]
		return n, nil
	}
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(time.Second):
	}
	if b.pieces++; b.pieces > 86400 {
		return 0, io.EOF
	}
	return copy(p, b.piece), nil
}

// What is complete is not waited for: an answer whose connection stays alive, and a refusal whose text does not end.
func TestCompleteAnswersEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status      int
		text, piece string
		want        string
	}{
		"events, then pings":       {200, "data: Hi\n\ndata: end\n\n", ": ping\n\n", ""},
		"events, then more events": {200, "data: Hi\n\ndata: end\n\n", "data: {}\n\n", ""},
		"one piece, then blanks":   {200, `{"end":1}`, " ", ""},
		"one piece, then pieces":   {200, `{"end":1}`, "{}", ""},
		"a refusal, then silence":  {403, "no", "", "403 Forbidden: no"},
		"a refusal, then blanks":   {403, "no", " ", "403 Forbidden: no"},
		"a refusal of only blanks": {403, "", " ", "403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := client(Options{Retries: -1, Transport: answers(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: tt.status, Header: http.Header{}, Body: io.NopCloser(&slow{ctx: r.Context(), text: tt.text, piece: tt.piece})}, nil
				})})
				began := time.Now()
				_, err := ask(t.Context(), c)
				if tt.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tt.want)
				}
				require.LessOrEqual(t, time.Since(began), 2*settle)
			})
		})
	}
}

// A silent answer is an error, also when the server refused before in another try.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := client(Options{Transport: answers(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(&slow{ctx: r.Context(), text: "data: Hi\n\n"})}, nil
		}), Idle: 500 * time.Millisecond})
		_, err := ask(t.Context(), c)
		require.ErrorIs(t, err, llm.ErrIdle)
	})
}

// Whatever is cut off, and wherever: no part of a secret is left.
func TestClip(t *testing.T) {
	t.Parallel()
	h := client(Options{Secrets: []string{secret}, Header: http.Header{"X-Team": {"Key one/+"}}}).hide
	for _, key := range []string{secret, "Key one/+", "Key+one%2F%2B"} {
		for _, n := range []int{50, 80} {
			for _, at := range []int{n, ahead * n} { // where a text is cut
				for before := max(at-40, 0); before < at+5; before++ {
					for _, text := range []string{
						strings.Repeat(".", before) + key + strings.Repeat(".", 3*ahead*n),
						strings.Repeat(secret, before/len(secret)+1)[len(secret)-before%len(secret):] + key + strings.Repeat(".", 3*ahead*n),
						strings.Repeat("é", before/2) + key,
						"https://x.test/?" + strings.Repeat("a", max(before-17, 0)) + " " + key + strings.Repeat(".", 3*ahead*n), // shrinks
					} {
						got := h.clip(text, n)
						require.LessOrEqual(t, len(got), n+len("…"))
						tail := strings.TrimSuffix(got, "…")
						require.NotContains(t, got, key[:5], "%q", text)
						for k := 2; k < len(key); k++ {
							require.False(t, strings.HasSuffix(tail, key[:k]), "%q ends with %q", got, key[:k])
						}
					}
				}
			}
		}
	}
	require.Equal(t, "short", h.clip("short", 5))
}

// Errors in the middle of an answer are bounded, as what the log has of an answer is, and neither has secrets.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(secret+" ", 100_000)
	_, err := ask(t.Context(), client(Options{Secrets: []string{secret}, Retries: -1, Transport: body(strings.NewReader("data: error " + long + "\n\n"))}))
	var said *llm.Error
	require.ErrorAs(t, err, &said)
	for _, text := range []string{said.Message, said.Type, said.Code, said.Param, said.RequestID} {
		require.Less(t, len(text), 5000)
		require.Contains(t, text, hidden)
		require.NotContains(t, text, "SECRET")
	}
	var log strings.Builder
	c := client(Options{
		Secrets: []string{secret}, Retries: -1, Transport: body(strings.NewReader("data: odd " + long + "\n\ndata: odd " + long + "\n\n")),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	_, err = ask(t.Context(), c)
	require.ErrorIs(t, err, llm.ErrNone)
	require.NotContains(t, err.Error()+log.String(), "SECRET")
	require.Less(t, log.Len(), 2000)
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	for what := range c.said {
		require.LessOrEqual(t, len(what), 80+len("…"))
	}
}

// Only what is known to be public is shown of headers and query, and nothing of the user of a URL.
func TestSecrets(t *testing.T) {
	t.Parallel()
	h := client(Options{
		URL:    "https://user-as-key:password@model.test/v1?api-version=2024-10-21&conversion=query-secret",
		Header: http.Header{"X-Conversion-Key": {"key-of-conversion"}, "X-Beta-Key": {"key-of-beta"}, "Proxy-Authorization": {"Basic dXNlcjprZXk="}, "Anthropic-Version": {"2023-06-01"}},
	}).hide
	for _, text := range []string{"user-as-key", "password", "query-secret", "key-of-conversion", "key-of-beta", "dXNlcjprZXk=", "dXNlci1hcy1rZXk6cGFzc3dvcmQ="} {
		require.Equal(t, "it is "+hidden, h.text("it is "+text))
	}
	for _, text := range []string{"2024-10-21", "2023-06-01"} {
		require.Equal(t, text, h.text(text))
	}
}

func TestWaits(t *testing.T) {
	t.Parallel()
	c := client(Options{})
	for _, after := range []time.Duration{-1, 0} {
		wait, again := c.again(t.Context(), &refusal{said: &llm.Error{Status: http.StatusTooManyRequests}, after: after}, 0)
		require.True(t, again)
		require.GreaterOrEqual(t, wait, 500*time.Millisecond, "Retry-After: 0 is no reason to hurry")
	}
	wait, again := c.again(t.Context(), &refusal{said: &llm.Error{Status: http.StatusTooManyRequests}, after: time.Millisecond}, 0)
	require.True(t, again)
	require.Equal(t, time.Millisecond, wait)
}

// A certificate that is not trusted stays so: one try. A connection that is refused may not.
func TestUnreached(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	defer srv.Close()
	var dials atomic.Int32
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	_, err := ask(t.Context(), client(Options{URL: srv.URL, Transport: transport}))
	require.ErrorContains(t, err, "certificate")
	require.Equal(t, int32(1), dials.Load())

	c := client(Options{})
	_, again := c.again(t.Context(), &unreached{fmt.Errorf("no answer"), errors.New("connection refused")}, 0)
	require.True(t, again)
}

// frozen relays connections to a server until freeze, which stops those that are open: they stay open and nothing passes any more.
type frozen struct {
	net.Listener
	mu     sync.Mutex
	stops  []chan struct{}
	opened atomic.Int32
}

func relay(t *testing.T, to string) *frozen {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &frozen{Listener: l}
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := new(net.Dialer).Dial("tcp", to)
			if err != nil {
				_ = down.Close()
				continue
			}
			f.opened.Add(1)
			stop := make(chan struct{})
			f.mu.Lock()
			f.stops, conns = append(f.stops, stop), append(conns, up, down)
			f.mu.Unlock()
			for _, pair := range [][2]net.Conn{{up, down}, {down, up}} {
				wg.Go(func() {
					buffer := make([]byte, 4096)
					for {
						n, err := pair[0].Read(buffer)
						if err != nil {
							return
						}
						select {
						case <-stop: // what comes is lost
						default:
							_, _ = pair[1].Write(buffer[:n])
						}
					}
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		wg.Wait()
	})
	return f
}

func (f *frozen) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, stop := range f.stops {
		close(stop)
	}
	f.stops = nil
}

// An HTTP/2 connection that dies in silence is noticed by pings, long before the answer is due: a request that was not answered goes to another
// connection, and an answer that began is cut.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	require.Equal(t, &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping}, client(Options{}).opts.Transport.(*http.Transport).HTTP2)
	for name, begun := range map[string]bool{"before the answer": false, "in the answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var freeze func()
			var requests atomic.Int32
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor != 2 {
					t.Error("the test needs HTTP/2")
				}
				if requests.Add(1) > 1 {
					_, _ = io.WriteString(w, "data: Hello\n\ndata: end\n\n")
					return
				}
				if begun {
					_, _ = io.WriteString(w, "data: Hi\n\n")
					_ = http.NewResponseController(w).Flush()
				} else {
					freeze()
				}
				<-r.Context().Done()
			}))
			srv.EnableHTTP2 = true
			srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			srv.StartTLS()
			defer srv.Close()
			defer srv.CloseClientConnections()
			between := relay(t, srv.Listener.Addr().String())
			freeze = between.freeze
			tr := transport(time.Second) // less than what a busy machine takes to answer would end the good connection too
			tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			defer tr.CloseIdleConnections()
			c := client(Options{URL: "https://" + between.Addr().String(), Transport: tr})
			text := ""
			var failure error
			for chunk, err := range c.Stream(t.Context(), []byte("{}")) {
				if text += chunk.Content; begun && err == nil {
					freeze()
				}
				failure = err
			}
			if begun {
				require.Equal(t, "Hi", text)
				require.ErrorIs(t, failure, llm.ErrCut)
				return
			}
			require.NoError(t, failure)
			require.Equal(t, "Hello", text)
			require.Equal(t, int32(2), between.opened.Load(), "connections")
		})
	}
}
