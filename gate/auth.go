package gate

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
	"weak"

	"understudy/access"
	"understudy/graph/python"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
)

var _ access.Gatekeeper = (*Gate)(nil)

// Authenticate implements access.Authenticator by the authenticate handler of auth.path.
func (g *Gate) Authenticate(ctx context.Context, r *access.Request) (*access.Actor, error) {
	actor, _, err := g.Admit(ctx, r, nil)
	return actor, err
}

// Admit implements access.Gatekeeper. Who is known without asking the process is not asked about here either.
func (g *Gate) Admit(ctx context.Context, r *access.Request, foresee func() []access.Expected) (*access.Actor, []access.Answer, error) {
	if len(r.Header.Values("Authorization")) > 1 {
		// What stands in front may have read another one than a handler would.
		return nil, nil, refusal(http.StatusUnauthorized, "More than one Authorization header")
	}
	if g.opts.Studio && fromStudio(r) {
		return studio, nil, nil
	}
	if actor := g.remembered.find(r.Header, g.serving()); actor != nil {
		return actor, nil, nil
	}
	leave, err := g.enter() // before anything is looked up for who is not known
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	do := "authenticate"
	var questions []access.Expected
	if foresee != nil {
		questions = foresee()
	}
	if len(questions) > 0 {
		do = "admit"
	}
	a, err := g.askEntered(ctx, do, 1+len(questions), func(b []byte, _ *process) []byte {
		b = appendRequest(append(b, `,"request":`...), r)
		if len(questions) > 0 {
			b = appendQuestions(b, questions)
		}
		return b
	})
	if err != nil {
		return nil, nil, err
	}
	if a.Slow {
		g.gaveUp(a.process, a.awaited, g.opts.Timeout)
	}
	switch {
	case a.Slow && a.Actor == nil:
		return nil, nil, errSlow
	case a.Refusal != nil && (a.Actor == nil || len(questions) == 0):
		return nil, nil, g.refused(a.Refusal)
	case a.Actor == nil:
		return nil, nil, fault.New(fault.Internal, "the gate returned no user")
	}
	actor := a.Actor.actor()
	if a.Actor.Ref != 0 {
		g.actors.put(actor, a.process, a.Actor.Ref)
	}
	g.remembered.put(r.Header, a.process, actor)
	for i := range questions {
		questions[i] = questions[i].By(actor)
	}
	return actor, g.answers(a, questions), nil
}

// answers are those to the first of these questions.
func (g *Gate) answers(a *answer, questions []access.Expected) []access.Answer {
	n := min(len(a.Decisions), len(questions))
	out := make([]access.Answer, 0, n+1)
	for i, q := range questions[:n] {
		out = append(out, access.Answer{To: q, Decision: a.Decisions[i].of(q.Question)})
	}
	switch {
	case n == len(questions):
	case a.Refusal != nil:
		out = append(out, access.Answer{To: questions[n], Err: g.refused(a.Refusal)})
	case a.Slow:
		out = append(out, access.Answer{To: questions[n], Err: errSlow})
	}
	return out
}

// serving is the process that answers now; nil: none does.
func (g *Gate) serving() *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// Decide implements access.Policy by the handlers of auth.path.
func (g *Gate) Decide(ctx context.Context, actor *access.Actor, questions ...access.Question) ([]access.Decision, error) {
	if len(questions) == 0 {
		return nil, nil
	}
	if actor == nil {
		return nil, fault.New(fault.Internal, "there is no actor")
	}
	a, err := g.ask(ctx, "decide", func(b []byte, p *process) []byte {
		return appendQuestions(p.appendActor(append(b, `,"actor":`...), actor), asked(questions))
	})
	if err != nil {
		return nil, err
	}
	return g.decided(a, questions)
}

// answer is a result of the process.
type answer struct {
	Actor     *actorForm     `json:"actor"`
	Decisions []decisionForm `json:"decisions"`
	Vectors   [][]float32    `json:"vectors"`
	Refusal   *refusalForm   `json:"refusal"`
	Slow      bool           `json:"slow"` // the handler of the next part of an admission took too long
	Tool      *toolAnswer    `json:"tool"`
	encryptionAnswer

	process *process
	awaited waits // the handler that took too long
}

type actorForm struct {
	Identity      string   `json:"identity"`
	DisplayName   string   `json:"display_name"`
	Authenticated bool     `json:"authenticated"`
	Permissions   []string `json:"permissions"`
	User          string   `json:"user"`
	Ref           uint64   `json:"ref"`
}

func (f *actorForm) actor() *access.Actor {
	a := &access.Actor{Identity: f.Identity, DisplayName: f.DisplayName, Authenticated: f.Authenticated, Permissions: f.Permissions, User: json.RawMessage(f.User)}
	if a.Permissions == nil {
		a.Permissions = []string{}
	}
	return a
}

