// Package guard stands between the routes of a server and its services, and asks a policy before each operation.
//
// It wraps the services, so that every way to a resource passes it: routes of LangGraph's API, event streaming, MCP, A2A, and OpenAI's API. Each
// method asks its question in LangGraph's form, applies what a handler changed, and narrows the context to what the answer lets the actor reach;
// storage then behaves as if nothing else existed. A service without a guard is used by the server itself alone.
package guard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"understudy/access"
	"understudy/access/audit"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/server"
	"understudy/thread"
)

// Guard wraps services.
type Guard struct {
	Policy access.Policy // unless the context of an operation has another one
	// Rows reads threads, to distinguish one that is hidden from one that is not there.
	Rows interface {
		Thread(ctx context.Context, t id.Thread) (*thread.Thread, error)
	}
	Pace  Pace       // of runs that clients create
	Audit *audit.Log // of what the policy refuses; nil: none
	Log   *slog.Logger
}

// Wrap puts the guard before the services of a server.
func (g *Guard) Wrap(o *server.Options) {
	o.Assistants = &assistants{Guard: g, inner: o.Assistants}
	o.Threads = &threads{Guard: g, inner: o.Threads}
	o.Runs = &runs{Guard: g, inner: o.Runs, assistants: o.Assistants.(*assistants)}
	o.Crons = &crons{Guard: g, inner: o.Crons, assistants: o.Assistants.(*assistants)}
	if o.Tasks != nil {
		o.Tasks = &tasks{Guard: g, Tasks: o.Tasks}
	}
	o.Items = &items{Guard: g, inner: o.Items}
	if o.Changes != nil {
		o.Changes = &changed{Guard: g, inner: o.Changes}
	}
	if o.Usage != nil {
		o.Usage = &used{Guard: g, inner: o.Usage}
	}
	if o.Fleet != nil {
		o.Fleet = &machines{Guard: g, inner: o.Fleet}
	}
	if o.Doctor != nil {
		o.Doctor = &examined{machines: &machines{Guard: g}, inner: o.Doctor}
	}
	if o.Search != nil {
		o.Search = &searching{Guard: g, inner: o.Search}
	}
	if o.ReadModels != nil {
		o.ReadModels = &readModels{Guard: g, inner: o.ReadModels}
	}
	if o.Events != nil {
		o.Events = &events{Guard: g, inner: o.Events}
	}
	if _, ok := g.Policy.(access.Gatekeeper); ok {
		o.Foresee = foresight(o.Assistants.(*assistants))
	}
	if o.Ratings != nil {
		ratings := *o.Ratings
		ratings.May = g.mayWrite
		o.Ratings = &ratings
	}
}

// mayWrite reports whether who acts may update a thread. A refusal is not in the audit log: they did not ask for it.
func (g *Guard) mayWrite(ctx context.Context, t id.Thread) (bool, error) {
	quiet := &Guard{Policy: g.Policy, Rows: g.Rows, Log: g.Log}
	ctx, err := quiet.on(ctx, access.Threads, "update", "thread_id", string(t))
	if refusal := (*access.Refusal)(nil); errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	may, err := g.shows(ctx, t)
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return may, err
}

// errNobody: a request reached a service without an actor. It is a mistake of the server, and is refused.
var errNobody = &access.Refusal{Status: http.StatusUnauthorized, Detail: json.RawMessage(`"Unauthorized"`)}

// policy returns what decides about who acts in ctx.
func (g *Guard) policy(ctx context.Context) access.Policy {
	if p := access.PolicyOf(ctx); p != nil {
		return p
	}
	return g.Policy
}

// ask asks one question. It returns the context of the operation, and the value with the changes of a handler.
func (g *Guard) ask(ctx context.Context, resource, action string, value *jsonobj.Object) (context.Context, *jsonobj.Object, error) {
	if access.From(ctx) == access.System {
		return ctx, value, nil
	}
	ctx, changed, err := g.decide(ctx, resource, action, value.JSON())
	if err != nil || changed == nil {
		return ctx, value, err
	}
	if value, err = jsonobj.Parse(changed); err != nil {
		return nil, nil, &access.Refusal{Status: http.StatusInternalServerError, Detail: json.RawMessage(`"Auth handler returned an invalid value"`)}
	}
	return ctx, value, nil
}

// change is ask for a value of which more than one member may be changed.
func (g *Guard) change(ctx context.Context, resource, action string, value *jsonobj.Object) (context.Context, *change, error) {
	ctx, now, err := g.ask(ctx, resource, action, value)
	if err != nil {
		return nil, nil, err
	}
	return ctx, &change{asked: value, now: now}, nil
}

// change is a value as it was asked about, and as a handler left it.
type change struct{ asked, now *jsonobj.Object }

// made reports whether a handler changed a member. One that it removed stays as it was.
func (v *change) made(key string) bool {
	now := v.now.Get(key)
	return v.now != v.asked && len(now) > 0 && string(now) != string(v.asked.Get(key))
}

// read reads a member that a handler changed. The error for something else than is expected there is errChanged.
func (v *change) read(into any, key string) error {
	if !v.made(key) {
		return nil
	}
	if string(v.now.Get(key)) == "null" {
		reflect.ValueOf(into).Elem().SetZero()
		return nil
	}
	if json.Unmarshal(v.now.Get(key), into) != nil {
		return errChanged
	}
	return nil
}

// page reads limit and offset.
func (v *change) page(limit, offset *int) error {
	if err := errors.Join(v.read(limit, "limit"), v.read(offset, "offset")); err != nil {
		return errChanged
	}
	*limit, *offset = max(*limit, 0), max(*offset, 0)
	return nil
}

