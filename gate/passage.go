package gate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"understudy/access"
)

// openForm is the head of a stream that the process opens.
type openForm struct {
	Do      string          `json:"do"` // api, authenticate
	Method  string          `json:"method"`
	Target  string          `json:"target"`
	Headers [][2]string     `json:"headers"`
	Passed  uint32          `json:"passed"` // the stream whose request passed the middleware; 0: a route made the request
	Actor   *actorForm      `json:"actor"`
	Request json.RawMessage `json:"request"`
}

// opened answers a stream of the process.
func (p *process) opened(ctx context.Context, number uint32, payload []byte) {
	var head openForm
	wrong := json.Unmarshal(payload, &head)
	p.mu.Lock()
	if p.closed || number < theirs {
		p.mu.Unlock()
		return
	}
	s := p.register(number)
	var outer any
	if over := p.open[head.Passed]; head.Passed != 0 && over != nil {
		outer = over.outer
	}
	p.serves.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.serves.Done()
		whole := false
		defer func() { s.close(whole) }()
		if wrong != nil {
			return
		}
		switch head.Do {
		case "authenticate":
			whole = p.authenticateFor(ctx, s, head.Request, outer)
		case "api":
			if head.Passed != 0 && outer == nil {
				return // its client has left
			}
			whole = p.callAPI(ctx, s, &head, outer)
		}
	}()
}

// callAPI passes a request of the application on to the API. It reports whether the answer is whole.
func (p *process) callAPI(ctx context.Context, s *stream, head *openForm, outer any) bool {
	api := p.gate.opts.API
	target, err := url.ParseRequestURI(latin(head.Target))
	if api == nil || err != nil {
		return s.answerError(http.StatusBadRequest, "The request has no valid path")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requestBody := &body{s: s, ctx: ctx}
	r := (&http.Request{Method: head.Method, URL: target, Header: http.Header{}, Body: io.NopCloser(requestBody), ContentLength: -1, Host: "api"}).WithContext(ctx)
	r.RequestURI = ""
	for _, h := range head.Headers {
		name, value := latin(h[0]), latin(h[1])
		switch http.CanonicalHeaderKey(name) {
		case "Host":
			r.Host = value
		case "Content-Length":
			if value == "0" {
				r.ContentLength, r.Body = 0, nil
			}
		default:
			r.Header.Add(name, value)
		}
	}
	if head.Method == http.MethodGet || head.Method == http.MethodHead {
		r.ContentLength, r.Body = 0, nil
	}
	as := Passage{Outer: outer}
	switch {
	case head.Actor != nil:
		as.Actor = head.Actor.actor()
	case head.Passed == 0 && p.program.Auth != "":
		p.gate.administrator.Do(func() {
			p.gate.opts.Logger.Warn("a route of http.app calls the API as administrator: handlers of auth are not asked, and what belongs to every user is visible",
				"method", head.Method, "path", target.Path, "fix", `get_client(headers={"understudy-act-as": "user"}) acts as the user of the request`)
		})
	}
	response, err := api(r, as) //nolint:bodyclose // it is closed below
	if err != nil {
		if ctx.Err() == nil {
			p.gate.opts.Logger.Warn("a request of the application to the API failed", "method", head.Method, "path", target.Path, "error", err)
		}
		return s.answerError(http.StatusServiceUnavailable, "The API does not answer at the moment, try again")
	}
	defer response.Body.Close()
	// The application, or its client, may give the request up while the answer is read.
	watching, unwatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.waitAbort(watching, func() {
			cancel()
			response.Body.Close()
		})
	}()
	defer func() { unwatch(); <-watched }()
	var actor *access.Actor
	if of, ok := outer.(interface{ Authenticated() *access.Actor }); ok {
		actor = of.Authenticated()
	}
	if err := s.head(response, actor); err != nil {
		return false
	}
	return s.copyFrom(ctx, response.Body) == nil
}

