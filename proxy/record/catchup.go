package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/internal/jsonscan"
	"understudy/internal/logctx"
	"understudy/proxy"
)

const (
	// minPage and maxPage limit a page of history. The page size grows until a page has about pageBytes. For very long lists it is
	// smaller.
	minPage, maxPage, pageBytes = 10, 100, 4 << 20
	// maxSingles is the maximum number of checkpoints fetched one by one.
	maxSingles = 64
	// stretchBytes limits the memory for a history being read: beyond it the newest checkpoints are dropped, and read again once
	// the oldest are recorded.
	stretchBytes = 128 << 20
	// maxRounds is the maximum number of restarts while reading a history: because it is read in stretches, or because the
	// thread was replaced.
	maxRounds = 1000
)

var (
	errSlow    = errors.New("recording the thread takes longer than the request can wait")
	errOther   = errors.New("the thread was replaced by another with the same ID")
	errLacking = errors.New("the upstream does not return the checkpoint")
)

// flight is shared work on a thread.
type flight struct {
	done   chan struct{}
	err    error // valid after done
	cancel context.CancelCauseFunc
}

// ensure is recorded, but first settles partial answers of ended runs of the thread, because they come before the checkpoints of
// later runs.
func (r *Recorder) ensure(ctx context.Context, c *proxy.Call, t id.Thread, live bool, views ...*view) (links map[id.Checkpoint]Link, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, errSlow)
	defer cancel()
	r.settle(ctx, c, t)
	return r.recorded(ctx, c, t, live, views...)
}

// recorded returns when the root checkpoints of views, just shown to the caller, are recorded. live: they are a head read without its id.
// Only one caller works on a thread while the others wait; the work continues when its caller has left. After an error it returns those that
// are recorded.
func (r *Recorder) recorded(ctx context.Context, c *proxy.Call, t id.Thread, live bool, views ...*view) (links map[id.Checkpoint]Link, err error) {
	var ids []id.Checkpoint
	for _, v := range views {
		if v.root() {
			ids = append(ids, v.id)
		}
	}
	live = live && len(ids) == 1
	if live {
		if l, ok := r.heads.Get(t); ok && l.ID == ids[0] {
			return map[id.Checkpoint]Link{l.ID: l}, nil
		}
	}
	for worked := false; ; {
		now, err := r.store.Links(ctx, t, ids)
		if err != nil {
			return links, err
		}
		links = now
		if !slices.ContainsFunc(ids, func(c id.Checkpoint) bool { _, ok := links[c]; return !ok }) {
			if live {
				if err = r.noteHead(ctx, t, ids[0]); err == nil {
					r.heads.Put(t, links[ids[0]], 1)
				}
			}
			return links, err
		}
		for _, v := range views {
			if !jsonscan.Valid(v.body) {
				return links, errOdd
			}
		}
		if worked {
			return links, fmt.Errorf("record thread %s: %w", t, errLacking)
		}
		f, mine, err := r.fly(ctx, t, func(ctx context.Context) error { return r.catchUp(ctx, c, t, live, views) })
		if err != nil {
			return links, err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return links, context.Cause(ctx)
		}
		if worked = mine; mine && f.err != nil {
			return links, fmt.Errorf("record thread %s: %w", t, f.err)
		}
	}
}

// noteHead stores which recorded checkpoint is a thread's head. The head moves back when runs are deleted.
func (r *Recorder) noteHead(ctx context.Context, t id.Thread, head id.Checkpoint) error {
	if known, err := r.store.Thread(ctx, t); err != nil || known.Head == head {
		return err
	}
	return r.store.Record(ctx, func(tx Tx) error {
		known, err := tx.Thread(t)
		if err != nil || known.Head == head {
			return err
		}
		if l, err := tx.Link(t, head); err != nil || l == nil {
			return err
		}
		known.Head = head
		return tx.UpdateThread(known)
	})
}

// fly starts work on a thread, or returns the flight in progress.
func (r *Recorder) fly(ctx context.Context, t id.Thread, work func(context.Context) error) (f *flight, mine bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false, errClosed
	}
	if f = r.flights[t]; f != nil {
		return f, false, nil
	}
	// Other callers wait for it too, so it must not end with the first caller.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), flightTime)
	ctx, cancel := context.WithCancelCause(ctx)
	f = &flight{done: make(chan struct{}), cancel: cancel}
	r.flights[t] = f
	r.flying.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				f.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			stop()
			cancel(nil)
			r.mu.Lock()
			delete(r.flights, t)
			r.mu.Unlock()
			close(f.done)
		}()
		f.err = work(ctx)
	})
	return f, true, nil
}

