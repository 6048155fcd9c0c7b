package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/compat"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonscan"
	"understudy/internal/logctx"
	"understudy/thread"
)

// exchange is one call on its way to the upstream and back.
type exchange struct {
	target
	p           *Proxy
	w           *writer
	in          *http.Request
	path, query string // as received; query without our own parameters after choose
	cancel      context.CancelCauseFunc
	unhook      func() bool // detaches it from the end of streams; nil: not attached

	call   *Call
	body   []byte // replaces the request's body; nil: not replaced
	sent   *sent  // the request's body, when forwarded as a stream
	run    Run
	update Update
	gone   []id.Thread // deleted if the upstream accepts
	held   held        // memory for bodies
	begun  time.Time
	status int
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// serve answers the call.
func (x *exchange) serve(ctx context.Context) {
	x.begun = time.Now()
	p := x.p
	defer p.metrics.call(x)()
	defer x.log(ctx)
	if x.kind != raw || x.input || x.in.Header.Get(compat.OverlayHeader) != "" {
		header := endToEnd(x.in.Header)
		if x.kind == own {
			x.call = &Call{Header: header, Offline: p.c.Offline.open(x)}
			header.Del(compat.OverlayHeader)
			p.c.Own.ServeHTTP(x.w, x.in.WithContext(context.WithValue(ctx, callKey{}, x.call)))
			return
		}
		x.call = &Call{Header: header}
		if x.kind == raw {
			header.Del(compat.OverlayHeader)
		} else {
			var err error
			if x.call.Choice, x.query, err = choose(x.query, header); err != nil {
				x.refuse(http.StatusUnprocessableEntity, err)
				return
			}
		}
	}
	defer x.end(ctx)
	if err := x.prepare(ctx); err != nil {
		status := http.StatusBadRequest
		switch {
		case errors.Is(err, errFull):
			status = http.StatusServiceUnavailable
		case errors.Is(err, os.ErrDeadlineExceeded):
			status, err = http.StatusRequestTimeout, errStopped
			_ = http.NewResponseController(x.w).SetReadDeadline(time.Now()) // the rest of the body is not read
		}
		x.w.Header().Set("Connection", "close") // do not wait for the rest of the body
		x.refuse(status, err)
		return
	}
	if x.body == nil {
		// The answer may begin before the upstream's connection has read the end of the body. net/http would then read and close that, and the connection break.
		_ = http.NewResponseController(x.w).EnableFullDuplex() // supported by HTTP/1, the only protocol here
	}
	p.forward.ServeHTTP(x.w, x.in.WithContext(ctx))
}

// log writes the log line of a call. The path may contain private data, so the line has only its kind, and of other calls the parts that name a route.
func (x *exchange) log(ctx context.Context) {
	if x.kind == own { // package server logs these
		return
	}
	attrs := []slog.Attr{slog.String("method", x.in.Method), slog.String("kind", string(x.kind))}
	if x.kind == raw {
		attrs = append(attrs, slog.String("route", routeOf(x.in.URL.Path)))
	}
	x.p.log.LogAttrs(ctx, slog.LevelInfo, "call", append(attrs, slog.String("thread_id", string(x.thread)), slog.Int("status", x.status), logctx.Took(time.Since(x.begun)))...)
}

// routeWords are the parts of paths of LangGraph Server that are the same for everybody.
var routeWords = strings.Fields("a2a assistants cancel copy count crons docs events graph history info items join latest mcp messages metrics namespaces ok openapi.json prune runs schemas search state store stream subgraphs threads ui versions wait webhook")

// maxRoute is how many parts of a path the log shows.
const maxRoute = 8

// routeOf returns a path with * for each part that may be private. The first one names a route, also of an application.
func routeOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) > maxRoute {
		parts = append(parts[:maxRoute:maxRoute], "…")
	}
	for i, part := range parts {
		if i < maxRoute && part != "" && !slices.Contains(routeWords, part) && (i > 0 || !plainWord.MatchString(part)) {
			parts[i] = "*"
		}
	}
	return "/" + strings.Join(parts, "/")
}

