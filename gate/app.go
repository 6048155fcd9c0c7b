package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"understudy/access"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

// Application is what is known of the application of http.app.
type Application struct {
	// Wraps names its middleware, except what this server does itself; with any, the API passes through the application.
	Wraps []string
	// CORS is the configuration of its CORSMiddleware in the form of http.cors; nil: it has none.
	CORS json.RawMessage
	// OpenAPI is its description; nil: it has none.
	OpenAPI json.RawMessage
	// Handles reports whether it has exception handlers for errors that the API answers.
	Handles bool
}

// Raised is an error of the API as an HTTPException of the application.
type Raised struct {
	Status int
	Detail json.RawMessage
	Header http.Header
}

// RaisedHeader marks an answer of the API to a request that passed the middleware of the application: its exception handlers answer instead.
const RaisedHeader = "Understudy-Raised"

// application is what a process says of it.
type application struct {
	Wraps   []string        `json:"wraps"`
	Routes  []route         `json:"routes"`
	Slashes bool            `json:"slashes"`
	CORS    json.RawMessage `json:"cors"`
	OpenAPI string          `json:"openapi"`
	Handles bool            `json:"handles"`

	prefix string
	public *Application
}

type route struct {
	Kind    string   `json:"kind"` // route, mount, socket; any: only Python knows
	Pattern string   `json:"pattern"`
	Methods []string `json:"methods"` // none: all
	Path    string   `json:"path"`

	pattern *regexp.Regexp
}

func (a *application) compile(prefix string) (err error) {
	a.prefix, a.public = prefix, &Application{Wraps: a.Wraps, CORS: a.CORS, Handles: a.Handles}
	if a.OpenAPI != "" {
		a.public.OpenAPI = json.RawMessage(a.OpenAPI)
	}
	for i := range a.Routes {
		r := &a.Routes[i]
		if r.Kind == "any" {
			continue
		}
		var wrong error
		if r.pattern, wrong = regexp.Compile(r.Pattern); wrong != nil {
			r.Kind, err = "any", wrong
		}
	}
	return err
}

// Claim is what an application has for a request.
type Claim int

const (
	NotClaimed Claim = iota
	// OtherMethod: it has the path, for other methods, or with another slash at the end.
	OtherMethod
	// Claimed: it has the route.
	Claimed
	// Unknown: only Python knows.
	Unknown
)

// Reserved are the paths that an application cannot take, without the mount prefix.
var Reserved = []string{"/ok", "/metrics", "/docs", "/openapi.json"}

// Claims reports whether the application has a route for a request. path is decoded, with the mount prefix.
func (g *Gate) Claims(method, path string, websocket bool) Claim {
	a := g.app()
	if a == nil {
		return NotClaimed
	}
	if a.prefix != "" {
		rest, ok := strings.CutPrefix(path, a.prefix)
		if !ok || rest != "" && rest[0] != '/' {
			return NotClaimed
		}
		path = rest
	}
	if !websocket && slices.Contains(Reserved, path) {
		return NotClaimed
	}
	best := a.match(method, path, websocket)
	if best == NotClaimed && a.Slashes && !websocket && path != "/" {
		other := strings.TrimRight(path, "/")
		if other == path {
			other += "/"
		}
		if a.match(method, other, false) != NotClaimed {
			return OtherMethod
		}
	}
	return best
}

func (a *application) match(method, path string, websocket bool) (best Claim) {
	for i := range a.Routes {
		r := &a.Routes[i]
		switch {
		case r.Kind == "any":
			return Unknown
		case r.Kind != "mount" && (r.Kind == "socket") != websocket, !r.pattern.MatchString(path):
		case len(r.Methods) == 0 || websocket || slices.Contains(r.Methods, method):
			return Claimed
		default:
			best = OtherMethod
		}
	}
	return best
}

// app is the application of the process in service; nil: there is none, or it is not there at the moment.
func (g *Gate) app() *application {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != nil {
		g.known = g.current.application()
	}
	return g.known
}

func (p *process) application() *application {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hello == nil {
		return nil
	}
	return p.hello.App
}

// Application returns what is known of the application; nil: there is none. It is another pointer after a restart or reload.
func (g *Gate) Application() *Application {
	a := g.app()
	if a == nil {
		return nil
	}
	return a.public
}

