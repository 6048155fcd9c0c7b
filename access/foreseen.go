package access

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"understudy/internal/jsonobj"
)

// Expected is a question that a request is going to ask.
type Expected struct {
	Question
	// UserAt is the path of the object in Value into which WriteUser writes who asks, and IdentityAt that of the text that identifies them, as long as that is not
	// known; nil: Value does not say it there.
	UserAt, IdentityAt []string
	// ID is what the server calls what is created, which Value says; "" if the request creates nothing, or names it.
	ID string
}

// By returns the question when it is known who asks it.
func (e Expected) By(a *Actor) Expected {
	if e.UserAt != nil {
		e.Value = writeAt(e.Value, e.UserAt, func(o *jsonobj.Object) { WriteUser(o, a) })
		e.UserAt = nil
	}
	if n := len(e.IdentityAt) - 1; n >= 0 {
		e.Value = writeAt(e.Value, e.IdentityAt[:n], func(o *jsonobj.Object) { o.SetText(e.IdentityAt[n], a.Identity) })
		e.IdentityAt = nil
	}
	return e
}

// writeAt changes the object at a path.
func writeAt(value json.RawMessage, path []string, write func(*jsonobj.Object)) json.RawMessage {
	o := jsonobj.Of(value)
	if len(path) == 0 {
		write(o)
	} else {
		o.Set(path[0], writeAt(o.Get(path[0]), path[1:], write))
	}
	return o.JSON()
}

// Answer is what a Gatekeeper answers to a question.
type Answer struct {
	To       Expected // By who asks it
	Decision Decision
	Err      error // a *Refusal, or why it could not be answered; nil: it was not refused
}

// Foreseen are the answers to questions that a request was expected to ask, given together with who sent it. Each is good for one question that is exactly the
// expected one, so a wrong expectation costs a question more, and changes nothing else. Safe for concurrent use.
type Foreseen struct {
	mu      sync.Mutex
	answers []Answer
}

// NewForeseen returns these answers; nil when there is none.
func NewForeseen(answers []Answer) *Foreseen {
	if len(answers) == 0 {
		return nil
	}
	return &Foreseen{answers: answers}
}

func (f *Foreseen) take(q Question) (Answer, bool) {
	if f == nil {
		return Answer{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.answers, func(a Answer) bool {
		return a.To.Resource == q.Resource && a.To.Action == q.Action && bytes.Equal(a.To.Value, q.Value)
	})
	if i < 0 {
		return Answer{}, false
	}
	a := f.answers[i]
	f.answers = slices.Delete(f.answers, i, i+1)
	return a, true
}

// takeID returns the first ID of a question about something new, which nothing else gets.
func (f *Foreseen) takeID(resource, action string) string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.answers {
		if to := &f.answers[i].To; to.ID != "" && to.Resource == resource && to.Action == action {
			id := to.ID
			to.ID = ""
			return id
		}
	}
	return ""
}

// EnterForeseen is Enter for an actor about whom the server's policy has answered questions already.
func EnterForeseen(ctx context.Context, actor *Actor, source string, f *Foreseen) context.Context {
	return &entered{ctx, actor, source, nil, f}
}

// NewID returns the ID that the next question about something new was expected with, which is to be used for nothing else; "" when there is none.
func NewID(ctx context.Context, resource, action string) string {
	if e, ok := ctx.Value(actorKey{}).(*entered); ok {
		return e.foreseen.takeID(resource, action)
	}
	return ""
}

// Decide asks one question about who acts in ctx, unless it has been answered together with who that is.
func Decide(ctx context.Context, p Policy, actor *Actor, q Question) (Decision, error) {
	if e, ok := ctx.Value(actorKey{}).(*entered); ok && e.actor == actor && e.policy == nil {
		if a, ok := e.foreseen.take(q); ok {
			return a.Decision, a.Err
		}
	}
	d, err := p.Decide(ctx, actor, q)
	if err != nil {
		return Decision{}, err
	}
	return d[0], nil
}
