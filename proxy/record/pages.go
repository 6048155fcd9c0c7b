package record

import (
	"context"
	"errors"
	"net/http"

	"understudy/eventstore"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/proxy"
)

// Events returns a page of the log of a thread, if the upstream allows the caller to see the thread. A *Refused error is the upstream's
// answer for the client; an error of Ask means that the upstream is unreachable.
func (r *Recorder) Events(ctx context.Context, c *proxy.Call, q eventstore.PageQuery) (*eventstore.Page, error) {
	_, incomplete, err := r.open(ctx, c, q)
	if err != nil {
		return nil, err
	}
	page, err := r.store.LogPage(ctx, q)
	if err == nil {
		page.Incomplete = incomplete
	}
	return page, err
}

// Messages returns a page of the transcript of the head of a thread. Errors are those of Events.
func (r *Recorder) Messages(ctx context.Context, c *proxy.Call, q eventstore.PageQuery) (*eventstore.Page, error) {
	at, incomplete, err := r.open(ctx, c, q)
	if err != nil {
		return nil, err
	}
	if at == "" {
		return &eventstore.Page{Incomplete: incomplete}, nil
	}
	q.At = at
	page, err := r.store.MessagePage(ctx, q)
	if err == nil {
		page.Incomplete = incomplete
		page.Through(overlay.Unwrap)
	}
	return page, err
}

// open reads a thread and its state from the upstream, and records what is new. It returns the newest recorded head.
func (r *Recorder) open(ctx context.Context, c *proxy.Call, q eventstore.PageQuery) (head id.Checkpoint, incomplete bool, err error) {
	t := q.Thread
	now, err := r.thread(ctx, c, t)
	if err != nil {
		return r.offline(ctx, c, t, err)
	}
	known, err := r.store.Thread(ctx, t)
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return "", false, err
	case !known.CreatedAt.Equal(now.created):
		if err := r.forget(ctx, t); err != nil {
			return "", false, err
		}
	}
	v, err := r.state(ctx, c, t, "")
	if err != nil {
		return r.offline(ctx, c, t, err)
	}
	if v.root() {
		head = v.id
		if _, cause := r.ensure(ctx, c, t, true, v); cause != nil {
			r.unshown(ctx, t, cause)
			incomplete = true
			known, err := r.store.Thread(ctx, t)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return "", false, err
			}
			if err != nil || !known.CreatedAt.Equal(now.created) { // recordings are missing or of another thread
				return "", false, fault.Wrap(fault.Unavailable, "the thread is not recorded yet", cause)
			}
			head = known.Head
		}
	}
	if q.Run != "" {
		if err := r.knowsRun(ctx, c, q); err != nil {
			return "", false, err
		}
	}
	l, err := r.link(ctx, t, head)
	return head, incomplete || l.Incomplete, err
}

// offline replaces open when upstream does not respond. Any answer counts, even an invalid one: it may be a login page.
func (r *Recorder) offline(ctx context.Context, c *proxy.Call, t id.Thread, cause error) (head id.Checkpoint, incomplete bool, err error) {
	var no *Refused
	if errors.As(cause, &no) {
		return "", false, no
	}
	if !c.Offline || ctx.Err() != nil || errors.Is(cause, errOdd) {
		return "", false, cause
	}
	known, err := r.store.Thread(ctx, t)
	if err != nil {
		return "", false, err
	}
	l, err := r.link(ctx, t, known.Head)
	return known.Head, l.Incomplete, err
}

func (r *Recorder) link(ctx context.Context, t id.Thread, c id.Checkpoint) (Link, error) {
	if c == "" {
		return Link{}, nil
	}
	links, err := r.store.Links(ctx, t, []id.Checkpoint{c})
	return links[c], err
}

// knowsRun returns an error for a run that has no events and is unknown to the upstream.
func (r *Recorder) knowsRun(ctx context.Context, c *proxy.Call, q eventstore.PageQuery) error {
	known, err := r.store.KnowsRun(ctx, q.Thread, q.Run)
	if err != nil || known {
		return err
	}
	if !plain(string(q.Run)) {
		return fault.New(fault.NotFound, "Not Found")
	}
	_, err = r.get(ctx, c, http.MethodGet, threadPath(q.Thread)+"/runs/"+string(q.Run), nil)
	var no *Refused
	if errors.As(err, &no) {
		return no
	}
	return err
}
