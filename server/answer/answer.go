// Package answer folds what a run did into the answer that a client of a protocol for chats gets: the text of the lead model, as tokens or as a whole, the results
// of tools, and the questions that the run waits at. It knows no protocol: packages server/openai and server/a2a write answers as their clients read them.
package answer

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/bridge"
	"understudy/graph/message"
)

// Piece is a part of the text of an answer. Pieces of one message follow each other, and have its number.
type Piece struct {
	Message int // 0, 1, 2…
	Text    string
}

// maxWaiting bounds the text of parallel models that waits until the one that is shown has ended. Beyond it a message is shown when its node has ended.
const maxWaiting = 1 << 20

// Answer folds the records of a run, of the modes `updates` and, for a stream, `messages-tuple`. The answer are the messages of models that nodes of the root graph
// write to `messages`; a stream shows their tokens as they come. Not safe for concurrent use. Its work for a record does not depend on those before it.
type Answer struct {
	live      bool
	subgraphs bool // tokens of models in subgraphs are shown
	resumable bool // questions can be answered
	speaks    bool // a node wrote `messages`, or it need not

	// Of a stream.
	streams  map[string]*stream // by id of the message
	current  *stream            // the one that is shown now; nil: none
	waiting  []*stream          // that have begun to say something meanwhile, in this order
	speakers map[place]*speakers
	held     int // bytes of text that waits
	shown    int // messages
	seed     maphash.Seed
	sums     map[uint64]bool // of texts that were streamed
	pieces   []Piece

	// From the updates.
	texts     []text
	byID      map[string]int // index in texts
	old       map[string]bool
	last      int               // texts from here on are the last of the run: no message of another kind follows them
	tool      string            // text of the last message, if it is a tool's
	results   []message.Message // of tools, of a stream, in the last record
	reason    string            // why the last message ended, one of the constants; "": unknown
	questions []Question
	sorted    bool // the questions are in order
	failure   *failure
}

// text is a message of a model in the state of the graph.
type text struct {
	id    string
	text  string // "" in a stream, which has shown it
	usage *message.Usage
	gone  bool
}

type failure struct{ kind, message string }

// Failure returns the text of the error of a run, {error, message}; "" when there is none.
func Failure(raw json.RawMessage) string { return failureOf(raw).String() }

// failureOf reads the error of a run: {error, message}.
func failureOf(raw json.RawMessage) failure {
	v := gjson.ParseBytes(raw)
	return failure{v.Get("error").String(), v.Get("message").String()}
}

// String is what a client reads.
func (f failure) String() string {
	if f.message == "" || f.kind == "" {
		return f.kind + f.message
	}
	return f.kind + ": " + f.message
}

// Options say what a client can do with an answer.
type Options struct {
	Live      bool // it is a stream
	Subgraphs bool // a stream shows tokens of models in subgraphs too, except of those that tools call; its run streams subgraphs
	Resumable bool // questions can be answered
	Resumes   bool // the run answers a question, and need not write messages
	// Had are the messages that the thread had before a run that answers a question, a list: graphs may write them again.
	Had json.RawMessage
}

// New returns an empty answer.
func New(o Options) *Answer {
	a := &Answer{live: o.Live, subgraphs: o.Subgraphs, resumable: o.Resumable, speaks: o.Resumes, streams: map[string]*stream{}, speakers: map[place]*speakers{}, seed: maphash.MakeSeed(), sums: map[uint64]bool{}, byID: map[string]int{}, old: map[string]bool{}}
	gjson.ParseBytes(o.Had).ForEach(func(_, m gjson.Result) bool {
		if id := m.Get("id").String(); id != "" {
			a.old[id] = true
		}
		return true
	})
	return a
}

// Stored returns the answer of a run as the database has it: the messages that it has written, in order, and the interrupts that its thread waits at since.
func Stored(messages []json.RawMessage, interrupts json.RawMessage) *Answer {
	a := New(Options{Resumable: true})
	for _, raw := range messages {
		a.write(gjson.ParseBytes(raw))
	}
	a.questions, a.sorted, a.speaks = Questions(interrupts), true, true
	return a
}

