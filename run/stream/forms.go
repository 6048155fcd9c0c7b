package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"understudy/bridge"
	"understudy/checkpointer"
	"understudy/eventstore/overlay"
	"understudy/id"
	"understudy/internal/cache"
	"understudy/internal/jsonobj"
)

// formsBytes bounds the records that are kept in another form.
const formsBytes = 32 << 20

// forms shows records as readers with the overlay see them. It keeps them in the forms that readers asked for last, within bounds.
type forms struct {
	store   Store
	overlay *overlay.Overlay // nil: readers see what the graph itself has
	log     *slog.Logger
	kept    *cache.Cache[string, *bridge.Record] // nil: readers see the record itself, which is not kept here

	work   sync.WaitGroup // goroutines that make records
	mu     sync.Mutex     // guards what follows
	making map[string]*making
	closed bool // nothing is made in goroutines any more
}

// making is a record that is being made. made and err are set before done is closed.
type making struct {
	cancel context.CancelFunc
	done   chan struct{}
	made   *bridge.Record
	err    error
}

// makeTime bounds how long a record is made.
const makeTime = 30 * time.Second

func newForms(store Store, o *overlay.Overlay, log *slog.Logger) *forms {
	return &forms{store: store, overlay: o, log: log, kept: cache.New[string, *bridge.Record](formsBytes), making: map[string]*making{}}
}

// close ends what is being made, and waits for it. Later records are made by those who want them.
func (f *forms) close() {
	f.mu.Lock()
	f.closed = true
	for _, m := range f.making {
		m.cancel()
	}
	f.mu.Unlock()
	f.work.Wait()
}

// reader returns the next records, as Follower.Next.
type reader func(context.Context) ([]*bridge.Record, error)

// always is a look that is known from the beginning.
func always(l overlay.Look) func(context.Context) (overlay.Look, error) {
	return func(context.Context) (overlay.Look, error) { return l, nil }
}

// overlaid returns a reader of records as a look has them. lookOf is called once, when something depends on it.
func (f *forms) overlaid(t id.Thread, lookOf func(context.Context) (overlay.Look, error), next reader) reader {
	if f.overlay == nil {
		return next
	}
	o := &overlaid{forms: f, thread: t, lookOf: lookOf}
	return func(ctx context.Context) ([]*bridge.Record, error) { // it waits for most of a stream's life: what needs room on the stack is in show
		for {
			records := o.read
			o.read = nil
			if len(records) == 0 {
				var err error
				if records, err = next(ctx); err != nil {
					return records, err
				}
			}
			if out, err := o.show(ctx, records); err != nil || len(out) > 0 {
				return out, err
			}
		}
	}
}

// overlaid shows records as a look has them.
type overlaid struct {
	forms  *forms
	thread id.Thread
	lookOf func(context.Context) (overlay.Look, error)
	look   *overlay.Look
	read   []*bridge.Record // that could not be shown before the context of an earlier call ended
}

// show returns what a client sees of records; nothing when all of them are hidden.
func (o *overlaid) show(ctx context.Context, records []*bridge.Record) ([]*bridge.Record, error) {
	if !slices.ContainsFunc(records, func(r *bridge.Record) bool { return overlays(r) || r.Summarizer }) {
		return records, nil
	}
	if o.look == nil {
		l, err := o.lookOf(ctx)
		if err != nil && ctx.Err() != nil {
			o.read = slices.Clone(records)
			return nil, context.Cause(ctx)
		}
		if err != nil {
			o.forms.log.WarnContext(ctx, "records are shown without overlay", "thread_id", o.thread, "error", err)
			return records, nil
		}
		o.look = &l
	}
	if !o.look.On {
		return records, nil
	}
	var out []*bridge.Record // nil while it would be the same
	for i, rec := range records {
		now := rec
		if overlays(rec) {
			var err error
			if now, err = o.forms.shown(ctx, o.thread, rec, *o.look); err != nil {
				o.read = slices.Clone(records[i:])
				if out == nil {
					out = records[:i]
				}
				if len(out) > 0 {
					return out, nil
				}
				return nil, err
			}
		}
		if out == nil && (now != rec || rec.Summarizer) {
			out = append(make([]*bridge.Record, 0, len(records)), records[:i]...)
		}
		if out != nil && !rec.Summarizer {
			out = append(out, now)
		}
	}
	if out == nil {
		return records, nil
	}
	return out, nil
}

// overlays reports whether a record has root values that are recorded, or will be: with Ahead and no checkpoint as the first of their thread;
// or root updates of a step that may condense, which follows the checkpoint.
func overlays(rec *bridge.Record) bool { return rec.Checkpoint != "" || rec.Ahead }

