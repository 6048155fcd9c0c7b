package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"understudy/internal/loop"
	"understudy/internal/sse"
)

const (
	// maxEvent bounds one event of a stream.
	maxEvent = 64 << 20
	// maxFutile bounds how many streams of a run may end in a row without a new event.
	maxFutile = 5
	// longStream is how long a stream lasts that does not count as futile: a proxy may close what is silent for a time.
	longStream = 10 * time.Second
)

// turn is one run of a chat.
type turn struct {
	*chat
	id        atomic.Pointer[string]
	sign      *sign                       // until something of the run is shown
	doing     atomic.Pointer[string]      // what the run executes; nil or "": not known
	last      string                      // ID of the last event
	attempt   int64                       // of the run, as a person knows it; 0: the first
	streamed  map[string]*strings.Builder // what was shown of messages that come in pieces, by ID
	resumed   bool                        // over more than one stream: pieces of messages may be missing
	lost      bool                        // the server no longer has some other events of the run
	status    string                      // of the run that has ended; "": not known
	shown     bool                        // something of the run
	kept      []string                    // values that nodes wrote next to messages, shown when nothing else is
	waiting   []interrupt
	cancelled bool
	refused   error // why the run could not be cancelled
}

// waitsFor says what the chat waits for.
func (r *turn) waitsFor() string {
	if doing := orEmpty(r.doing.Load()); doing != "" {
		return "waiting for " + doing
	}
	return "waiting for the first words of the graph"
}

// waited is what the chat waits for, for a server.
func (r *turn) waited() waited {
	return waited{assistant: orEmpty(r.known.Load()), thread: r.thread, run: orEmpty(r.id.Load())}
}

// cancel cancels the run.
func (r *turn) cancel(ctx context.Context) {
	r.cancelled = true
	if id := r.id.Load(); id != nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		r.refused = r.api.post(ctx, "/threads/"+r.thread+"/runs/"+*id+"/cancel", map[string]any{}, nil)
	}
}

// stream starts the run and shows its events to its end, also over connections that break and servers that restart.
func (r *turn) stream(ctx context.Context, request map[string]any) error {
	var res *http.Response
	open := func(api *client, away func(error) bool, method, path string, body any) error {
		return r.api.patiently(ctx, r.note, away, func() (err error) {
			res, err = api.open(ctx, method, path, body) //nolint:bodyclose // by the caller
			return err
		})
	}
	runs := "/threads/" + r.thread + "/runs"
	request["stream_resumable"] = true
	if err := open(r.api, absent, http.MethodPost, runs+"/stream", request); err != nil {
		return err
	}
	if id := runOf(res); id != "" {
		r.id.Store(&id)
	}
	for futile := 0; ; {
		last, opened := r.last, time.Now()
		err := r.follow(ctx, res.Body)
		res.Body.Close()
		id := r.id.Load()
		if r.failed || ctx.Err() != nil || errors.Is(err, sse.ErrTooLong) {
			return r.broken(err)
		}
		if id == nil {
			return r.unknown(err, nil)
		}
		var state struct {
			Status string `json:"status"`
		}
		switch asked := r.api.patiently(ctx, r.note, outage, func() error { return r.api.get(ctx, runs+"/"+*id, &state) }); {
		case isMissing(asked):
			return r.vanished(ctx)
		case asked != nil:
			return r.unknown(err, asked) // a server may not let callers read runs
		case err == nil && !slices.Contains(activeStatuses, state.Status):
			r.status = state.Status
			return nil
		}
		// The stream broke off, or was closed too early, as by a server that shuts down.
		if futile++; r.last != last || time.Since(opened) > longStream {
			futile = 0
		}
		if futile == maxFutile {
			return r.broken(cmp.Or(err, errors.New("the server closes it, but the run has not ended")))
		}
		if !loop.Sleep(ctx, followEvery/4) {
			return r.broken(err)
		}
		if err := open(r.api.after(r.last), outage, http.MethodGet, runs+"/"+*id+"/stream", nil); isMissing(err) {
			return r.vanished(ctx)
		} else if err != nil {
			return err
		}
		r.resumed = true
	}
}

// broken explains that a stream broke off before its run ended.
func (r *turn) broken(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the stream broke off; the run may continue, see %s: %w", r.api.command("runs "+r.thread), err)
}