// Add adds a record, and returns what the client can be shown now. The pieces are valid until the next call.
func (a *Answer) Add(r *bridge.Record) []Piece {
	a.pieces, a.results = a.pieces[:0], a.results[:0]
	switch event, ns, _ := strings.Cut(r.Event, "|"); event {
	case "metadata": // an attempt begins: what the one before has not ended, it says again
		a.abandon()
	case "messages":
		if a.live {
			a.token(r.Data)
		}
	case "updates":
		if ns == "" {
			a.update(r.Data)
		} else { // what a subgraph writes, the node that it is writes too
			gjson.ParseBytes(r.Data).ForEach(func(node, v gjson.Result) bool {
				a.endOf(place{ns, node.Str}, v)
				return true
			})
		}
	case "error":
		f := failureOf(r.Data)
		a.failure = &f
	}
	return a.pieces
}

// Results returns the messages of tools in the last record of a stream. They are valid until the next call of Add.
func (a *Answer) Results() []message.Message { return a.results }

// End returns the rest of what the client can be shown. The run has ended.
func (a *Answer) End() []Piece {
	a.pieces = a.pieces[:0]
	for _, s := range a.waiting {
		a.finish(s)
	}
	if a.current != nil {
		a.finish(a.current)
	}
	a.advance()
	if !a.speaks && a.failure == nil && len(a.questions) == 0 && a.shown == 0 {
		a.failure = &failure{message: noMessages}
	}
	if a.failure != nil {
		return a.pieces
	}
	if len(a.questions) > 0 {
		a.say(a.Questions()[0].Text(a.resumable))
	} else if a.tool != "" {
		a.say(a.tool)
	}
	return a.pieces
}

// update adds what nodes have written: {node: update}, and interrupts.
func (a *Answer) update(data []byte) {
	gjson.ParseBytes(data).ForEach(func(node, v gjson.Result) bool {
		if node.Str == "__interrupt__" {
			a.questions, a.sorted = append(a.questions, questionsIn(v)...), false
			return true
		}
		a.endOf(place{node: node.Str}, v)
		updates := []gjson.Result{v}
		if v.IsArray() {
			updates = v.Array()
		}
		for _, u := range updates {
			if written := u.Get("messages"); u.IsObject() && written.Exists() {
				a.write(written)
			}
		}
		return true
	})
}

// noMessages is the error of a run that has no answer and cannot have one.
const noMessages = "The graph wrote no messages. For this API its state has a channel `messages`, which takes those of the user and gets the answer"

// write adds messages that a node has written: one, or a list. A list may begin with the conversation before the run; a question of the user ends that.
func (a *Answer) write(written gjson.Result) {
	a.speaks = true
	items := []gjson.Result{written}
	if written.IsArray() {
		items = written.Array()
		if len(items) == 2 && items[0].Type == gjson.String && items[1].Type == gjson.String { // ("ai", "text")
			items = []gjson.Result{written}
		}
	}
	messages := make([]message.Message, 0, len(items))
	for _, item := range items {
		m, ok := message.Read([]byte(item.Raw))
		if !ok { // a node may write what LangChain makes a message of
			var err error
			if m, err = message.Convert([]byte(item.Raw)); err != nil {
				continue
			}
		}
		if m.Type == message.TypeHuman {
			messages = messages[:0]
			a.other("")
			continue
		}
		messages = append(messages, m)
	}
	for _, m := range messages {
		switch m.Type {
		case message.TypeAI, message.TypeAIChunk:
			if !a.old[m.ID] || m.ID == "" {
				a.answer(m)
			}
		case message.TypeRemove:
			if i, ok := a.byID[m.ID]; ok {
				a.texts[i].gone = true
			}
		case message.TypeTool:
			a.other(m.Text())
			if a.live {
				a.results = append(a.results, m)
			}
		default:
			a.other("")
		}
	}
}

// other notes a message that is not of a model.
func (a *Answer) other(tool string) { a.last, a.tool = len(a.texts), tool }

// answer adds a message of a model.
func (a *Answer) answer(m message.Message) {
	t := text{id: m.ID, text: m.Text(), usage: m.Usage}
	if a.live {
		a.showWhole(m.ID, t.text)
		t.text = ""
	}
	a.tool = ""
	a.reason, _ = finishOf(m.ResponseMetadata)
	if i, ok := a.byID[m.ID]; ok && m.ID != "" {
		a.texts[i] = t
		return
	}
	if m.ID != "" {
		a.byID[m.ID] = len(a.texts)
	}
	a.texts = append(a.texts, t)
}