type decisionForm struct {
	Filter  *string           `json:"filter"`
	Changed map[string]string `json:"changed"`
	Removed []string          `json:"removed"`
}

type refusalForm struct {
	Status  int             `json:"status"`
	Detail  json.RawMessage `json:"detail"`
	Plain   string          `json:"plain"`
	Headers [][2]string     `json:"headers"`
	Close   bool            `json:"close"`
	Log     string          `json:"log"`
	Fix     string          `json:"fix"`
}

func (f *refusalForm) refusal() *access.Refusal {
	r := &access.Refusal{Status: f.Status, Detail: f.Detail, Plain: f.Plain, Close: f.Close}
	if r.Status < 400 || r.Status > 599 {
		r.Status = http.StatusInternalServerError // a handler may not let anybody in by an exception
	}
	if r.Plain == "" && r.Detail == nil {
		r.Detail = json.RawMessage("null")
	}
	for _, h := range f.Headers {
		if !validHeader(h[0], h[1]) {
			continue
		}
		if r.Header == nil {
			r.Header = http.Header{}
		}
		r.Header.Add(h[0], h[1])
	}
	return r
}

// validHeader refuses names and values that would end a header, and headers that belong to the connection.
func validHeader(name, value string) bool {
	if name == "" || strings.ContainsAny(name, "\r\n: \t") || strings.ContainsAny(value, "\r\n\x00") {
		return false
	}
	switch http.CanonicalHeaderKey(name) {
	case "Content-Length", "Transfer-Encoding", "Connection", "Content-Type":
		return false
	}
	return true
}

func refusal(status int, detail string) *access.Refusal {
	return &access.Refusal{Status: status, Detail: jsonobj.Quote(detail)}
}

// decided returns the decisions of an answer, or its refusal.
func (g *Gate) decided(a *answer, questions []access.Question) ([]access.Decision, error) {
	if a.Refusal != nil {
		return nil, g.refused(a.Refusal)
	}
	if len(a.Decisions) != len(questions) {
		return nil, fault.Newf(fault.Internal, "the gate answered %d questions of %d", len(a.Decisions), len(questions))
	}
	out := make([]access.Decision, len(a.Decisions))
	for i, d := range a.Decisions {
		out[i] = d.of(questions[i])
	}
	return out, nil
}

// of returns the decision about a question.
func (d *decisionForm) of(q access.Question) (out access.Decision) {
	if d.Filter != nil {
		out.Filter = json.RawMessage(*d.Filter)
	}
	if len(d.Changed) == 0 && len(d.Removed) == 0 {
		return out
	}
	value, err := jsonobj.Parse(q.Value)
	if err != nil {
		value = jsonobj.Of(json.RawMessage("{}"))
	}
	for _, key := range d.Removed {
		value.Delete(key)
	}
	for _, key := range sorted(d.Changed) {
		value.Set(key, json.RawMessage(d.Changed[key]))
	}
	out.Value = value.JSON()
	return out
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// refused returns a refusal, and logs why a handler could not answer: the client gets a fixed text.
func (g *Gate) refused(f *refusalForm) *access.Refusal {
	g.logRefusal(f)
	return f.refusal()
}

func (g *Gate) logRefusal(f *refusalForm) {
	if f.Log == "" {
		return
	}
	what, trace, _ := strings.Cut(f.Log, "\n")
	attrs := []any{"error", what}
	if last := lastLine(strings.TrimSpace(trace)); last != "" {
		attrs = append(attrs, "cause", last)
	}
	place := g.opts.placeIn(trace)
	if place != "" {
		attrs = append(attrs, "at", place)
	}
	fix := f.Fix
	if fix == "" {
		fix = python.FixFailure(g.opts.Python, trace, g.opts.dirs()...)
	}
	switch {
	case fix == "" && place != "":
		fix = "look at " + place
	case fix == "":
		fix = "look at the traceback"
	}
	attrs = append(attrs, "fix", fix)
	if trace != "" {
		attrs = append(attrs, "traceback", trace)
	}
	g.opts.Logger.Error("a handler failed: the request is refused", attrs...)
}

// appendRequest appends what the Python half sees of a request.
func appendRequest(b []byte, r *access.Request) []byte {
	b = append(appendLatin(append(b, `{"method":`...), r.Method), `,"path":`...)
	b = append(jsonobj.AppendText(b, strings.ToValidUTF8(r.Path, "\ufffd")), `,"query":`...)
	b = append(appendLatin(b, r.Query), `,"scheme":"`...)
	scheme := "http"
	if r.Scheme == "https" {
		scheme = "https"
	}
	b = append(append(b, scheme...), `","websocket":`...)
	b = append(strconv.AppendBool(b, r.WebSocket), `,"client":`...)
	b = append(appendPeer(b, r.Client), `,"headers":[`...)
	first := true
	for _, name := range headerNames(r.Header) {
		lower := strings.ToLower(name)
		for _, value := range r.Header[name] {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendLatin(append(b, '['), lower), ',')
			b = append(appendLatin(b, value), ']')
		}
	}
	return append(b, `]}`...)
}