var plainWord = regexp.MustCompile(`^[a-z][a-z_-]{0,31}$`)

func (x *exchange) refuse(status int, err error) {
	var f *fault.Error
	if errors.As(err, &f) {
		x.status = status
		x.p.refuse(x.w, x.in, status, f.Message)
	}
}

var (
	errBody    = fault.New(fault.Invalid, "The request body could not be read")
	errStopped = fault.New(fault.Invalid, "Request Timeout")
)

// prepare informs the recorder of the coming call, and takes the body to forward from it. A body that is too long, or compressed, is
// forwarded unread: the next read catches up on its effects.
func (x *exchange) prepare(ctx context.Context) error {
	rec := x.p.c.Recorder
	switch x.kind {
	case join, follow:
		x.run = rec.Join(ctx, x.call, x.thread, x.target.run)
		return nil
	case watch:
		x.run = rec.Watch(ctx, x.call, x.thread)
		return nil
	case remove:
		x.gone = []id.Thread{x.thread}
		return nil
	case create, stream, wait, update, prune:
	default:
		if !x.input {
			return nil
		}
	}
	if x.in.Header.Get("Content-Encoding") != "" {
		return nil
	}
	body, whole, err := x.held.read(x.unhurried(), x.in.ContentLength, x.p.c.MaxRewrite)
	switch {
	case errors.Is(err, errFull), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case err != nil:
		return errBody
	}
	if !whole {
		x.in.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), x.in.Body), x.in.Body}
		return nil
	}
	switch {
	case x.input:
		x.update, x.body = rec.Input(ctx, x.call, x.thread, body)
	case x.kind == update:
		x.update, x.body = rec.Update(ctx, x.call, x.thread, body)
	case x.kind == prune:
		x.body = body
		// A body that is invalid here is refused by the upstream too.
		if ids, strategy, err := prunes(body); err == nil && strategy == thread.Delete {
			slices.Sort(ids)
			x.gone = slices.Compact(ids)
		}
	default:
		x.run, x.body = rec.Begin(ctx, x.call, x.thread, body)
	}
	if x.body == nil {
		x.body = body
	}
	return nil
}

