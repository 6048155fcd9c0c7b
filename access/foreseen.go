package access

import (
	"bytes"
	"context"
	"slices"
	"sync"
)

// Answer is what a Gatekeeper answers to a question.
type Answer struct {
	Decision Decision
	Err      error // a *Refusal, or why it could not be answered; nil: it was not refused
}

// Foreseen are the answers to questions that a request was expected to ask, given together with who sent it. Each is good for one question that is exactly the
// expected one, so a wrong expectation costs a question more, and changes nothing else. Safe for concurrent use.
type Foreseen struct {
	mu      sync.Mutex
	entries []foreseen
}

type foreseen struct {
	question Question
	answer   Answer
}

// NewForeseen returns the answers to the first of these questions; nil when there is none.
func NewForeseen(questions []Question, answers []Answer) *Foreseen {
	if len(answers) == 0 {
		return nil
	}
	f := &Foreseen{entries: make([]foreseen, len(answers))}
	for i, a := range answers {
		f.entries[i] = foreseen{questions[i], a}
	}
	return f
}

func (f *Foreseen) take(q Question) (Answer, bool) {
	if f == nil {
		return Answer{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.entries, func(e foreseen) bool {
		return e.question.Resource == q.Resource && e.question.Action == q.Action && bytes.Equal(e.question.Value, q.Value)
	})
	if i < 0 {
		return Answer{}, false
	}
	a := f.entries[i].answer
	f.entries = slices.Delete(f.entries, i, i+1)
	return a, true
}

// EnterForeseen is Enter for an actor about whom the server's policy has answered questions already.
func EnterForeseen(ctx context.Context, actor *Actor, source string, f *Foreseen) context.Context {
	return &entered{ctx, actor, source, nil, f}
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
