package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"

	"understudy/id"
	"understudy/internal/sse"
)

// Turn is what a user says, and how the agent is to answer.
type Turn struct {
	Thread  string // made if there is none; "": a new one
	Text    string
	Files   []File         // of Upload, to which the text belongs
	Context map[string]any // model_name, agent_name, thinking_enabled, reasoning_effort, is_plan_mode, subagent_enabled …
	Limit   int            // of supersteps; 0: 100
}

// Event is something that happens in a run. Types: "values" (the whole state), "messages-tuple" (a message, or what is new of an answer), "custom", and as the last one "end", with
// {"thread_id", "run_id", "usage": {"input_tokens", "output_tokens", "total_tokens"}}, in which each answer counts once.
type Event struct {
	Type string
	Data json.RawMessage
}

// Usage is what the answers of a run took.
type Usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Total  int64 `json:"total_tokens"`
}

// Chat returns the text of the answer, or the question that the agent asks.
func (c *Client) Chat(ctx context.Context, t Turn) (answer string, err error) {
	for e, err := range c.Stream(ctx, t) {
		if err != nil {
			return "", err
		}
		if e.Type == "values" {
			var state struct {
				Messages []message `json:"messages"`
			}
			if err := json.Unmarshal(e.Data, &state); err != nil {
				return "", err
			}
			if n := len(state.Messages); n > 0 && state.Messages[n-1].Type != "human" {
				answer = state.Messages[n-1].text()
			}
		}
	}
	return answer, nil
}

// message is what is read of a message.
type message struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Content json.RawMessage `json:"content"`
	Usage   *Usage          `json:"usage_metadata"`
}

func (m message) text() string {
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts) // else it has no text
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// Stream sends a turn and yields what happens. The run ends if the caller stops before. An error is the last of the events; a run that fails is one.
func (c *Client) Stream(ctx context.Context, t Turn) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := c.stream(ctx, t, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, err)
		}
	}
}

var errStopped = errors.New("the caller stopped")

func (c *Client) stream(ctx context.Context, t Turn, yield func(Event) bool) error {
	if t.Thread == "" {
		t.Thread = string(id.NewThread())
	}
	if t.Limit == 0 {
		t.Limit = 100
	}
	said := map[string]any{"type": "human", "content": t.Text}
	if len(t.Files) > 0 {
		var files []map[string]any
		for _, f := range t.Files {
			files = append(files, map[string]any{"filename": f.Name, "size": f.Size, "path": f.Path, "status": "uploaded"})
		}
		said["additional_kwargs"] = map[string]any{"files": files}
	}
	body, err := json.Marshal(map[string]any{
		"assistant_id": "lead_agent", "input": map[string]any{"messages": []any{said}}, "context": t.Context, "config": map[string]any{"recursion_limit": t.Limit, "configurable": map[string]any{"thread_id": t.Thread}},
		"stream_mode": []string{"values", "messages-tuple", "custom"}, "on_disconnect": "cancel",
	})
	if err != nil {
		return err
	}
	r, err := c.send(ctx, http.MethodPost, "/api/runs/stream", "application/json", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	run := r.Header.Get("Content-Location")
	run = run[strings.LastIndexByte(run, '/')+1:]
	err = events(r.Body, used{}, func(e Event, u used) bool {
		if e.Type == "end" {
			e.Data, err = json.Marshal(map[string]any{"thread_id": t.Thread, "run_id": run, "usage": u.sum()})
		}
		return yield(e)
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// used is what answers took, by their IDs.
type used map[string]Usage

// note counts a message, or a part of one: of an answer whose parts each say what they took, that is their sum.
func (u used) note(m message) {
	switch {
	case m.Usage == nil || m.ID == "":
	case m.Type == "AIMessageChunk":
		u[m.ID] = u[m.ID].and(*m.Usage)
	default:
		u[m.ID] = *m.Usage
	}
}

func (u used) sum() (all Usage) {
	for _, one := range u {
		all = all.and(one)
	}
	return all
}

func (u Usage) and(more Usage) Usage {
	return Usage{u.Input + more.Input, u.Output + more.Output, u.Total + more.Total}
}

// events reads a stream of the Gateway until its end.
func events(from io.Reader, u used, do func(Event, used) bool) error {
	for in := sse.NewReader(from, math.MaxInt); ; {
		next, err := in.Next()
		if err != nil {
			return fmt.Errorf("the stream ended before its run: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		e := Event{Type: next.Name, Data: next.Data}
		switch e.Type {
		case "error":
			var failure struct{ Error, Message string }
			_ = json.Unmarshal(e.Data, &failure) // the text stays empty
			return fmt.Errorf("the run failed: %s: %s", failure.Error, failure.Message)
		case "messages":
			var pair []json.RawMessage
			if err := json.Unmarshal(e.Data, &pair); err != nil || len(pair) == 0 {
				return fmt.Errorf("a message cannot be read: %w", errors.Join(err, io.ErrUnexpectedEOF))
			}
			var m message
			if err := json.Unmarshal(pair[0], &m); err != nil {
				return fmt.Errorf("a message cannot be read: %w", err)
			}
			u.note(m)
			e = Event{Type: "messages-tuple", Data: pair[0]}
		case "values", "custom", "end":
		default:
			continue // such as metadata
		}
		if !do(e, u) {
			return errStopped
		}
		if e.Type == "end" {
			return nil
		}
	}
}
