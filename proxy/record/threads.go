package record

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonscan"
	"understudy/proxy"
)

const (
	// searchTime and searchers limit the requests to the upstream for a list of threads. The other threads are shown as far as
	// recorded.
	searchTime, searchers = 2 * time.Second, 4
)

// Threads shows the values of a thread, or of each thread of a list.
func (r *Recorder) Threads(ctx context.Context, c *proxy.Call, body []byte) []byte {
	if !jsonscan.Valid(body) {
		return body
	}
	ctx = overlay.With(ctx, c.Choice)
	items, ok := jsonscan.Elements(body)
	if !ok {
		return r.object(ctx, c, body, overlay.Threads)
	}
	asking, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(searchers)
	for _, item := range items {
		group.Go(func() error {
			if err := r.prepare(asking, c, item); err != nil && asking.Err() == nil {
				r.unshown(ctx, id.Thread(jsonscan.Text(item, "thread_id")), err)
			}
			return nil
		})
	}
	_ = group.Wait() // they log their errors
	now := make([]json.RawMessage, len(items))
	for i, item := range items {
		now[i] = r.object(ctx, c, item, overlay.Lists)
	}
	return rejoin(body, items, now)
}

// prepare records the head of a thread of a list, unless the thread is unchanged since.
func (r *Recorder) prepare(ctx context.Context, c *proxy.Call, object []byte) error {
	o := r.read(ctx, object, overlay.Lists)
	if o == nil {
		return nil
	}
	r.settle(ctx, c, o.thread)
	if at, ok := r.looked.Get(o.thread); ok && o.updated != "" && at == o.updated {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, found, err := r.match(ctx, o); err != nil || found {
		return err
	}
	if err := r.head(ctx, c, o.thread); err != nil {
		return err
	}
	r.looked.Put(o.thread, o.updated, 1)
	return nil
}

// object is a thread in an answer.
type object struct {
	thread     id.Thread
	row        row
	known      bool // row is
	updated    string
	start, end int // position of its values
	values     []byte
	version    string
	look       overlay.Look
}

// read reads a thread object; nil when it has no messages to show.
func (r *Recorder) read(ctx context.Context, body []byte, place overlay.Place) *object {
	o := &object{thread: id.Thread(jsonscan.Text(body, "thread_id")), updated: jsonscan.Text(body, "updated_at")}
	var ok bool
	if o.start, o.end, ok = jsonscan.Member(body, "values"); !ok || o.thread == "" {
		return nil
	}
	o.row, o.known = rowOf(body)
	o.look = r.overlay.Look(ctx, o.row.graph, place)
	o.values = body[o.start:o.end:o.end]
	messages := jsonscan.Raw(o.values, o.look.Key)
	if !o.look.On || len(messages) == 0 || messages[0] != '[' {
		return nil
	}
	o.version = versionOf(messages)
	return o
}

// match finds a recorded checkpoint with the messages of a thread object.
func (r *Recorder) match(ctx context.Context, o *object) (found id.Checkpoint, ok bool, err error) {
	known, err := r.store.Thread(ctx, o.thread)
	if fault.Is(err, fault.NotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if !o.known || !known.CreatedAt.Equal(o.row.created) {
		return "", false, nil // another thread
	}
	return r.ofVersion(ctx, o.thread, known.Head, o.version)
}

// ofVersion finds a recorded checkpoint with a version of the messages, the head first.
func (r *Recorder) ofVersion(ctx context.Context, t id.Thread, head id.Checkpoint, version string) (found id.Checkpoint, ok bool, err error) {
	if head != "" {
		links, err := r.store.Links(ctx, t, []id.Checkpoint{head})
		if err != nil {
			return "", false, err
		}
		if l, ok := links[head]; ok && l.Version == version {
			return head, true, nil
		}
	}
	l, ok, err := r.store.OfVersion(ctx, t, version)
	return l.ID, ok, err
}

// object shows the values of a thread object. For a single thread, missing checkpoints may be fetched from the upstream.
func (r *Recorder) object(ctx context.Context, c *proxy.Call, body []byte, place overlay.Place) []byte {
	o := r.read(ctx, body, place)
	if o == nil {
		return body
	}
	values, err := r.valuesOf(ctx, c, o, place == overlay.Threads)
	if err != nil {
		r.unshown(ctx, o.thread, err)
		return body
	}
	if sameBytes(values, o.values) {
		return body
	}
	return jsonscan.Splice(body, o.start, o.end, values)
}

func (r *Recorder) valuesOf(ctx context.Context, c *proxy.Call, o *object, asks bool) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errSlow)
	defer cancel()
	if asks {
		r.settle(ctx, c, o.thread)
	}
	at, found, err := r.match(ctx, o)
	if err == nil && !found && asks {
		if err = r.head(ctx, c, o.thread); err == nil {
			if !o.known { // the answer has only some fields
				if o.row, err = r.thread(ctx, c, o.thread); err != nil {
					return nil, err
				}
				o.known = true
			}
			at, found, err = r.match(ctx, o)
		}
	}
	if err != nil {
		return nil, err
	}
	reading := r.overlay.Read(o.thread, o.look)
	defer reading.Done()
	if found {
		return reading.Values(ctx, at, o.values, overlay.RecordView)
	}
	// A thread object is not recorded; record what came after the head.
	known, err := r.store.Thread(ctx, o.thread)
	if fault.Is(err, fault.NotFound) || err == nil && (!o.known || !known.CreatedAt.Equal(o.row.created)) {
		return o.values, nil
	}
	if err != nil {
		return nil, fmt.Errorf("head of thread %s: %w", o.thread, err)
	}
	return reading.Values(ctx, known.Head, o.values, &overlay.Ahead{Grown: true})
}