// follow shows the events of a stream.
func (r *turn) follow(ctx context.Context, body io.Reader) error {
	events := sse.NewReader(body, maxEvent)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, sse.ErrTooLong) {
			return fmt.Errorf("an event is larger than %d MiB: %w", maxEvent>>20, err)
		}
		if err != nil {
			return err
		}
		if e.ID != "" {
			r.last = e.ID
		}
		data := gjson.ParseBytes(e.Data)
		name, _, _ := strings.Cut(e.Name, "|")
		switch name {
		case "metadata":
			if id := data.Get("run_id").String(); id != "" {
				r.id.Store(&id)
			}
			if n := data.Get("attempt").Int(); n > max(r.attempt, 1) {
				r.attempt = n
				r.note(r.clean(r.api.whyRetried(ctx, r.waited(), n)))
			}
		case "messages":
			r.sign.end()
			r.token(data.Get("0"))
		case "updates":
			r.sign.end()
			r.update(data)
		case "gap":
			r.sign.end()
			r.gap()
		case "error":
			r.sign.end()
			r.fails(data)
		case "end_not_saved": // the run may succeed: it ends when the server can save it
			r.note(r.clean(data.Get("message").String()))
		}
	}
}

// token writes a piece of an answer as it comes.
func (r *turn) token(m gjson.Result) {
	if r.lost || m.Get("type").String() != "AIMessageChunk" {
		return // whole messages come with updates
	}
	if text := textOf(m.Get("content")); text != "" {
		id := m.Get("id").String()
		if r.seen["text "+id] {
			return // it was shown whole
		}
		r.shown = true
		r.seen[id] = true
		if r.streamed[id] == nil {
			r.streamed[id] = &strings.Builder{}
		}
		r.streamed[id].WriteString(text)
		r.write(r.clean(text))
	}
}

// gap continues after events that are lost: no pieces of messages are shown from here on, only whole ones. The next stream begins with what is new.
func (r *turn) gap() {
	r.last = ""
	if r.lost {
		return
	}
	r.lost = true
	r.note("the server no longer has some events of the run; its messages are shown whole, and " + r.api.command("state "+r.thread) + " shows what else it wrote")
}

// whole shows a whole message, also again when pieces of it are missing.
func (r *turn) whole(m gjson.Result) {
	id := m.Get("id").String()
	if some := r.streamed[id]; r.resumed && some != nil && !r.seen["text "+id] && some.String() != textOf(m.Get("content")) {
		delete(r.seen, id)
	}
	r.message(m)
	r.shown = true
}

// reload shows what was lost of a run that has ended, from the state of the thread: its messages, and the questions that it waits with.
func (r *turn) reload(ctx context.Context) error {
	var state json.RawMessage
	if err := r.api.get(ctx, "/threads/"+r.thread+"/state", &state); err != nil {
		return err
	}
	messages := gjson.GetBytes(state, "values.messages").Array()
	asked := len(messages) // the first message after what the user wrote
	for asked > 0 && messages[asked-1].Get("type").String() != "human" {
		asked--
	}
	for _, m := range messages[asked:] {
		r.whole(m)
	}
	r.waiting = nil
	for _, i := range gjson.GetBytes(state, "interrupts").Array() {
		r.waiting = append(r.waiting, interruptOf(i))
	}
	return nil
}

// update shows what a node wrote: messages that were not streamed, calls of tools and their results, or its values.
func (r *turn) update(data gjson.Result) {
	data.ForEach(func(node, value gjson.Result) bool {
		if node.String() == "__interrupt__" {
			for _, i := range value.Array() {
				r.waiting = append(r.waiting, interruptOf(i))
			}
			return true
		}
		messages := value.Get("messages")
		for _, m := range messages.Array() {
			r.whole(m)
		}
		if !messages.Exists() && value.Exists() && value.Type != gjson.Null {
			line := r.paint(cyan, r.clean(node.String())+": ") + r.clean(cut(value.Raw, 2000))
			if r.messages() {
				r.kept = append(r.kept, line)
				return true
			}
			r.endLine()
			r.println(line)
		}
		return true
	})
}

