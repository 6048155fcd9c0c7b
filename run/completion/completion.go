// Package completion keeps what is known of runs, and writes to the log of their threads how they begin and end.
package completion

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/graph"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/run"
)

// maxText is how many characters of a message are kept: enough for a list of runs.
const maxText = 2000

// Tx is what the package needs of a transaction.
type Tx interface {
	run.CompletionTx
	AppendEvents(t id.Thread, events []*eventstore.Event) error
}

// answer is what one message of a model contributes to the completion data.
type answer struct {
	id   string // of the message
	call graph.ModelCall
	text string
	stop graph.StopReason // that it names; "": none
}

// complete folds the messages of a run that ends. A message that was revised counts as it is now; one that an earlier run had said
// counts there.
func complete(tx Tx, r *run.Run, reported *Calls) (*run.Completion, error) {
	c := &run.Completion{}
	answers := map[eventstore.Seq]*answer{}
	humans := map[eventstore.Seq]string{}
	var order []eventstore.Seq                                            // of all messages
	known, system := map[eventstore.Seq]bool{}, map[eventstore.Seq]bool{} // system: instructions, which are not counted
	err := tx.RunMessages(r.Thread, r.ID, func(e *eventstore.Event) error {
		seq := e.Seq
		if e.First != 0 {
			if seq = e.First; !known[seq] {
				return nil
			}
		} else {
			known[seq] = true
			order = append(order, seq)
		}
		switch eventstore.Canonical(e.Type) {
		case eventstore.TypeSystem:
			system[seq] = true
			delete(humans, seq)
		case eventstore.TypeAI:
			answers[seq] = answerOf(e)
		case eventstore.TypeHuman:
			humans[seq] = eventstore.Text(e.Content)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var messages []*answer
	for _, seq := range order {
		if text, ok := humans[seq]; ok && c.FirstHuman == nil {
			c.FirstHuman = cut(text)
		}
		if a := answers[seq]; a != nil {
			messages = append(messages, a)
			if a.text != "" {
				c.LastAI = cut(a.text)
			}
		}
	}
	calls, err := reported.take(tx, r.ID)
	if err != nil {
		return nil, err
	}
	count(c, calls, messages)
	if n := int64(len(order) - len(system)); n > 0 {
		c.Messages = &n
	}
	title, err := tx.ChannelText(r.Thread, "title")
	if err != nil {
		return nil, err
	}
	if title != "" {
		c.Title = cut(title)
	}
	if r.Error != nil {
		c.Error = cut(gjson.GetBytes(r.Error, "message").String())
	}
	c.StopReason = stopReason(r, messages)
	return c, nil
}

// stopReason returns the limit that ended a run early; nil: none. A run that was cancelled has none.
func stopReason(r *run.Run, messages []*answer) *graph.StopReason {
	var reason graph.StopReason
	switch kind := gjson.GetBytes(r.Error, "error").String(); {
	case kind == run.ServerDied || kind == run.WorkerDied:
		reason = graph.OrphanRecovered
	case r.Status == run.Success || r.Status == run.Error:
		for _, a := range messages {
			if a.stop != "" {
				reason = a.stop.After(reason)
			}
		}
	}
	if reason == "" {
		return nil
	}
	return &reason
}

func answerOf(e *eventstore.Event) *answer {
	m := gjson.ParseBytes(e.Content)
	a := &answer{id: m.Get("id").String(), text: eventstore.Text(e.Content)}
	if stop := graph.StopReason(m.Get("additional_kwargs." + graph.StopReasonKey).String()); stop.Known() {
		a.stop = stop
	}
	meta := m.Get("response_metadata")
	if a.call.Model = meta.Get("model_name").String(); a.call.Model == "" {
		a.call.Model = meta.Get("model").String()
	}
	if u := m.Get("usage_metadata"); u.IsObject() {
		a.call.Usage = usageOf(u.Get("input_tokens"), u.Get("output_tokens"), u.Get("total_tokens"))
	} else if u := meta.Get("token_usage"); u.IsObject() { // as OpenAI spells it
		a.call.Usage = usageOf(u.Get("prompt_tokens"), u.Get("completion_tokens"), u.Get("total_tokens"))
	}
	a.call.Caller = graph.CallerOf("", false, m.Get("additional_kwargs.lc_source").String(), gjson.GetBytes(e.Metadata, "caller").String())
	return a
}

func usageOf(input, output, total gjson.Result) *graph.Usage {
	u := &graph.Usage{Input: input.Int(), Output: output.Int(), Total: total.Int()}
	if !total.Exists() {
		u.Total = u.Input + u.Output
	}
	return u
}

func cut(s string) *string {
	n := 0
	for i := range s {
		if n++; n > maxText {
			s = s[:i]
			break
		}
	}
	return &s
}

// RecordStart writes to the log that a run begins, in the transaction that claims it for the first time.
func RecordStart(tx Tx, r *run.Run, now time.Time) error {
	if r.Kwargs.Temporary || r.Attempt != 1 {
		return nil
	}
	metadata := &jsonobj.Object{}
	metadata.SetText("caller", "lead_agent")
	metadata.Merge(jsonobj.Of(jsonobj.Of(r.Kwargs.Config).Get("metadata")))
	metadata.Merge(jsonobj.Of(r.Metadata))
	content := &jsonobj.Object{}
	content.SetText("chain", r.Graph)
	return appendEvent(tx, r, eventstore.TypeRunStart, eventstore.CategoryTrace, content.JSON(), metadata, now)
}

// Reason is why a run that was claimed is in the queue again.
type Reason string

const (
	WorkerDied Reason = "worker_died" // the process that ran the graph
	ServerDied Reason = "server_died" // the server that had claimed the run, or its connection to the database
	HandedBack Reason = "handed_back" // its server stopped, loaded the graphs anew, or cannot load this one
)

// RecordRetry writes to the log that an attempt of a run is over and the run is not, in the transaction that puts it back into the queue. cause is a clause.
func RecordRetry(tx Tx, r *run.Run, reason Reason, cause string, now time.Time) error {
	if r.Kwargs.Temporary {
		return nil
	}
	metadata := &jsonobj.Object{}
	metadata.SetText("reason", string(reason))
	metadata.Set("attempt", json.RawMessage(strconv.Itoa(r.Attempt)))
	return appendEvent(tx, r, eventstore.TypeRunRetry, eventstore.CategoryTrace, jsonobj.Quote(cause), metadata, now)
}

// RecordEnd keeps the completion data of a run that is over, and writes to the log how it ended, in the transaction that ends it. reported are the model
// calls of its last attempt that are not stored; nil: none. waits reports that its thread waits for an answer.
func RecordEnd(tx Tx, r *run.Run, reported *Calls, waits bool, now time.Time) error {
	c, err := complete(tx, r, reported)
	if err != nil {
		return fmt.Errorf("completion of run %s: %w", r.ID, err)
	}
	if err := tx.PutCompletion(r.ID, c); err != nil {
		return err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	metadata := &jsonobj.Object{}
	metadata.SetText("status", string(r.Status))
	if waits {
		metadata.Set("waiting", json.RawMessage("true"))
	}
	if r.Error == nil {
		return appendEvent(tx, r, eventstore.TypeRunEnd, eventstore.CategoryOutputs, data, metadata, now)
	}
	failure := jsonobj.Of(r.Error)
	metadata.SetText("error_type", failure.Text("error"))
	metadata.Set("completion", data)
	return appendEvent(tx, r, eventstore.TypeRunError, eventstore.CategoryError, jsonobj.Quote(failure.Text("message")), metadata, now)
}

// RecordRollback writes to the log that a run was undone. Copies of the log need this event, because they do not see later marks on rows that they have copied.
func RecordRollback(tx Tx, r *run.Run, now time.Time) error {
	if r.Kwargs.Temporary || r.StartedAt.IsZero() {
		return nil
	}
	content := &jsonobj.Object{}
	content.SetText("run_id", string(r.ID))
	return appendEvent(tx, r, eventstore.TypeRunRollback, eventstore.CategoryTrace, content.JSON(), nil, now)
}

func appendEvent(tx Tx, r *run.Run, kind, category string, content []byte, metadata *jsonobj.Object, now time.Time) error {
	e := &eventstore.Event{Run: r.ID, Type: kind, Category: category, Content: content, CreatedAt: now}
	if metadata != nil {
		e.Metadata = metadata.JSON()
	}
	if err := tx.AppendEvents(r.Thread, []*eventstore.Event{e}); err != nil {
		return fmt.Errorf("record %s of run %s: %w", kind, r.ID, err)
	}
	return nil
}
