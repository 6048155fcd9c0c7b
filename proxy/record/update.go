package record

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/proxy"
)

// noteTime is the time limit for storing what a client deleted, which happens even if the client has left.
const noteTime = 10 * time.Second

// Update is a state update being forwarded.
type Update struct {
	r       *Recorder
	call    *proxy.Call
	thread  id.Thread
	deleted deleted
}

// deleted are condensed messages that a client deleted, with the checkpoint that it knew.
type deleted struct {
	after id.Checkpoint
	ids   []string
}

// Update prepares a state update. It returns the body to forward.
func (r *Recorder) Update(ctx context.Context, c *proxy.Call, t id.Thread, body []byte) (proxy.Update, []byte) {
	u := &Update{r: r, call: c, thread: t}
	if !jsonscan.Valid(body) {
		return u, body
	}
	checkpoint := jsonscan.Raw(body, "checkpoint")
	if jsonscan.Text(checkpoint, "checkpoint_ns") != "" || !overlay.MayEcho(jsonscan.Raw(body, "values")) {
		return u, body
	}
	at := checkpointID(jsonscan.Text(body, "checkpoint_id"))
	if at == "" {
		at = checkpointID(jsonscan.Text(checkpoint, "checkpoint_id"))
	}
	now, gone, err := r.clean(ctx, c, t, at, "", body, "values", "")
	if err != nil {
		r.uncleaned(ctx, t, err)
		return u, body
	}
	u.deleted = gone
	return u, now
}

// Done notes that the upstream accepted the update.
func (u *Update) Done(ctx context.Context, _ []byte) {
	if len(u.deleted.ids) > 0 {
		u.r.noteDeleted(ctx, u.thread, u.deleted.after, u.deleted.ids)
	}
	u.r.later(u.call, u.thread)
}

// clean removes messages that a client has only from a transcript from two members of a body: one with values and one with a command.
// at is the checkpoint to which they apply; "": the head.
func (r *Recorder) clean(ctx context.Context, c *proxy.Call, t id.Thread, at id.Checkpoint, graph string, body []byte, values, command string) ([]byte, deleted, error) {
	none := deleted{}
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errSlow)
	defer cancel()
	v, err := r.state(ctx, c, t, at)
	if refused(err) { // no such thread yet, or not for this client
		v, err = &view{}, nil
	}
	if err != nil {
		return body, none, err
	}
	if v.graph != "" {
		graph = v.graph
	}
	if v.root() {
		if _, err := r.ensure(ctx, c, t, at == "", v); err != nil {
			return body, none, err
		}
	}
	out := deleted{after: v.id}
	now, err := r.parts(ctx, t, graph, body, &out, values, command)
	if err != nil {
		return body, none, err
	}
	return now, out, nil
}

// parts cleans two members of a body, as clean does, and adds what they delete, as of the checkpoint out.after, to out.
func (r *Recorder) parts(ctx context.Context, t id.Thread, graph string, body []byte, out *deleted, values, command string) ([]byte, error) {
	part := func(name string, clean func(context.Context, string, id.Thread, id.Checkpoint, json.RawMessage) (overlay.Sent, error)) error {
		start, end, ok := jsonscan.Member(body, name)
		if name == "" || !ok {
			return nil
		}
		sent, err := clean(ctx, graph, t, out.after, body[start:end:end])
		if err != nil {
			return err
		}
		if !bytes.Equal(sent.JSON, body[start:end]) {
			body = jsonscan.Splice(body, start, end, sent.JSON)
		}
		out.ids = append(out.ids, sent.Deleted...)
		return nil
	}
	if err := part(values, r.overlay.Clean); err != nil {
		return nil, err
	}
	return body, part(command, r.overlay.CleanCommand)
}

// noteDeleted stores messages that a client deleted and the graph no longer has.
func (r *Recorder) noteDeleted(ctx context.Context, t id.Thread, after id.Checkpoint, ids []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := r.store.Record(ctx, func(tx Tx) error {
		if _, err := tx.Thread(t); err != nil {
			return err
		}
		return tx.NoteDeleted(t, after, ids)
	}); err != nil {
		r.log.WarnContext(ctx, "deletion not recorded; messages are still shown", "thread_id", t, "messages", len(ids), "error", err)
	}
}