// message shows a whole message: what of it was not shown yet.
func (c *chat) message(m gjson.Result) {
	id, kind := m.Get("id").String(), m.Get("type").String()
	if kind == "" {
		kind = m.Get("role").String() // as a node may write it
	}
	switch kind {
	case "ai", "AIMessage", "AIMessageChunk", "assistant":
		if text := textOf(m.Get("content")); text != "" && (id == "" || !c.seen[id]) {
			c.endLine()
			c.write(c.clean(text))
		}
		c.seen[id], c.seen["text "+id] = true, true
		c.endLine()
		for _, call := range m.Get("tool_calls").Array() {
			if key := "call " + call.Get("id").String(); !c.seen[key] {
				c.seen[key] = true
				c.println(c.paint(cyan, "→ "+c.clean(call.Get("name").String())) + c.paint(dim, " "+c.clean(cut(call.Get("args").Raw, 500))))
			}
		}
		if key := "end " + id; id == "" || !c.seen[key] {
			c.seen[key] = true
			c.ending(m)
		}
	case "tool":
		if id == "" || !c.seen[id] {
			c.seen[id] = true
			c.endLine()
			sign, color := "← ", cyan
			if m.Get("status").String() == "error" {
				sign, color = "✗ ", red
			}
			c.println(c.paint(color, sign+c.clean(m.Get("name").String())) + c.paint(dim, " "+c.clean(cut(textOf(m.Get("content")), 500))))
		}
	}
}

// ending shows what is missing in an answer.
func (c *chat) ending(m gjson.Result) {
	note := func(text string) { c.println(c.paint(yellow, "("+c.clean(text)+")")) }
	for _, call := range m.Get("invalid_tool_calls").Array() {
		note("a call of " + cut(call.Get("name").String(), 100) + " could not be read: " + cut(call.Get("args").String(), 200))
	}
	if refusal := m.Get("additional_kwargs.refusal").String(); refusal != "" {
		note("the model refuses: " + cut(refusal, 500))
	}
	reason := m.Get("response_metadata.finish_reason").String()
	if reason == "" {
		reason = m.Get("response_metadata.stop_reason").String()
	}
	switch reason {
	case "", "stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence", "pause_turn":
		if textOf(m.Get("content")) == "" && len(m.Get("tool_calls").Array()) == 0 {
			note("an answer without text")
		}
	case "length", "max_tokens":
		note("the answer was cut off at the limit of tokens: " + reason)
	default:
		note("the answer ended early: " + cut(reason, 100))
	}
}

// textOf returns the text of a message's content: a string, or blocks.
func textOf(content gjson.Result) string {
	if !content.IsArray() {
		return content.String()
	}
	var b strings.Builder
	for _, block := range content.Array() {
		if block.Type == gjson.String {
			b.WriteString(block.String())
			continue
		}
		switch block.Get("type").String() {
		case "text", "text_delta", "":
			b.WriteString(block.Get("text").String())
		case "image", "image_url", "audio", "file", "video":
			b.WriteString("[" + block.Get("type").String() + "]")
		}
	}
	return b.String()
}

// clean is printable for texts of several lines.
func (c *chat) clean(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = c.printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

func (c *chat) write(s string) {
	if s != "" {
		io.WriteString(c.out, s) //nolint:errcheck // a closed terminal
		c.column = 1
		if strings.HasSuffix(s, "\n") {
			c.column = 0
		}
	}
}

func (c *chat) endLine() {
	if c.column > 0 {
		c.write("\n")
	}
}

// note writes a line about the connection, which is no part of an answer that a script reads.
func (c *chat) note(text string) { fmt.Fprintln(c.errs, c.below(text)) }

// note is chat.note while a sign may be shown.
func (r *turn) note(text string) { r.sign.note(r.below(text)) }

// below begins a line behind which nothing of an answer is.
func (c *chat) below(text string) string {
	if c.column > 0 && isTerminal(c.errs) {
		return "\n" + text
	}
	return text
}

func (c *chat) println(s string) {
	c.endLine()
	c.write(s + "\n")
}

// indented returns JSON for people.
func indented(raw string) string {
	var v any
	if json.Unmarshal([]byte(raw), &v) != nil {
		return raw
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if e.Encode(v) != nil {
		return raw
	}
	return strings.TrimSpace(b.String())
}
