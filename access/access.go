// Package access says on whose behalf something is done, and what they may do.
//
// An Actor travels in the context of a request, and later in the row of the run or cron that the request created. A Policy decides questions
// about it: may this actor search threads, and which of them? Storage applies the Filter of the answer, so that what an actor must not see
// looks exactly like what does not exist.
//
// The package knows no HTTP server, no database and no Python. docs/security.md explains what protects what.
package access

import (
	"context"
	"encoding/json"
	"net/http"
)

// Actor is on whose behalf something is done. It is immutable.
type Actor struct {
	// Identity is unique among the users of a deployment, and what their resources are owned by.
	Identity    string
	DisplayName string
	// Authenticated is what authenticate returned as is_authenticated; true for native credentials.
	Authenticated bool
	// Permissions are opaque to this server, except for the scopes of its own API keys. Never nil after authentication.
	Permissions []string
	// User is the JSON object that graphs see as configurable.langgraph_auth_user: identity, is_authenticated, display_name, and whatever else
	// authenticate returned.
	User json.RawMessage
	// Apart: another policy than the server's decides about the actor (EnterUnder). The graphs of their runs cannot call the server, which would ask its own.
	Apart bool
}

// System is the server itself, and what an operator trusts as much: it may do everything, and no policy is asked.
var System = &Actor{Identity: "system", DisplayName: "system", Authenticated: true, Permissions: []string{}, User: json.RawMessage("null")}

type actorKey struct{}

// entered is a context with who acts in it, and from where.
type entered struct {
	context.Context //nolint:containedctx // that it adds to
	actor           *Actor
	source          string
	policy          Policy // nil: the server's
	foreseen        *Foreseen
}