// unhurried is the body of a call whose client may be slow, but must not stop sending.
func (x *exchange) unhurried() io.Reader {
	rc := http.NewResponseController(x.w)
	return readFunc(func(p []byte) (int, error) {
		_ = rc.SetReadDeadline(time.Now().Add(x.p.c.BodyTimeout))
		// A deadline left in place would later look like a client that has left.
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
		return x.in.Body.Read(p)
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// prunes reads a body of POST /threads/prune. It reads a copy, because decoding overwrites the body.
func prunes(body []byte) ([]id.Thread, thread.Strategy, error) {
	b, err := compat.Prepare(bytes.Clone(body))
	if err != nil {
		return nil, "", err
	}
	ids, strategy, _, err := compat.PruneThreads(b)
	return ids, strategy, err
}

// rewrite builds the request for the upstream.
func (x *exchange) rewrite(r *httputil.ProxyRequest) {
	u, out := x.p.c.Upstream, r.Out
	// Opaque is sent unchanged. It cannot begin with two slashes, which would name a host.
	to := &url.URL{Scheme: u.url.Scheme, Host: u.url.Host, Opaque: u.prefix + x.path, RawQuery: x.query}
	if strings.HasPrefix(to.Opaque, "//") || !strings.HasPrefix(to.Opaque, "/") {
		to.Opaque, to.Path, to.RawPath = "", r.In.URL.Path, r.In.URL.RawPath
	}
	to.ForceQuery = r.In.URL.ForceQuery && x.query == ""
	out.URL = to
	out.Host = ""
	if x.p.c.Host == ClientHost {
		out.Host = r.In.Host
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			out.Header[name] = v
		}
	}
	out.Header.Del(compat.OverlayHeader)
	if x.in.Method != http.MethodGet || !strings.HasSuffix(x.path, "/ok") { // a check of another proxy, which may have to come back to it
		out.Header.Del(probeHeader)
	}
	if x.rewrites() {
		out.Header.Set("Accept-Encoding", "identity")
		// Partial answers (206) and unchanged ones (304) would not match what clients see here.
		for _, name := range []string{"Range", "If-Range", "If-None-Match", "If-Modified-Since"} {
			out.Header.Del(name)
		}
	}
	if x.opensSocket() {
		out.Header.Del("Sec-Websocket-Extensions") // compressed messages cannot be read
	}
	switch {
	case x.body != nil:
		out.Body = io.NopCloser(bytes.NewReader(x.body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.body)), nil }
		out.ContentLength, out.TransferEncoding = int64(len(x.body)), nil
		out.Header.Del("Expect") // the body has been read
		if len(x.body) == 0 {
			out.Body, out.GetBody = http.NoBody, nil
		}
	case out.Body != nil:
		x.sent = &sent{ReadCloser: out.Body}
		out.Body = x.sent
	}
}

// rewrites reports whether the answer may be rewritten.
func (x *exchange) rewrites() bool {
	switch x.kind {
	case raw, own, remove:
		return false
	case prune:
		return len(x.gone) > 0
	case stream, follow, watch, wait, join, create:
		return x.run != nil
	case update, command:
		return x.update != nil
	}
	return true
}

// sent is a request's body being forwarded. It notes when the client fails to send it, which is not a fault of the
// upstream.
type sent struct {
	io.ReadCloser
	err error
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// answered reads the head of an answer, and decides how its body is handled.
func (x *exchange) answered(res *http.Response) error {
	p, ctx := x.p, res.Request.Context()
	x.status = res.StatusCode
	p.reachable(true)
	// Do not add headers that the upstream did not send.
	for _, name := range []string{"Content-Type", "Date"} {
		if len(res.Header[name]) == 0 {
			x.w.Header()[name] = nil
		}
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if media == "text/event-stream" || res.StatusCode == http.StatusSwitchingProtocols || x.kind == wait || x.kind == join {
		x.unhook = context.AfterFunc(p.streaming, func() { x.cancel(ErrShutdown) })
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		if x.opensSocket() && x.run != nil {
			x.inspect(ctx, res)
		}
		return nil
	}
	// Outermost, around the readers added below.
	defer func() { res.Body = &cut{ReadCloser: res.Body, w: x.w} }()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil
	}
	if x.kind == remove {
		x.forget(ctx)
	}
	if !x.rewrites() || encoded(res.Header) {
		return nil
	}
	if at := created(res.Header.Get("Content-Location")); at != nil && (x.kind == wait || x.kind == stream) {
		x.run.Created(ctx, at)
	}
	switch {
	case media == "text/event-stream" && (x.kind == stream || x.kind == follow || x.kind == watch):
		res.Body = newEvents(&ending{res.Body, x.run.Ended}, int(p.c.MaxRewrite), &x.held, func(event string, data []byte) ([]byte, overlay.Fate) {
			return x.run.Event(ctx, event, data)
		})
		unsized(res)
	case media != "application/json":
	case x.kind == wait || x.kind == join:
		res.Body = &tail{src: res.Body, limit: p.c.MaxRewrite, held: &x.held, whole: func(b []byte) []byte { return x.run.Result(ctx, b) }}
		unsized(res)
	case x.kind != stream && x.kind != follow && x.kind != watch:
		return x.buffer(ctx, res)
	}
	return nil
}

// buffer reads an answer and replaces its body by the one to show. An answer that is too long passes unchanged, and an incomplete one passes
// incomplete.
func (x *exchange) buffer(ctx context.Context, res *http.Response) error {
	body, all, err := x.held.read(res.Body, res.ContentLength, x.p.c.MaxRewrite)
	if !all {
		rest := io.Reader(res.Body)
		if err != nil && !errors.Is(err, errFull) {
			rest = failing{err}
		}
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), rest), res.Body}
		return nil
	}
	shown := x.show(ctx, res, body)
	res.Body = &whole{w: x.w, body: shown, Closer: res.Body}
	res.ContentLength = int64(len(shown))
	res.Header.Set("Content-Length", strconv.Itoa(len(shown)))
	if !bytes.Equal(shown, body) {
		res.Header.Del("Etag")
		x.p.metrics.rewritten.WithLabelValues(string(x.kind)).Inc()
	}
	return nil
}