// showWhole shows a message of the state if its tokens were not: by its id, or under another id by its text.
func (a *Answer) showWhole(id, text string) {
	s := a.streams[id]
	if id == "" {
		s = nil
	}
	if s != nil && s.spoke && !s.lost && !s.hidden {
		if !s.ended {
			a.end(s)
		}
		return
	}
	if text == "" || a.sums[maphash.String(a.seed, text)] {
		return
	}
	whole := &stream{number: -1, spoke: true}
	whole.hash.SetSeed(a.seed)
	_, _ = whole.hash.WriteString(text)
	if id != "" {
		a.streams[id] = whole
	}
	if a.current != nil { // it waits in any case, as there is no other time to show it
		whole.ended, whole.text = true, []byte(text)
		a.held += len(text)
		a.waiting = append(a.waiting, whole)
		return
	}
	a.show(whole, text)
	a.end(whole)
}

// Reasons for the end of a message.
const (
	Stop          = "stop"
	Length        = "length"
	ContentFilter = "content_filter"
)

// finishOf returns why a model ended its message, and whether its provider said so.
func finishOf(metadata json.RawMessage) (reason string, said bool) {
	if len(metadata) <= len(`{}`) {
		return "", false
	}
	v := gjson.ParseBytes(metadata)
	for _, key := range []string{"finish_reason", "stop_reason", "stopReason", "done_reason"} {
		switch text := strings.ToLower(v.Get(key).String()); text {
		case "":
		case "length", "max_tokens", "model_length":
			return Length, true
		case "content_filter", "safety", "refusal", "content_filtered", "guardrail_intervened":
			return ContentFilter, true
		default:
			return Stop, true
		}
	}
	return "", false
}

// Reason returns why the answer ended. Calls of tools are the graph's own, and so never a reason.
func (a *Answer) Reason() string {
	if a.reason == "" || len(a.questions) > 0 {
		return Stop
	}
	return a.reason
}

// Text returns the answer: the last messages of models, those after which no tool or person spoke, as paragraphs; the result of a tool that ended the run; or
// a question. A stream does not keep it.
func (a *Answer) Text() string {
	return strings.Join(a.messages(a.last), "\n\n")
}

// Messages returns the texts of all messages that models wrote in the run, and of the question or the result of a tool at its end.
func (a *Answer) Messages() []string { return a.messages(0) }

// Questions returns what the run asks, in the order in which answers are taken.
func (a *Answer) Questions() []Question {
	if !a.sorted {
		a.questions, a.sorted = inOrder(a.questions), true
	}
	return a.questions
}

// messages returns the texts of the answer from the one with the given number on.
func (a *Answer) messages(from int) (out []string) {
	for _, t := range a.texts[from:] {
		if t.text != "" && !t.gone {
			out = append(out, t.text)
		}
	}
	if len(a.questions) > 0 {
		out = append(out, a.Questions()[0].Text(a.resumable))
	} else if a.tool != "" {
		out = append(out, a.tool)
	}
	return out
}

// Failed returns why the run failed; "" when it did not.
func (a *Answer) Failed() string {
	if a.failure == nil {
		return ""
	}
	return cmp.Or(a.failure.String(), "The run failed")
}

// Usage is what the models used whose messages the run wrote, in tokens.
type Usage struct {
	Known                                            bool
	Input, Output, Total, Cached, Created, Reasoning int64
}

// Usage returns the sum over the messages of the run.
func (a *Answer) Usage() (u Usage) {
	for _, t := range a.texts {
		if t.usage == nil {
			continue
		}
		u.Known = true
		u.Input += t.usage.InputTokens
		u.Output += t.usage.OutputTokens
		u.Total += t.usage.TotalTokens
		u.Cached += gjson.GetBytes(t.usage.InputDetails, "cache_read").Int()
		u.Created += gjson.GetBytes(t.usage.InputDetails, "cache_creation").Int()
		u.Reasoning += gjson.GetBytes(t.usage.OutputDetails, "reasoning").Int()
	}
	return u
}
