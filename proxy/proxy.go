package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/compat"
	"understudy/internal/framing"
)

// ErrShutdown is the cause of calls that end because Serve does.
var ErrShutdown = errors.New("the proxy shuts down")

// Config configures a Proxy.
type Config struct {
	Upstream *Upstream // required
	Recorder Recorder  // required
	// Own answers our own routes, messages and events of threads, as the replacement does. CallOf returns the call from its context.
	Own http.Handler
	// Pages is a path below which Own answers all requests, such as /studio; "": none.
	Pages string
	// CORS sets the headers of cross-origin requests on failures that the proxy answers itself. nil: none.
	CORS func(http.Header, *http.Request)
	// Host selects the Host header for the upstream; "": by the scheme of its address.
	Host HostPolicy
	// Offline allows our own routes to answer while the upstream is unavailable. nil: they do not.
	Offline *Offline

	Logger          *slog.Logger         // nil: none
	Registry        *prometheus.Registry // registry of the metrics; nil creates one
	MaxRewrite      int64                // maximum bytes of an inspected body or event; default 64 MiB. Longer ones pass unchanged
	MaxHeld         int64                // maximum bytes inspected at once; default 1 GiB. Beyond it bodies get 503, and answers pass unchanged
	BodyTimeout     time.Duration        // without any byte of an inspected body; default 30 s
	ShutdownTimeout time.Duration        // time for running calls when Serve ends; default 10 s
}

// Proxy forwards calls. Create it with New and call Serve once.
type Proxy struct {
	c       Config
	log     *slog.Logger
	metrics *metrics
	forward *httputil.ReverseProxy

	// Streams end before plain calls do. These contexts have the lifetime of the proxy.
	streaming  context.Context
	endStreams context.CancelCauseFunc

	held budget
	down atomic.Bool // the upstream did not answer the last request
}

// New returns a Proxy without opening anything.
func New(c Config) *Proxy {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.MaxRewrite <= 0 {
		c.MaxRewrite = 64 << 20
	}
	if c.MaxHeld <= 0 {
		c.MaxHeld = 1 << 30
	}
	if c.BodyTimeout <= 0 {
		c.BodyTimeout = 30 * time.Second
	}
	if c.ShutdownTimeout <= 0 {
		c.ShutdownTimeout = 10 * time.Second
	}
	if c.Host == "" {
		c.Host = ClientHost
		if c.Upstream.url.Scheme == "https" {
			c.Host = UpstreamHost
		}
	}
	c.Recorder = guarded{c.Recorder, c.Logger}
	p := &Proxy{c: c, log: c.Logger, metrics: newMetrics(c.Registry), held: budget{limit: c.MaxHeld}}
	p.streaming, p.endStreams = context.WithCancelCause(context.Background())
	p.forward = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { exchangeOf(r.In.Context()).rewrite(r) },
		ModifyResponse: func(r *http.Response) error { return exchangeOf(r.Request.Context()).answered(r) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			exchangeOf(r.Context()).failed(w, err)
		},
		Transport: c.Upstream,
		// Answers of unknown length are flushed with every write anyway; this is for slow answers of known length.
		FlushInterval: 5 * time.Millisecond,
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	return p
}

// Serve answers calls on ln until ctx ends. Then it stops accepting, cuts streams so that their readers reconnect, and waits for the rest, at
// most ShutdownTimeout. It returns when everything has ended; nil after an orderly end. It closes ln.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(ErrShutdown)
	srv := &http.Server{
		Handler: p,
		// The bodies of calls and answers have no time limit: streams last for hours.
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 75 * time.Second,
		MaxHeaderBytes:               128 << 10,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(framing.Listen(framing.RefuseTLS(ln, p.log))) }()
	var err error
	select {
	case err = <-done:
		p.endStreams(ErrShutdown)
		cut(ErrShutdown)
	case <-ctx.Done():
		p.endStreams(ErrShutdown)
		// After half of the time calls are canceled too, which leaves them the other half to end.
		timer := time.AfterFunc(p.c.ShutdownTimeout/2, func() { cut(ErrShutdown) })
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.c.ShutdownTimeout)
		if e := srv.Shutdown(grace); e != nil {
			p.log.Warn("calls were cut", "error", e)
			_ = srv.Close()
		}
		cancel()
		timer.Stop()
		cut(ErrShutdown)
		if e := <-done; e != nil && !errors.Is(e, http.ErrServerClosed) {
			err = e
		}
	}
	p.c.Upstream.transport.CloseIdleConnections()
	return err
}

// ServeHTTP answers one call.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, query := split(r)
	if r.Method == http.MethodConnect {
		p.refuse(w, r, http.StatusMethodNotAllowed, "CONNECT is not supported")
		return
	}
	if strings.HasPrefix(path, ownPrefix) && p.ownRoute(w, r, path) {
		return
	}
	if p.c.Upstream.isLoop(r) {
		p.refuse(w, r, http.StatusLoopDetected, "The upstream "+p.c.Upstream.String()+" leads back to this proxy. Name the LangGraph Server with --upstream")
		return
	}
	x := &exchange{p: p, w: &writer{ResponseWriter: w}, in: r, path: path, query: query, target: p.classify(r.Method, path), held: held{of: &p.held}}
	ctx, cancel := context.WithCancelCause(r.Context())
	x.cancel = cancel
	defer cancel(nil)
	x.serve(context.WithValue(ctx, exchangeKey{}, x))
}

// split returns path and query as received, byte for byte.
func split(r *http.Request) (path, query string) {
	if strings.HasPrefix(r.RequestURI, "/") {
		path, query, _ = strings.Cut(r.RequestURI, "?")
		return path, query
	}
	// An absolute address, as sent by clients of forward proxies, or the asterisk of OPTIONS.
	return r.URL.EscapedPath(), r.URL.RawQuery
}

// refuse answers a call that cannot be forwarded.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	h := w.Header()
	if p.c.CORS != nil {
		p.c.CORS(h, r)
	}
	h.Set("Content-Type", "application/json")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(compat.AppendDetail(nil, text))
	}
}

// buffers pools the buffers for copying answers.
type buffers struct{ pool sync.Pool }

// copyBuffer is small, since every open stream has one.
const copyBuffer = 8 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[copyBuffer]byte); ok {
		return p[:]
	}
	return make([]byte, copyBuffer)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[copyBuffer]byte)(p)) }

// HostPolicy selects the Host header for the upstream.
type HostPolicy string

const (
	// ClientHost passes the client's Host.
	ClientHost HostPolicy = "client"
	// UpstreamHost uses the host of the upstream's address.
	UpstreamHost HostPolicy = "upstream"
)