// Request is a request for the application.
type Request struct {
	access.Request
	// RawPath is the path as sent.
	RawPath string
	// Actor is request.user; nil: there is none, or it is requested when a route is reached.
	Actor *access.Actor
	// Trusted lets a request without credentials reach guarded routes: the server makes it itself.
	Trusted bool
	// Raised is an error of the API: the application answers it by its exception handlers. nil: it answers the request.
	Raised *Raised
	// API reports whether the API has a route for the request too.
	API bool
	// Body is the body; nil: there is none. Serve reads it until the body of the response is closed, not longer.
	Body io.Reader
	// Unblock makes a read of Body end: what is left of it is not wanted. nil: reads end by themselves.
	Unblock func()
	// Outer is what Passage.Outer is for requests that pass through the middleware of the application. If it has a method Accepted(*access.Request), that gets
	// the request whose credentials were accepted for a route that is guarded.
	Outer any
}

// Passage says on whose behalf a request of the application to its own server is made.
type Passage struct {
	// Outer is Request.Outer: the request passed through the middleware of the application. nil: a route has made it.
	Outer any
	// Actor is who a route acts as; nil: no actor, about whom no handler is asked.
	Actor *access.Actor
}

func (r *Request) append(p *process) func([]byte) []byte {
	return func(b []byte) []byte {
		b = appendRequest(b, &r.Request)
		b = append(appendLatin(append(b[:len(b)-1], `,"raw_path":`...), r.RawPath), `,"root_path":`...)
		b = append(jsonobj.AppendText(b, p.program.Prefix), `,"api":`...)
		b = strconv.AppendBool(b, r.API)
		if r.Trusted {
			b = append(b, `,"trusted":true`...)
		}
		if r.Raised != nil {
			b = appendRefusal(append(b, `,"raised":`...), &access.Refusal{Status: r.Raised.Status, Detail: r.Raised.Detail, Header: r.Raised.Header})
		}
		if host := r.Header.Get("Host"); host != "" {
			b = appendServer(b, host, r.Scheme)
		}
		if r.Actor != nil {
			b = p.appendActor(append(b, `,"user":`...), r.Actor)
		}
		return append(b, '}')
	}
}

// appendServer appends host and port of the Host header.
func appendServer(b []byte, host, scheme string) []byte {
	name, port := host, 80
	if scheme == "https" {
		port = 443
	}
	if at := strings.LastIndexByte(host, ':'); at > 0 && !strings.HasSuffix(host, "]") {
		if n, err := strconv.Atoi(host[at+1:]); err == nil && n > 0 && n < 1<<16 {
			name, port = host[:at], n
		}
	}
	b = appendLatin(append(b, `,"server":[`...), name)
	return append(strconv.AppendInt(append(b, ','), int64(port), 10), ']')
}

// headers is the head of a response.
type headers struct {
	Status      int         `json:"status"`
	Headers     [][2]string `json:"headers"`
	Subprotocol string      `json:"subprotocol"`
}

func (h *headers) response() *http.Response {
	r := &http.Response{StatusCode: h.Status, Header: http.Header{}, ContentLength: -1}
	for _, pair := range h.Headers {
		if name, value := latin(pair[0]), latin(pair[1]); name != "" && !strings.ContainsAny(name, "\r\n: ") && !strings.ContainsAny(value, "\r\n\x00") {
			r.Header.Add(name, value)
		}
	}
	if n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		r.ContentLength = n
	}
	return r
}

// latin turns one character for each byte into the bytes.
func latin(s string) string {
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < 0x80
	}
	if ascii {
		return s
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return ""
		}
		out = append(out, byte(r))
	}
	return string(out)
}

// begin opens a stream with a head.
func (g *Gate) begin(ctx context.Context, r *Request) (*stream, error) {
	var p *process
	var s *stream
	for err := errLeft; err != nil; {
		if p, err = g.process(ctx); err != nil {
			g.metrics.refused.WithLabelValues("down").Inc()
			return nil, errAppDown
		}
		s, err = p.newStream()
	}
	s.outer = r.Outer
	head := r.append(p)
	err := p.out.Add(func(b []byte) []byte {
		return head(append(b, bothOpen, byte(s.number>>24), byte(s.number>>16), byte(s.number>>8), byte(s.number)))
	})
	if err != nil {
		s.close(true)
		return nil, err
	}
	return s, nil
}

var errAppDown = fault.New(fault.Unavailable, "The application is not available at the moment, try again")