// forget makes the recorder forget what the call deleted.
func (x *exchange) forget(ctx context.Context) {
	for _, t := range x.gone {
		x.p.c.Recorder.Gone(context.WithoutCancel(ctx), t)
	}
}

// show returns the body of a whole answer as clients see it.
func (x *exchange) show(ctx context.Context, res *http.Response, body []byte) []byte {
	rec := x.p.c.Recorder
	switch {
	case x.kind == prune:
		// The upstream skips threads that the caller may not see: their recordings stay. If it skipped some, the answer does
		// not say which.
		if count := jsonscan.Raw(body, "pruned_count"); string(count) == strconv.Itoa(len(x.gone)) {
			x.forget(ctx)
		}
	case x.kind == update, x.kind == command:
		x.update.Done(context.WithoutCancel(ctx), body)
	case x.kind == create:
		x.run.Created(context.WithoutCancel(ctx), body)
	case res.StatusCode != http.StatusOK:
	case x.kind == state:
		return rec.State(ctx, x.call, x.thread, x.live, body)
	case x.kind == history:
		shown, entries, partial := rec.History(ctx, x.call, x.thread, body)
		if partial {
			res.Header.Set(compat.OverlayHeader, compat.PartialOverlay(entries))
		}
		return shown
	case x.kind == threads:
		return rec.Threads(ctx, x.call, body)
	}
	return body
}

// failed answers a call that the upstream did not answer.
func (x *exchange) failed(w http.ResponseWriter, err error) {
	ctx := x.in.Context()
	switch {
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrShutdown):
		panic(http.ErrAbortHandler) // the client has left
	case errors.Is(err, context.Canceled):
		x.status = http.StatusServiceUnavailable
		x.p.refuse(w, x.in, x.status, "The proxy is shutting down")
	case x.sent != nil && x.sent.err != nil:
		x.status = http.StatusBadRequest
		x.p.refuse(w, x.in, x.status, errBody.Message)
	default:
		x.p.metrics.failures.Inc()
		x.p.reachable(false)
		x.p.log.Debug("the upstream failed", "method", x.in.Method, "path", x.path, "error", err)
		x.status = http.StatusBadGateway
		x.p.refuse(w, x.in, x.status, x.p.c.Upstream.describe(err))
	}
}

// end notifies the recorder of the end of the answer, and releases the memory held.
func (x *exchange) end(ctx context.Context) {
	if x.run != nil {
		x.run.End(context.WithoutCancel(ctx))
	}
	x.held.free()
	if x.unhook != nil {
		x.unhook()
	}
}

// reachable notes whether the upstream answered, and logs changes.
func (p *Proxy) reachable(yes bool) {
	if p.down.Swap(!yes) == yes {
		if yes {
			p.log.Info("upstream responds again", "upstream", p.c.Upstream.String())
		} else {
			p.log.Warn("upstream does not respond", "upstream", p.c.Upstream.String(), "fix", startUpstream)
		}
	}
}

type callKey struct{}

// CallOf returns the call that our own routes are answering.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// created returns the run that a Content-Location names, as an object with its id.
func created(location string) []byte {
	_, rest, ok := strings.Cut(location, "/runs/")
	if !ok {
		return nil
	}
	name, _, _ := strings.Cut(rest, "/")
	r := id.Canonical(name)
	if r == "" {
		return nil
	}
	return append(append([]byte(`{"run_id":"`), r...), `"}`...)
}

func encoded(h http.Header) bool {
	e := h.Get("Content-Encoding")
	return e != "" && e != "identity"
}

// unsized removes a length that is no longer correct.
func unsized(res *http.Response) {
	res.ContentLength = -1
	res.Header.Del("Content-Length")
	res.Header.Del("Etag")
}

// failing is a body that ends with an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// ending is a stream that reports its end before its reader sees it.
type ending struct {
	io.ReadCloser
	ended func()
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.ended()
	}
	return n, err
}
