package record

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"understudy/id"
	"understudy/internal/jsonscan"
	"understudy/thread/overlay"
)

// noteTime bounds the note of what a client deleted, which is made although the client may have left.
const noteTime = 10 * time.Second

// Update is an update of a state on its way.
type Update struct {
	r       *Recorder
	call    *Call
	thread  id.Thread
	deleted deleted
}

// deleted are condensed messages that a client deleted who knew a checkpoint.
type deleted struct {
	after id.Checkpoint
	ids   []string
}

// Update prepares an update of a state. The body comes back as it is to be forwarded.
func (r *Recorder) Update(ctx context.Context, c *Call, t id.Thread, body []byte) (*Update, []byte) {
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

// Done says that the upstream made the update.
func (u *Update) Done(ctx context.Context, _ []byte) {
	if len(u.deleted.ids) > 0 {
		u.r.noteDeleted(ctx, u.thread, u.deleted.after, u.deleted.ids)
	}
	u.r.later(u.call, u.thread)
}

// clean takes what a client has only from a transcript out of two members of a body: one with values and one with a command. at is the
// checkpoint that they will be applied to; "": the head.
func (r *Recorder) clean(ctx context.Context, c *Call, t id.Thread, at id.Checkpoint, graph string, body []byte, values, command string) ([]byte, deleted, error) {
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

// parts cleans two members of a body, as clean does, and adds to out what they delete, which is at the checkpoint out.after.
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

// noteDeleted notes what a client deleted that the graph does not know any more.
func (r *Recorder) noteDeleted(ctx context.Context, t id.Thread, after id.Checkpoint, ids []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := r.store.Record(ctx, func(tx Tx) error {
		if _, err := tx.Thread(t); err != nil {
			return err
		}
		return tx.NoteDeleted(t, after, ids)
	}); err != nil {
		r.log.WarnContext(ctx, "messages that a client deleted are shown on", "thread_id", t, "messages", len(ids), "error", err)
	}
}