// catchUp records the checkpoints of views and all their ancestors.
func (r *Recorder) catchUp(ctx context.Context, c *proxy.Call, t id.Thread, live bool, views []*view) error {
	began := time.Now()
	w := &walk{r: r, call: c, thread: t}
	for range maxRounds {
		again, err := w.round(ctx, live, views)
		if errors.Is(err, errOther) {
			continue
		}
		if err != nil {
			return err
		}
		if !again {
			level := slog.LevelDebug // usual after every run
			if w.recorded > maxPage {
				level = slog.LevelInfo
			}
			r.log.Log(ctx, level, "thread recorded", "thread_id", t, "checkpoints", w.recorded, "requests", w.requests, "bytes", w.bytes,
				logctx.Took(time.Since(began)))
			return nil
		}
	}
	return errOther
}

// walk reads the missing part of a thread's history, newest first, and records it.
type walk struct {
	r      *Recorder
	call   *proxy.Call
	thread id.Thread

	wanted  []id.Checkpoint
	have    map[id.Checkpoint]*snapshot // not recorded yet
	gone    map[id.Checkpoint]bool      // the upstream does not have them
	pool    *pool
	dropped bool // the newest were dropped: another round follows

	floor     id.Checkpoint // everything from the first page down to this was read; "": nothing
	exhausted bool          // there are no older ones
	limit     int           // of the next page
	most      int           // what limit may grow to
	singles   int

	recorded, requests, bytes int // of all rounds
}

// round reads and records once. again reports that another stretch follows.
func (w *walk) round(ctx context.Context, live bool, views []*view) (again bool, err error) {
	*w = walk{
		r: w.r, call: w.call, thread: w.thread, recorded: w.recorded, requests: w.requests, bytes: w.bytes,
		have: map[id.Checkpoint]*snapshot{}, gone: map[id.Checkpoint]bool{}, pool: newPool(), limit: minPage, most: maxPage,
	}
	known, err := w.r.store.Thread(ctx, w.thread)
	before := row{}
	switch {
	case err == nil:
		before.created = known.CreatedAt
	case fault.Is(err, fault.NotFound):
		w.requests++
		if before, err = w.r.thread(ctx, w.call, w.thread); err != nil {
			return false, err
		}
	default:
		return false, err
	}
	for _, v := range views {
		if !v.root() {
			continue
		}
		w.wanted = append(w.wanted, v.id)
		// What was shown before the thread was read may belong to a previous thread of this id, unless that was recorded
		// before.
		if known != nil && (!live || v.settled()) {
			w.add(v)
			w.have[v.id].passed = true
		}
	}
	if err := w.fill(ctx, live); err != nil {
		return false, err
	}
	if err := w.verify(ctx); err != nil {
		return false, err
	}
	w.requests++
	after, err := w.r.thread(ctx, w.call, w.thread)
	if err != nil {
		return false, err
	}
	if !after.created.Equal(before.created) {
		if err := w.r.forget(ctx, w.thread); err != nil {
			return false, err
		}
		return false, errOther
	}
	n := w.recorded
	if err := w.record(ctx, after, live); err != nil {
		return false, err
	}
	return w.dropped && w.recorded > n, nil
}

func (w *walk) add(v *view) {
	if !v.root() || w.have[v.id] != nil {
		return
	}
	w.have[v.id] = v.settle(w.r.keyOf(v.graph), w.pool)
}

// fill reads the wanted and missing checkpoints, and their ancestors, up to recorded ones.
func (w *walk) fill(ctx context.Context, live bool) error {
	if live && len(w.have) == 0 {
		if err := w.page(ctx, ""); err != nil {
			return err
		}
	}
	for {
		lacking, child, err := w.lacks(ctx)
		if err != nil || lacking == "" {
			return err
		}
		before := child
		if w.floor != "" {
			before = w.floor
		}
		if before == "" || lacking >= before || w.exhausted {
			err = w.single(ctx, lacking)
		} else {
			err = w.page(ctx, before)
		}
		if err != nil {
			return err
		}
		w.shed()
	}
}