// object reads a member that is an object, if a handler changed it.
func (v *change) object(into *json.RawMessage, key string) error {
	now := v.now.Get(key)
	switch {
	case !v.made(key):
	case string(now) == "null":
		*into = nil
	case now[0] != '{':
		return errChanged
	default:
		*into = now
	}
	return nil
}

// errChanged: a handler left something that the operation cannot use.
var errChanged = &access.Refusal{Status: http.StatusInternalServerError, Detail: json.RawMessage(`"Auth handler changed the request to an invalid one"`)}

// decide is ask for a value that is encoded, without reading what a handler made of it; nil when it made nothing.
func (g *Guard) decide(ctx context.Context, resource, action string, value json.RawMessage) (_ context.Context, changed json.RawMessage, err error) {
	actor := access.From(ctx)
	switch actor {
	case nil:
		return nil, nil, errNobody
	case access.System:
		return ctx, nil, nil
	}
	d, err := access.Decide(ctx, g.policy(ctx), actor, access.Question{Resource: resource, Action: action, Value: value})
	if err != nil {
		g.denied(ctx, actor, resource, action, jsonobj.Of(value), err)
		return nil, nil, err
	}
	f, err := access.ParseFilter(d.Filter)
	if err != nil {
		if g.Log != nil {
			g.Log.ErrorContext(ctx, "a handler returned an invalid filter: the request is refused with 500", "question", resource+"."+action, "error", err,
				"fix", "return a filter of equality, $eq, $contains, $or and $and (docs/auth.md)")
		}
		return nil, nil, err
	}
	return access.Narrow(ctx, resource, f), d.Value, nil
}

// denied notes that a policy has refused an action.
func (g *Guard) denied(ctx context.Context, actor *access.Actor, resource, action string, value *jsonobj.Object, err error) {
	refusal, ok := err.(*access.Refusal) //nolint:errorlint // a refusal is never wrapped
	if g.Audit == nil || !ok || refusal.Status >= http.StatusInternalServerError {
		return
	}
	about := resource + "." + action
	for _, key := range []string{"thread_id", "assistant_id", "cron_id"} {
		if text := value.Text(key); text != "" {
			about += " of " + strings.TrimSuffix(key, "_id") + " " + text
			break
		}
	}
	g.Audit.Add(audit.Entry{
		Event: audit.Denied, Identity: actor.Identity, Source: access.Source(ctx), Resource: about, Outcome: strconv.Itoa(refusal.Status), Detail: refusal.Audit,
	})
}

// on asks about one resource, named by its id. Most requests ask nothing else.
func (g *Guard) on(ctx context.Context, resource, action, key, id string) (context.Context, error) {
	return g.about(ctx, resource, action, func() json.RawMessage { return jsonobj.Single(key, id) })
}

// about asks without letting a handler change anything. The value is made only for a policy that looks at it.
func (g *Guard) about(ctx context.Context, resource, action string, value func() json.RawMessage) (context.Context, error) {
	if p, ok := g.policy(ctx).(access.Selector); ok {
		if actor := access.From(ctx); actor != nil && actor != access.System {
			if f, ok := p.Select(actor, resource, action); ok {
				return access.Narrow(ctx, resource, f), nil
			}
		}
	}
	ctx, _, err := g.decide(ctx, resource, action, value())
	return ctx, err
}

// read asks whether a thread may be read.
func (g *Guard) read(ctx context.Context, t id.Thread) (context.Context, error) {
	return g.on(ctx, access.Threads, "read", "thread_id", string(t))
}

// hidden reports whether a thread exists that ctx does not show. It reads once: between two reads another request of the same user may create the thread.
func (g *Guard) hidden(ctx context.Context, t id.Thread) bool {
	shown, err := g.shows(ctx, t)
	return err == nil && !shown
}

// shows reports whether ctx shows a thread. The error says why that is not known; fault.NotFound: there is no such thread.
func (g *Guard) shows(ctx context.Context, t id.Thread) (bool, error) {
	reach := access.Reach(ctx, access.Threads)
	if t == "" || reach == nil {
		return true, nil
	}
	row, err := g.Rows.Thread(access.Everything(ctx), t)
	return err == nil && reach.Match(row.Metadata), err
}

// newID returns the ID of something that is created now: the one that its question was expected with, else a fresh one.
func newID[T ~string](ctx context.Context, resource, action string, fresh func() T) T {
	if known := access.NewID(ctx, resource, action); known != "" {
		return T(known)
	}
	return fresh()
}

// object makes an object of keys and values.
func object(pairs ...any) *jsonobj.Object {
	o := &jsonobj.Object{}
	for i := 0; i+1 < len(pairs); i += 2 {
		o.Set(pairs[i].(string), orNull(pairs[i+1].(json.RawMessage)))
	}
	return o
}

// anyThreads is what handlers see of operations that are a search of threads to them.
func anyThreads() *jsonobj.Object { return object("metadata", orEmpty(nil)) }

// named is a text, null for "".
func named(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return jsonobj.Quote(text)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}")
	}
	return raw
}

// encoded returns a value of Go as JSON. Only values that can be encoded are given.
func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// metadataOf returns the metadata of a value that a handler has seen; nil for none.
func metadataOf(value *jsonobj.Object) json.RawMessage {
	m := value.Get("metadata")
	if len(m) == 0 || m[0] != '{' {
		return nil
	}
	return m
}