// shown returns a record as a look has it: the first reader has it made, and it is kept for a while for the others. When that fails it returns the record
// itself. The error is that of ctx, and the record may be asked for again.
func (f *forms) shown(ctx context.Context, t id.Thread, rec *bridge.Record, look overlay.Look) (*bridge.Record, error) {
	if !look.On || !overlays(rec) || rec.Event == "updates" && !look.Updates {
		return rec, nil
	}
	key := formKey(t, rec, look)
	if made, ok := f.kept.Get(key); ok {
		if made == nil {
			made = rec
		}
		return made, nil
	}
	m := f.start(ctx, key, t, rec, look)
	select {
	case <-m.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if m.err != nil {
		f.log.WarnContext(ctx, "a record is shown without overlay", "thread_id", t, "run_id", rec.Run, "error", m.err)
		return rec, nil
	}
	return m.made, nil
}

// formKey names a record of a thread as a look has it.
func formKey(t id.Thread, rec *bridge.Record, look overlay.Look) string {
	return strings.Join([]string{string(t), rec.Offset.String(), string(rec.Run), string(look.Markers), look.Key, strconv.FormatBool(look.Live)}, " ")
}

// start has a record made, unless it is being made. That does not end with ctx: other readers wait for it too, and one whose heartbeat is due comes again.
func (f *forms) start(ctx context.Context, key string, t id.Thread, rec *bridge.Record, look overlay.Look) *making {
	f.mu.Lock()
	if m := f.making[key]; m != nil {
		f.mu.Unlock()
		return m
	}
	m := &making{done: make(chan struct{})}
	ctx, m.cancel = context.WithTimeout(context.WithoutCancel(ctx), makeTime)
	work := func() {
		defer func() {
			if p := recover(); p != nil {
				f.log.ErrorContext(ctx, "panic while a record was shown", "thread_id", t, "run_id", rec.Run, "panic", p, "stack", string(debug.Stack()))
				m.err = fmt.Errorf("panic: %v", p)
			}
			m.cancel()
			f.mu.Lock()
			delete(f.making, key)
			f.mu.Unlock()
			close(m.done)
		}()
		if m.made, m.err = f.form(ctx, t, rec, look); m.err == nil {
			f.keep(key, rec, m.made)
		}
	}
	f.making[key] = m
	if f.closed {
		f.mu.Unlock()
		work()
		return m
	}
	f.work.Go(work)
	f.mu.Unlock()
	return m
}

func (f *forms) form(ctx context.Context, t id.Thread, rec *bridge.Record, look overlay.Look) (*bridge.Record, error) {
	var ahead *overlay.Ahead
	values := rec.Data
	var state *jsonobj.Object
	if rec.Event == stateUpdate {
		state = jsonobj.Of(jsonobj.Of(rec.Data).Get("state"))
		values, ahead = state.Get("values"), overlay.RecordView
	}
	reading := f.overlay.Read(t, look)
	defer reading.Done()
	reading.Streams(rec.Run)
	var now json.RawMessage
	var err error
	if rec.Event == "updates" {
		now, err = f.update(ctx, t, reading, rec)
	} else {
		if rec.Ahead {
			ahead = f.ahead(ctx, t, rec)
		}
		now, err = reading.Values(ctx, rec.Checkpoint, values, ahead)
	}
	if err != nil {
		return nil, err
	}
	if same(now, values) {
		return rec, nil
	}
	data := []byte(now)
	if state != nil {
		state.Set("values", now)
		whole := jsonobj.Of(rec.Data)
		whole.Set("state", state.JSON())
		data = whole.JSON()
	}
	made := *rec
	made.Data, made.Frame = data, nil
	return &made, nil
}

// updateDepth bounds how far before the checkpoint of a record of `updates` the one before its step is searched.
const updateDepth = 4

// update shows a record of root updates by the checkpoint before their step.
func (f *forms) update(ctx context.Context, t id.Thread, reading *overlay.Reading, rec *bridge.Record) (json.RawMessage, error) {
	at := rec.Checkpoint
	for range updateDepth {
		shown, applied, err := reading.Update(ctx, at, rec.Data)
		if err != nil || !applied || at == "" {
			return shown, err
		}
		cp, err := f.store.LoadCheckpoint(ctx, checkpointer.Key{Thread: t, ID: at})
		if err != nil || cp == nil {
			return rec.Data, err
		}
		at = cp.Parent
	}
	return rec.Data, nil
}

// ahead says of a record that is ahead of its checkpoint what its run was called with. Of a run that is gone nothing is known.
func (f *forms) ahead(ctx context.Context, t id.Thread, rec *bridge.Record) *overlay.Ahead {
	ahead := &overlay.Ahead{Grown: true, Run: rec.Run}
	row, err := f.store.Run(ctx, t, rec.Run)
	if err != nil {
		return ahead
	}
	command := jsonobj.Of(row.Kwargs.Command).Get("update")
	removed := overlay.Removals(row.Kwargs.Input, command)
	ahead.ByClient = func(mid string) bool { return removed[mid] }
	for _, sent := range []json.RawMessage{row.Kwargs.Input, command} {
		cleaned, err := f.overlay.Clean(ctx, row.Graph, t, rec.Checkpoint, sent)
		if err != nil { // they are shown until the run is recorded
			f.log.WarnContext(ctx, "deleted messages of a run are not known", "run_id", rec.Run, "error", err)
		}
		ahead.Deleted = append(ahead.Deleted, cleaned.Deleted...)
	}
	return ahead
}

// same reports whether two values are the same bytes in memory.
func same(a json.RawMessage, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Forget drops the cached forms of a thread whose transcript was edited in place.
func (f *Followers) Forget(t id.Thread) { f.forms.forget(t) }

// Close ends what is being done for several readers, and waits for it.
func (f *Followers) Close() { f.forms.close() }

// forget drops the records of a thread whose transcript was changed where it stood.
func (f *forms) forget(t id.Thread) {
	f.kept.DeleteFunc(func(key string) bool { return strings.HasPrefix(key, string(t)+" ") })
}

// keep notes how readers see a record.
func (f *forms) keep(key string, rec, shown *bridge.Record) {
	size := len(key) + 256
	if shown == rec {
		shown = nil
	} else {
		size += len(shown.Data) + len(shown.Frame)
	}
	f.kept.Put(key, shown, size)
}