func headerNames(h http.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func appendPeer(b []byte, peer string) []byte {
	addr, err := netip.ParseAddrPort(peer)
	if err != nil {
		return append(b, "null"...)
	}
	b = jsonobj.AppendText(append(b, '['), addr.Addr().Unmap().String())
	return append(strconv.AppendUint(append(b, ','), uint64(addr.Port()), 10), ']')
}

// appendLatin appends bytes as a JSON text with one character for each, as ASGI reads headers.
func appendLatin(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			runes := make([]rune, len(s))
			for i := range len(s) {
				runes[i] = rune(s[i])
			}
			return jsonobj.AppendText(b, string(runes))
		}
	}
	return jsonobj.AppendText(b, s)
}

// asked are questions by an actor who is known.
func asked(questions []access.Question) []access.Expected {
	out := make([]access.Expected, len(questions))
	for i, q := range questions {
		out[i].Question = q
	}
	return out
}

func appendQuestions(b []byte, questions []access.Expected) []byte {
	b = append(b, `,"questions":[`...)
	for i, q := range questions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonobj.AppendText(append(b, `{"resource":`...), q.Resource), `,"action":`...)
		b = append(jsonobj.AppendText(b, q.Action), `,"value":`...)
		if len(q.Value) == 0 {
			b = append(b, "{}"...)
		} else {
			b = append(b, q.Value...)
		}
		b = appendPath(b, `,"user_at":`, q.UserAt)
		b = append(appendPath(b, `,"identity_at":`, q.IdentityAt), '}')
	}
	return append(b, ']')
}

// appendPath appends a path in the value of a question; nothing when it is nil.
func appendPath(b []byte, name string, path []string) []byte {
	if path == nil {
		return b
	}
	b = append(append(b, name...), '[')
	for i, key := range path {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonobj.AppendText(b, key)
	}
	return append(b, ']')
}

// appendActor appends an actor as this process knows it.
func (p *process) appendActor(b []byte, a *access.Actor) []byte {
	b = appendActor(b, a)
	if ref := p.gate.actors.get(a, p); ref != 0 {
		b = append(b[:len(b)-1], `,"ref":`...)
		b = append(strconv.AppendUint(b, ref, 10), '}')
	}
	return b
}

func appendActor(b []byte, a *access.Actor) []byte {
	b = append(b, `{"user":`...)
	if len(a.User) > 0 {
		b = append(b, a.User...)
	} else {
		b = append(jsonobj.AppendText(append(b, `{"identity":`...), a.Identity), `,"is_authenticated":`...)
		b = append(strconv.AppendBool(b, a.Authenticated), `,"display_name":`...)
		b = append(jsonobj.AppendText(b, a.DisplayName), '}')
	}
	b = append(b, `,"permissions":[`...)
	for i, p := range a.Permissions {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonobj.AppendText(b, p)
	}
	return append(b, `]}`...)
}

// --- Studio ----------------------------------------------------------------------------

// studio is the user that requests of LangGraph Studio have.
var studio = &access.Actor{
	Identity: "langgraph-studio-user", DisplayName: "langgraph-studio-user", Permissions: []string{},
	User: json.RawMessage(`{"kind":"StudioUser","identity":"langgraph-studio-user","display_name":"langgraph-studio-user","is_authenticated":false,"permissions":[]}`),
}

// fromStudio reports whether a request is from LangGraph Studio on this machine. One that a proxy on this machine passes on may come from anywhere.
func fromStudio(r *access.Request) bool {
	if v := r.Header.Values("X-Auth-Scheme"); len(v) != 1 || v[0] != "langsmith" {
		return false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	addr, err := netip.ParseAddrPort(r.Client)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// --- users that are objects ------------------------------------------------------------------

// actors remembers which object of the process an actor is, for actors whose authenticate returned one: its handlers may use what it has in addition to
// its fields. An entry lives as long as its actor.
type actors struct {
	mu   sync.Mutex
	refs map[weak.Pointer[access.Actor]]actorRef
}

type actorRef struct {
	process *process
	number  uint64
}

func (a *actors) put(actor *access.Actor, p *process, number uint64) {
	key := weak.Make(actor)
	a.mu.Lock()
	if a.refs == nil {
		a.refs = map[weak.Pointer[access.Actor]]actorRef{}
	}
	a.refs[key] = actorRef{process: p, number: number}
	a.mu.Unlock()
	runtime.AddCleanup(actor, func(key weak.Pointer[access.Actor]) {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.refs, key)
	}, key)
}

// get returns the number of the actor's object in the process; 0: it is not there.
func (a *actors) get(actor *access.Actor, p *process) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ref := a.refs[weak.Make(actor)]; ref.process == p {
		return ref.number
	}
	return 0
}