// Value implements context.Context.
func (e *entered) Value(key any) any {
	if key == (actorKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// With returns a context in which actor acts.
func With(ctx context.Context, actor *Actor) context.Context {
	return Enter(ctx, actor, Source(ctx))
}

// Enter is With for an actor whose requests come from a source: the address of a peer, or what stands for it in the audit log.
func Enter(ctx context.Context, actor *Actor, source string) context.Context {
	return &entered{ctx, actor, source, nil, nil}
}

// EnterUnder is Enter for an actor whom the server's policy does not know: this one decides about them.
func EnterUnder(ctx context.Context, actor *Actor, source string, policy Policy) context.Context {
	apart := *actor
	apart.Apart = true
	return &entered{ctx, &apart, source, policy, nil}
}

// From returns who acts; nil on a server without authentication, and for the server's own work.
func From(ctx context.Context) *Actor {
	if e, ok := ctx.Value(actorKey{}).(*entered); ok {
		return e.actor
	}
	return nil
}

// PolicyOf returns what decides about who acts; nil: the server's policy.
func PolicyOf(ctx context.Context) Policy {
	if e, ok := ctx.Value(actorKey{}).(*entered); ok {
		return e.policy
	}
	return nil
}

// Source returns where the requests of who acts come from; "" when that is not known.
func Source(ctx context.Context) string {
	if e, ok := ctx.Value(actorKey{}).(*entered); ok {
		return e.source
	}
	return ""
}

// Question asks whether something may be done, such as threads.create_run.
type Question struct {
	Resource string // threads, assistants, crons, store
	Action   string // create, read, update, delete, search, create_run, put, get, list_namespaces
	// Value is what a handler sees of the request, and may change: a JSON object in LangGraph's form.
	Value json.RawMessage
}

// Decision is the answer to a Question that was not refused.
type Decision struct {
	// Filter selects the resources that the actor may reach, nil all: a JSON object as handlers return it.
	Filter json.RawMessage
	// Value is Question.Value with the changes that a handler made; nil when it made none.
	Value json.RawMessage
}

// Request is what authentication sees of an HTTP request or a WebSocket handshake. Its fields are not changed or kept.
type Request struct {
	Method    string // GET for WebSockets
	Path      string // with the mount prefix, decoded
	Query     string // as sent, without the question mark
	Header    http.Header
	Client    string // host:port of the peer
	Scheme    string // http or https, as the client uses it
	Host      string // by which the client addresses the server, with the port unless it is the usual one
	Secure    bool   // the client uses TLS
	WebSocket bool
}

// Authenticator finds out who sent a request. The error is a *Refusal when the credentials are missing or wrong, else a fault.
type Authenticator interface {
	Authenticate(ctx context.Context, r *Request) (*Actor, error)
}

// Selective is an Authenticator that reads little of requests, so that the rest need not be copied for it.
type Selective interface {
	Authenticator
	// Reads returns the canonical names of the headers that it reads, at most eight, and whether it reads Path, Query, Scheme, Host and Secure. It returns the
	// same for each request: a Request that is used again keeps the headers of other names.
	Reads() (headers []string, address bool)
}

// Revocable is an Authenticator whose credentials can be withdrawn while a request is still being answered.
type Revocable interface {
	Authenticator
	// Follow returns what reports whether the credentials of a request, which were accepted, were withdrawn since; nil if these are not asked for again.
	Follow(r *Request) func(ctx context.Context) bool
}

// Policy decides what actors may do.
type Policy interface {
	// Decide answers the questions of one operation in order. The first that is refused is the error, a *Refusal.
	Decide(ctx context.Context, actor *Actor, questions ...Question) ([]Decision, error)
}

// Selector is a Policy that needs nothing of most operations on one resource but who acts.
type Selector interface {
	Policy
	// Select returns the filter that Decide returns for an operation whose value it does not change, or whose changed value is not needed; false: Decide has to be asked.
	Select(actor *Actor, resource, action string) (f *Filter, ok bool)
}

// Stamper is a Policy that reads and changes nothing of a run but its metadata, so that the rest, which may be large, need not be copied for it.
type Stamper interface {
	Policy
	// Stamp is Decide for a resource with this metadata, a JSON object: it returns those that are stored, and the filter.
	Stamp(actor *Actor, resource, action string, metadata json.RawMessage) (stored json.RawMessage, f *Filter, err error)
}

// Gatekeeper is an Authenticator and Policy that does both in one step, for implementations in another process.
type Gatekeeper interface {
	Authenticator
	Policy
	// Admit is Authenticate that, if it succeeds, also answers questions about who sent the request, in order: at most up to the first that is refused. It may
	// answer fewer, or none: the rest has to be asked by Decide. foresee returns the questions, and is called at most once, if they can be answered. The error is
	// that of Authenticate, or why nothing can be answered.
	Admit(ctx context.Context, r *Request, foresee func() []Expected) (*Actor, []Answer, error)
}

// Refusal is an answer to a client that may not do what it asked for. It is an error.
type Refusal struct {
	Status int
	// Detail is the value of "detail" in the body.
	Detail json.RawMessage
	// Plain is the body of a refusal that is not JSON; Detail is nil then.
	Plain  string
	Header http.Header // sent with the response, such as WWW-Authenticate and Retry-After; nil none
	// Close ends the connection after the response.
	Close bool
	// Audit says why, for the audit log: a text of this server, without what clients or handlers wrote. "" is nothing.
	Audit string
	// Cause is why the server cannot answer, for its log; nil: there is nothing to add.
	Cause error
}

// Answer returns the parts of the response.
func (r *Refusal) Answer() (status int, header http.Header, body []byte) {
	header = http.Header{}
	for name, values := range r.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Detail == nil {
		header.Set("Content-Type", "text/plain; charset=utf-8")
		return r.Status, header, []byte(r.Plain)
	}
	header.Set("Content-Type", "application/json")
	return r.Status, header, append(append([]byte(`{"detail":`), r.Detail...), '}')
}

// Text returns what the refusal says, for people.
func (r *Refusal) Text() string {
	var text string
	if r.Detail != nil && json.Unmarshal(r.Detail, &text) == nil {
		return text
	}
	return r.Error()
}

func (r *Refusal) Error() string {
	if r.Detail == nil {
		return r.Plain
	}
	return string(r.Detail)
}
