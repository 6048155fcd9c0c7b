package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"understudy/internal/sse"
)

// maxEvent bounds one event of a stream.
const maxEvent = 64 << 20

// turn is one run of a chat.
type turn struct {
	*chat
	id        atomic.Pointer[string]
	last      string   // ID of the last event
	over      bool     // the run reported its end: an error, or a question
	shown     bool     // something of the run
	kept      []string // values that nodes wrote next to messages, shown when nothing else is
	waiting   []interrupt
	cancelled atomic.Bool
}

// cancel cancels the run.
func (r *turn) cancel(ctx context.Context) {
	r.cancelled.Store(true)
	if id := r.id.Load(); id != nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = r.api.post(ctx, "/threads/"+r.thread+"/runs/"+*id+"/cancel", map[string]any{}, nil) // the stream ends anyway
	}
}

// stream starts the run and shows its events to its end, also over connections that break and servers that restart.
func (r *turn) stream(ctx context.Context, request map[string]any, began func()) error {
	note := func(text string) {
		began()
		r.println(r.paint(dim, text))
	}
	var res *http.Response
	open := func(api *client, away func(error) bool, method, path string, body any) error {
		return r.api.patiently(ctx, note, away, func() (err error) {
			res, err = api.open(ctx, method, path, body) //nolint:bodyclose // by the caller
			return err
		})
	}
	runs := "/threads/" + r.thread + "/runs"
	request["stream_resumable"] = true
	if err := open(r.api, absent, http.MethodPost, runs+"/stream", request); err != nil {
		return err
	}
	for {
		err := r.follow(res.Body, began)
		res.Body.Close()
		id := r.id.Load()
		if id == nil || r.over || ctx.Err() != nil {
			return err
		}
		var state struct {
			Status string `json:"status"`
		}
		if asked := r.api.patiently(ctx, note, outage, func() error { return r.api.get(ctx, runs+"/"+*id, &state) }); asked != nil {
			return err //nolint:nilerr // a server may not let callers read runs
		}
		if err == nil && state.Status != "pending" && state.Status != "running" {
			return nil
		}
		if err == nil { // closed in order, but too early: by a server that shuts down
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(followEvery / 4):
			}
		}
		if err := open(r.api.after(r.last), outage, http.MethodGet, runs+"/"+*id+"/stream", nil); err != nil {
			return err
		}
	}
}

// follow shows the events of a stream. began is called before the first is shown.
func (r *turn) follow(body io.Reader, began func()) error {
	events := sse.NewReader(body, maxEvent)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the stream broke off; the run may continue, see %s: %w", r.api.command("runs "+r.thread), err)
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
		case "messages":
			began()
			r.token(data.Get("0"))
		case "updates":
			began()
			r.update(data)
		case "error":
			began()
			r.failed, r.over = true, true
			r.println(r.paint(red, "✗ "+r.clean(data.Get("error").String()+": "+data.Get("message").String())))
			r.println(r.paint(dim, "the log of the server shows where"))
		}
	}
}

// token writes a piece of an answer as it comes.
func (r *turn) token(m gjson.Result) {
	if m.Get("type").String() != "AIMessageChunk" {
		return // whole messages come with updates
	}
	if text := textOf(m.Get("content")); text != "" {
		id := m.Get("id").String()
		if r.seen["text "+id] {
			return // it was shown whole
		}
		r.shown = true
		r.seen[id] = true
		r.write(r.clean(text))
	}
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
			r.message(m)
			r.shown = true
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