// Serve answers a request by the application. Close the body of the response: that ends the request. The error is a fault; ctx ends the request too.
func (g *Gate) Serve(ctx context.Context, r *Request) (*http.Response, error) {
	end := context.CancelFunc(func() {})
	if r.Raised != nil { // the API's own answer waits for it
		ctx, end = context.WithTimeoutCause(ctx, g.opts.Timeout, errSlow)
	}
	s, err := g.begin(ctx, r)
	if err != nil {
		end()
		return nil, err
	}
	uploaded := make(chan struct{})
	uploading, stop := context.WithCancel(ctx)
	go func() {
		defer close(uploaded)
		if r.Body == nil {
			_ = s.p.out.send(bothEnd, s.number, nil)
			return
		}
		_ = s.copyFrom(uploading, r.Body) // the application notices
	}()
	kind, payload, err := s.next(ctx)
	var h headers
	if err == nil && (kind != bothHeaders || json.Unmarshal(payload, &h) != nil || h.Status < 200 || h.Status > 999) {
		err = fault.New(fault.Internal, "the application did not answer")
	}
	after := func() {
		stop()
		if r.Unblock != nil {
			r.Unblock()
		}
		<-uploaded
		if errors.Is(context.Cause(ctx), errSlow) { // also when its answer has begun
			g.metrics.refused.WithLabelValues("slow").Inc()
			g.opts.Logger.Error("an exception handler of the application did not answer in time: the error is answered as without it", "path", r.Path, "limit", g.opts.Timeout.String(),
				"fix", "look for calls without a timeout in the exception handlers, or raise --gate-timeout")
		}
		end()
	}
	if err != nil {
		s.close(false)
		after()
		if errors.Is(err, errDown) {
			err = errAppDown
		}
		return nil, err
	}
	response := h.response()
	response.Body = &body{s: s, ctx: ctx, after: after}
	return response, nil
}

// Socket is a WebSocket to the application. One goroutine may read and another one write.
type Socket struct {
	// Subprotocol is what the application chose; "" none.
	Subprotocol string
	// Header is what it adds to the handshake.
	Header http.Header
	s      *stream
}

// Message is a message of a WebSocket, or its end.
type Message struct {
	Data   []byte
	Binary bool
	// Close ends it, with a code and a reason.
	Close  bool
	Code   int
	Reason string
}

// RoundTrip implements http.RoundTripper for requests that the server itself makes to the application, such as webhooks to its routes.
func (g *Gate) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := &Request{Trusted: true, RawPath: r.URL.EscapedPath()}
	inner.Method, inner.Path, inner.Query, inner.Scheme, inner.Header = r.Method, r.URL.Path, r.URL.RawQuery, "http", r.Header
	if r.Body != nil {
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		inner.Body = bytes.NewReader(text)
	}
	return g.Serve(r.Context(), inner)
}

// Dial opens a WebSocket to the application. Without an error either the socket is not nil, or the response is the refusal.
func (g *Gate) Dial(ctx context.Context, r *Request) (*Socket, *http.Response, error) {
	s, err := g.begin(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	kind, payload, err := s.next(ctx)
	var h headers
	if err == nil && (kind != bothHeaders || json.Unmarshal(payload, &h) != nil) {
		err = fault.New(fault.Internal, "the application did not answer a handshake")
	}
	if err != nil {
		s.close(false)
		return nil, nil, err
	}
	response := h.response()
	if h.Status != http.StatusSwitchingProtocols {
		defer s.close(false)
		text, err := io.ReadAll(io.LimitReader(&body{s: s, ctx: ctx}, 1<<20))
		if err != nil {
			return nil, nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(text))
		return nil, response, nil
	}
	return &Socket{Subprotocol: h.Subprotocol, Header: response.Header, s: s}, nil, nil
}

// Read returns the next message of the application. After a message that closes there is none.
func (w *Socket) Read(ctx context.Context) (Message, error) {
	kind, payload, err := w.s.next(ctx)
	if err != nil {
		return Message{}, err
	}
	switch kind {
	case bothText, bothBinary:
		return Message{Data: payload, Binary: kind == bothBinary}, nil
	case bothClose:
		var end struct {
			Code   int    `json:"code"`
			Reason string `json:"reason"`
		}
		if err := json.Unmarshal(payload, &end); err != nil {
			return Message{}, err
		}
		return Message{Close: true, Code: end.Code, Reason: end.Reason}, nil
	}
	return Message{Close: true, Code: 1006}, nil
}

// Write sends a message to the application.
func (w *Socket) Write(ctx context.Context, m Message) error {
	switch {
	case m.Close:
		b := strconv.AppendInt([]byte(`{"code":`), int64(m.Code), 10)
		b = jsonobj.AppendText(append(b, `,"reason":`...), m.Reason)
		return w.s.p.out.send(bothClose, w.s.number, append(b, '}'))
	case m.Binary:
		return w.s.write(ctx, bothBinary, m.Data)
	}
	return w.s.write(ctx, bothText, m.Data)
}

// Close forgets the socket; the application sees a client that has left.
func (w *Socket) Close() { w.s.close(false) }