// lacks returns the newest checkpoint that is needed and neither loaded nor recorded, and its newest child; "" when none is
// missing.
func (w *walk) lacks(ctx context.Context) (lacking, child id.Checkpoint, err error) {
	need := map[id.Checkpoint]id.Checkpoint{}
	if !w.dropped {
		for _, c := range w.wanted {
			need[c] = ""
		}
	}
	for _, s := range w.have {
		if s.parent != "" {
			need[s.parent] = max(need[s.parent], s.id)
		}
	}
	var ids []id.Checkpoint
	for c := range need {
		if w.have[c] == nil && !w.gone[c] {
			ids = append(ids, c)
		}
	}
	if len(ids) == 0 {
		return "", "", nil
	}
	links, err := w.r.store.Links(ctx, w.thread, ids)
	if err != nil {
		return "", "", err
	}
	for _, c := range ids {
		if _, recorded := links[c]; !recorded && c > lacking {
			lacking, child = c, need[c]
		}
	}
	return lacking, child, nil
}

// page reads the next older page.
func (w *walk) page(ctx context.Context, before id.Checkpoint) error {
	for {
		w.requests++
		rows, size, err := w.r.history(ctx, w.call, w.thread, before, w.limit)
		if err != nil {
			if w.limit == 1 || refused(err) || ctx.Err() != nil {
				return err
			}
			// The page may have been too large.
			w.limit = max(1, w.limit/4)
			w.most = w.limit
			continue
		}
		w.bytes += size
		w.exhausted = len(rows) < w.limit
		if len(rows) > 0 {
			each := size/len(rows) + 1
			w.limit = min(max(minPage, pageBytes/each), max(1, 8*pageBytes/each), w.most)
		}
		views := make([]*view, 0, len(rows))
		ids := make([]id.Checkpoint, 0, len(rows))
		for _, raw := range rows {
			if v := look(raw); v.root() && (before == "" || v.id < before) {
				views, ids = append(views, v), append(ids, v.id)
			}
		}
		if len(ids) == 0 {
			w.exhausted = true // or it is not a history
			return nil
		}
		w.floor = slices.Min(ids)
		recorded, err := w.r.store.Links(ctx, w.thread, ids)
		if err != nil {
			return err
		}
		for _, v := range views {
			if _, ok := recorded[v.id]; !ok {
				w.add(v)
			}
		}
		return nil
	}
}

// single reads a checkpoint by its id. A checkpoint that the upstream does not have is noted as gone.
func (w *walk) single(ctx context.Context, c id.Checkpoint) error {
	if w.singles++; w.singles > maxSingles {
		return fmt.Errorf("checkpoint %s: %w", c, errOdd)
	}
	w.requests++
	v, err := w.r.state(ctx, w.call, w.thread, c)
	if err != nil {
		return err
	}
	w.bytes += len(v.body)
	switch {
	case v.root() && v.id == c:
		w.add(v)
	case slices.Contains(w.wanted, c):
		return fmt.Errorf("checkpoint %s: %w", c, errLacking) // deleted since it was shown
	case v.id == "" && isNull(v.checkpoint):
		w.gone[c] = true
	default:
		return fmt.Errorf("checkpoint %s: %w", c, errOdd)
	}
	return nil
}

// verify reads again those views from passing answers whose ancestors were neither recorded nor just read: the answer may have been
// sent before its thread was deleted and created again.
func (w *walk) verify(ctx context.Context) error {
	for _, c := range w.ids() {
		s := w.have[c]
		if !s.passed || s.parent != "" && !w.gone[s.parent] {
			continue
		}
		delete(w.have, c)
		if err := w.single(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// shed drops the newest checkpoints when too much memory is held.
func (w *walk) shed() {
	for w.pool.size > stretchBytes && len(w.have) > 1 {
		kept := w.ids()
		for _, c := range kept[len(kept)/2:] {
			delete(w.have, c)
		}
		w.dropped = true
		w.pool.retain(w.have)
	}
}

// ids returns the loaded checkpoints, oldest first.
func (w *walk) ids() []id.Checkpoint {
	ids := make([]id.Checkpoint, 0, len(w.have))
	for c := range w.have {
		ids = append(ids, c)
	}
	slices.Sort(ids)
	return ids
}

// order returns the loaded checkpoints, each after its parent.
func (w *walk) order() []*snapshot {
	order := make([]*snapshot, 0, len(w.have))
	met := make(map[id.Checkpoint]bool, len(w.have))
	var path []*snapshot
	for _, c := range w.ids() {
		// Up to the oldest that is not planned, and down again. One that is visited twice is its own ancestor: no graph writes
		// that, but the loop must end.
		for s := w.have[c]; s != nil && !met[s.id]; s = w.have[s.parent] {
			met[s.id] = true
			path = append(path, s)
		}
		for len(path) > 0 {
			order, path = append(order, path[len(path)-1]), path[:len(path)-1]
		}
	}
	return order
}