// waitAbort calls gone when the other side aborts or the stream breaks, until ctx ends. What else arrives is the rest of a body that is not read.
func (s *stream) waitAbort(ctx context.Context, gone func()) {
	for {
		s.mu.Lock()
		aborted, changed := s.aborted || s.err != nil, s.changed
		s.mu.Unlock()
		if aborted {
			gone()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// head sends status and headers, and who the API found to have sent the request; nil: it did not say.
func (s *stream) head(r *http.Response, actor *access.Actor) error {
	b := append([]byte(nil), `{"status":`...)
	b = strconv.AppendInt(b, int64(r.StatusCode), 10)
	b = append(b, `,"headers":[`...)
	first := true
	for _, name := range headerNames(r.Header) {
		switch name {
		case "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", RaisedHeader:
			continue
		}
		for _, value := range r.Header[name] {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendLatin(append(b, '['), strings.ToLower(name)), ',')
			b = append(appendLatin(b, value), ']')
		}
	}
	b = append(b, ']')
	if r.Header.Get(RaisedHeader) != "" {
		b = append(b, `,"raised":true`...)
	}
	if actor != nil {
		b = s.p.appendActor(append(b, `,"user":`...), actor)
	}
	return s.p.out.send(bothHeaders, s.number, append(b, '}'))
}

func (s *stream) answerError(status int, text string) bool {
	b, _ := json.Marshal(map[string]string{"detail": text})
	r := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}}
	return s.head(r, nil) == nil && s.p.out.send(bothBody, s.number, b) == nil && s.p.out.send(bothEnd, s.number, nil) == nil
}

// accepting is what Request.Outer may be: it learns which credentials a route of the application was asked with, once they are accepted.
type accepting interface{ Accepted(r *access.Request) }

// authenticateFor answers who sent a request to a route of the application. outer is its Request.Outer.
func (p *process) authenticateFor(ctx context.Context, s *stream, raw json.RawMessage, outer any) bool {
	var form struct {
		Method    string      `json:"method"`
		Path      string      `json:"path"`
		Query     string      `json:"query"`
		Scheme    string      `json:"scheme"`
		WebSocket bool        `json:"websocket"`
		Client    []any       `json:"client"`
		Headers   [][2]string `json:"headers"`
	}
	if err := json.Unmarshal(raw, &form); err != nil {
		return false
	}
	r := &access.Request{Method: form.Method, Path: form.Path, Query: latin(form.Query), Scheme: form.Scheme, WebSocket: form.WebSocket, Header: http.Header{}}
	if len(form.Client) == 2 {
		host, _ := form.Client[0].(string)
		port, _ := form.Client[1].(float64)
		r.Client = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	for _, h := range form.Headers {
		r.Header.Add(latin(h[0]), latin(h[1]))
	}
	who := p.gate.opts.Authenticator
	if who == nil {
		who = p.gate
	}
	actor, err := who.Authenticate(ctx, r)
	if to, ok := outer.(accepting); ok && err == nil {
		to.Accepted(r)
	}
	b := []byte(`{`)
	var refused *access.Refusal
	switch {
	case err == nil:
		b = append(p.appendActor(append(b, `"actor":`...), actor), '}')
	case errors.As(err, &refused):
		b = append(appendRefusal(append(b, `"refusal":`...), refused), '}')
	default:
		b = append(appendRefusal(append(b, `"refusal":`...), refusal(http.StatusServiceUnavailable, "Authentication is not available at the moment, try again")), '}')
	}
	return p.out.send(bothHeaders, s.number, b) == nil && p.out.send(bothEnd, s.number, nil) == nil
}

func appendRefusal(b []byte, r *access.Refusal) []byte {
	form := refusalForm{Status: r.Status, Detail: r.Detail, Plain: r.Plain, Headers: [][2]string{}}
	for _, name := range headerNames(r.Header) {
		for _, v := range r.Header[name] {
			form.Headers = append(form.Headers, [2]string{name, v})
		}
	}
	text, err := json.Marshal(form)
	if err != nil {
		text = []byte(`{"status":500,"plain":"Internal Server Error"}`)
	}
	return append(b, text...)
}
