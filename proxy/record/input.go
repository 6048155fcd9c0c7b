package record

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/proxy"
)

// Input prepares a body that may contain messages for graphs on other routes than Begin and Update: stateless runs, one or several, crons,
// threads with supersteps, commands of the event-streaming protocol. t is the thread of the route; "" if none. It returns the body to
// forward. The Update is nil when there is nothing to note.
func (r *Recorder) Input(ctx context.Context, c *proxy.Call, t id.Thread, body []byte) (proxy.Update, []byte) {
	if !overlay.MayEcho(body) || !jsonscan.Valid(body) {
		return nil, body
	}
	u := &Update{r: r, call: c, thread: t}
	now, err := r.input(ctx, u, body)
	if err != nil {
		r.uncleaned(ctx, t, err)
		return nil, body
	}
	if len(u.deleted.ids) == 0 {
		return nil, now
	}
	return u, now
}

func (r *Recorder) input(ctx context.Context, u *Update, body []byte) ([]byte, error) {
	if runs, ok := jsonscan.Elements(body); ok { // POST /runs/batch
		return each(body, runs, func(run []byte) ([]byte, error) { return r.input(ctx, u, run) })
	}
	graph := jsonscan.Text(body, "assistant_id")
	if start, end, ok := jsonscan.Member(body, "params"); ok && !isNull(jsonscan.Raw(body, "method")) { // POST /threads/{thread_id}/commands
		// The parameters of input.respond have the form of a run's command, {"update", "goto", …}; those of run.start have
		// an input.
		const head, tail = `{"command":`, `}`
		params := body[start:end:end]
		if jsonscan.Text(body, "method") == "input.respond" {
			params = slices.Concat([]byte(head), params, []byte(tail))
		}
		now, err := r.input(ctx, u, params)
		if err != nil || bytes.Equal(now, params) {
			return body, err
		}
		if len(params) > end-start {
			now = now[len(head) : len(now)-len(tail)]
		}
		return jsonscan.Splice(body, start, end, now), nil
	}
	if start, end, ok := jsonscan.Member(body, "supersteps"); ok {
		if graph = jsonscan.Text(body, "graph_id"); graph == "" {
			graph = jsonscan.Text(jsonscan.Raw(body, "metadata"), "graph_id")
		}
		now, err := r.supersteps(ctx, graph, body[start:end:end])
		if err != nil || bytes.Equal(now, body[start:end]) {
			return body, err
		}
		return jsonscan.Splice(body, start, end, now), nil
	}
	if id.IsUUID(graph) {
		graph = ""
	}
	if u.thread == "" { // without a thread its condensed messages are unknown
		return r.parts(ctx, "", graph, body, &deleted{}, "input", "command")
	}
	now, gone, err := r.clean(ctx, u.call, u.thread, "", graph, body, "input", "command")
	u.deleted = gone
	return now, err
}

// supersteps removes markers from the supersteps of a new thread: [{"updates": [{"values", "command"}, …]}, …].
func (r *Recorder) supersteps(ctx context.Context, graph string, body []byte) ([]byte, error) {
	steps, _ := jsonscan.Elements(body)
	return each(body, steps, func(step []byte) ([]byte, error) {
		start, end, ok := jsonscan.Member(step, "updates")
		if !ok {
			return step, nil
		}
		updates, _ := jsonscan.Elements(step[start:end])
		now, err := each(step[start:end:end], updates, func(update []byte) ([]byte, error) {
			return r.parts(ctx, "", graph, update, &deleted{}, "values", "command")
		})
		if err != nil || bytes.Equal(now, step[start:end]) {
			return step, err
		}
		return jsonscan.Splice(step, start, end, now), nil
	})
}

// each returns body, an array of items, with fn applied to each; the same bytes when none changes.
func each(body []byte, items []json.RawMessage, fn func([]byte) ([]byte, error)) ([]byte, error) {
	changed := false
	for i, item := range items {
		now, err := fn(item)
		if err != nil {
			return body, err
		}
		if !bytes.Equal(now, item) {
			items[i], changed = now, true
		}
	}
	if !changed {
		return body, nil
	}
	return jsonscan.Join(items), nil
}
