package completion

import (
	"log/slog"
	"sync"

	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// maxPendingCalls bounds the model calls of an attempt that are counted between two of its saves.
const maxPendingCalls = 100_000

// Calls holds the model calls of an attempt until a transaction stores them: the one that stores the next checkpoint or write, or the one
// that ends the attempt. What a checkpoint holds is therefore counted together with it, and not made again by the next attempt.
type Calls struct {
	log *slog.Logger

	mu      sync.Mutex
	pending []graph.ModelCall
	stored  int // how many left pending
	number  int // of the last call
	full    bool
	made    map[string]eventstore.Call // by the ids of the messages that answered
}

// NewCalls holds none yet. earlier are the stored calls of earlier attempts. It warns in log.
func NewCalls(log *slog.Logger, earlier []graph.ModelCall) *Calls {
	c := &Calls{log: log, made: map[string]eventstore.Call{}}
	for i := range earlier {
		c.number = max(c.number, earlier[i].Number)
		c.note(&earlier[i])
	}
	return c
}

// note remembers which message the call made.
func (c *Calls) note(m *graph.ModelCall) {
	if m.Message != "" && m.Number > 0 && len(c.made) < maxPendingCalls {
		c.made[m.Message] = eventstore.Call{Took: m.Took, Number: m.Number}
	}
}

// Of returns the call that made a message; the zero value when none is known.
func (c *Calls) Of(message string) eventstore.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[message]
}

// Add holds a call. It does not block.
func (c *Calls) Add(m graph.ModelCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= maxPendingCalls {
		if !c.full {
			c.full = true
			c.log.Warn("model calls of a run are not counted: it made too many without saving", "limit", maxPendingCalls)
		}
		return
	}
	c.number++
	m.Number = c.number
	c.note(&m)
	c.pending = append(c.pending, m)
}

// Waiting returns the calls that are not known to be stored, and how many there were up to the last of them.
func (c *Calls) Waiting() ([]graph.ModelCall, int) {
	if c == nil {
		return nil, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[:len(c.pending):len(c.pending)], c.stored + len(c.pending)
}

// Drop forgets the calls up to one that is stored.
func (c *Calls) Drop(upTo int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := upTo - c.stored; n > 0 {
		c.pending, c.stored = c.pending[n:], upTo
	}
}

// Put stores the calls that wait. A call that is stored already is not stored again, so a transaction may be repeated.
func (c *Calls) Put(tx run.CompletionTx, r id.Run) error {
	waiting, _ := c.Waiting()
	if len(waiting) == 0 {
		return nil
	}
	return tx.PutModelCalls(r, waiting)
}

// take returns the model calls of a run that ends, each once: those that its graphs reported in all attempts.
func (c *Calls) take(tx run.CompletionTx, r id.Run) ([]graph.ModelCall, error) {
	all, err := tx.TakeModelCalls(r)
	if err != nil {
		return nil, err
	}
	waiting, _ := c.Waiting()
	stored := make(map[string]bool, len(all))
	for i := range all {
		stored[all[i].ID] = true
	}
	for _, m := range waiting {
		if !stored[m.ID] {
			stored[m.ID] = true
			all = append(all, m)
		}
	}
	return all, nil
}

// count adds up the model calls of a run: those that were reported, and answers among its messages whose calls were not.
func count(c *run.Completion, calls []graph.ModelCall, messages []*answer) {
	for _, m := range append(calls, unreported(calls, messages)...) {
		addCall(c, &m)
	}
}

// unreported returns the model calls that only messages show: a graph need not call models by way of LangChain, and a message may come from
// a graph that reports nothing. An answer belongs to a reported call by the id of its message. Where a node made a message of its own of an
// answer, the numbers of tokens identify the call, and an answer without them is not counted, for it has been already.
func unreported(calls []graph.ModelCall, messages []*answer) (out []graph.ModelCall) {
	byMessage := make(map[string]bool, len(calls))
	for i := range calls {
		if calls[i].Message != "" {
			byMessage[calls[i].Message] = true
		}
	}
	shown := make(map[string]bool, len(messages))
	for _, a := range messages {
		if a.id != "" {
			shown[a.id] = true
		}
	}
	copied := map[graph.Usage]int{} // reported calls whose messages are not shown under their own ids
	for i := range calls {
		if u := calls[i].Usage; u != nil && !shown[calls[i].Message] {
			copied[*u]++
		}
	}
	for _, a := range messages {
		switch u := a.call.Usage; {
		case byMessage[a.id]:
		case len(calls) > 0 && u == nil:
		case u != nil && copied[*u] > 0:
			copied[*u]--
		default:
			out = append(out, a.call)
		}
	}
	return out
}

// Sum returns what calls used.
func Sum(calls []graph.ModelCall) *run.Completion {
	c := &run.Completion{}
	for i := range calls {
		addCall(c, &calls[i])
	}
	return c
}

func addCall(c *run.Completion, m *graph.ModelCall) {
	more(&c.LLMCalls, 1)
	if u := m.Usage; u != nil {
		more(&c.InputTokens, u.Input)
		more(&c.OutputTokens, u.Output)
		more(&c.TotalTokens, u.Total)
	}
	addTo(&c.ByModel, m.Model, m.Usage)
	addTo(&c.ByCaller, string(m.Caller), m.Usage)
}

// addTo adds a model call to those of a key; "" is unknown.
func addTo(to *map[string]run.Usage, key string, used *graph.Usage) {
	if key == "" {
		return
	}
	if *to == nil {
		*to = map[string]run.Usage{}
	}
	u := (*to)[key]
	u.Calls++
	if used != nil {
		more(&u.Input, used.Input)
		more(&u.Output, used.Output)
		more(&u.Total, used.Total)
	}
	(*to)[key] = u
}

// more adds to a number that is nil until something is known.
func more(n **int64, add int64) {
	if *n == nil {
		*n = new(int64)
	}
	**n += add
}
