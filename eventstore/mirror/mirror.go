package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"understudy/eventstore"
	"understudy/id"
)

// Store is the storage of a Mirror, including its offsets.
type Store interface {
	// Events returns the log above a seq, in order.
	Events(ctx context.Context, t id.Thread, after eventstore.Seq, limit int) ([]*eventstore.Event, error)
	// Followed returns threads above one, in order of id: those that exist, and those of which the follower has an offset.
	Followed(ctx context.Context, follower string, after id.Thread, limit int) ([]id.Thread, error)
	// Offset returns a follower's offset, nil when there is none, and the time when the thread was created, zero when it
	// was deleted.
	Offset(ctx context.Context, follower string, t id.Thread) (o *eventstore.Offset, created time.Time, err error)
	// PutOffsets stores offsets; one without Created is deleted.
	PutOffsets(ctx context.Context, follower string, offsets []eventstore.Offset) error
}

// Options configure a Mirror. All are required but Log.
type Options struct {
	Dir     string // created when missing
	Store   Store
	Changes *eventstore.Changes
	// Encode appends an event as a row of JSON that begins with {"seq":N.
	Encode func(dst []byte, e *eventstore.Event) []byte
	Log    *slog.Logger
}

// Limits before the goroutine checks for its end.
const (
	roundThreads = 64
	roundBatches = 10 // of one thread
	batchRows    = 100
)

// follower is the name of the mirror in the table of offsets.
const follower = "jsonl"

// Mirror keeps the files of one folder. Only its Run touches them.
type Mirror struct {
	opts Options
	log  *slog.Logger
	root *os.Root

	// sweep is the thread after which the check of all threads continues; done reports that it is complete.
	sweep    id.Thread
	sweeping bool
}

// New returns a Mirror without opening anything.
func New(o Options) *Mirror {
	m := &Mirror{opts: o, log: o.Log}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	return m
}

// Run keeps the files up to date until ctx ends, and then writes the rest. It checks every thread once at the start, afterwards those
// that change. Failed writes are logged and retried: a full disk or a folder without permission affects nothing else.
func (m *Mirror) Run(ctx context.Context) error {
	defer func() {
		if m.root != nil {
			_ = m.root.Close() // only a handle
		}
	}()
	m.sweeping = true
	wait := time.Duration(0)
	for {
		idle, err := m.round(ctx)
		switch {
		case ctx.Err() != nil:
			return m.last(ctx)
		case err != nil:
			wait = min(max(2*wait, time.Second), time.Minute)
			m.log.ErrorContext(ctx, "mirror write failed; retrying", "seconds", wait.Seconds(), "error", err)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		if idle {
			select {
			case <-m.opts.Changes.Wake():
			case <-ctx.Done():
			}
		}
	}
}

// last writes the changes up to now. The rest is found at the next start.
func (m *Mirror) last(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	m.sweeping = false
	for {
		idle, err := m.round(ctx)
		if err != nil {
			return fmt.Errorf("mirror of the log: %w", err)
		}
		if idle || m.sweeping {
			return nil
		}
	}
}

// round handles some threads. idle reports that there are no more.
func (m *Mirror) round(ctx context.Context) (idle bool, err error) {
	if m.root == nil {
		if err := os.MkdirAll(m.opts.Dir, 0o700); err != nil {
			return false, err
		}
		if m.root, err = os.OpenRoot(m.opts.Dir); err != nil {
			return false, err
		}
	}
	threads, missed := m.opts.Changes.Take(roundThreads)
	if missed {
		m.sweep, m.sweeping = "", true
	}
	if err := m.syncAll(ctx, threads, false); err != nil {
		return false, err
	}
	if m.sweeping {
		page, err := m.opts.Store.Followed(ctx, follower, m.sweep, roundThreads)
		if err != nil {
			return false, err
		}
		if err := m.syncAll(ctx, page, true); err != nil {
			return false, err
		}
		if len(page) == 0 {
			m.sweeping = false
		} else {
			m.sweep = page[len(page)-1]
		}
		return false, nil
	}
	return len(threads) == 0, nil
}

// syncAll brings files up to date and stores the offsets. Failed threads are retried. With look it also checks files that seem unchanged.
func (m *Mirror) syncAll(ctx context.Context, threads []id.Thread, look bool) error {
	var offsets []eventstore.Offset
	var again []id.Thread
	var errs []error
	for _, t := range threads {
		o, more, err := m.sync(ctx, t, look)
		if err != nil {
			errs = append(errs, fmt.Errorf("thread %s: %w", t, err))
		}
		if err != nil || more {
			again = append(again, t)
		}
		if o != nil {
			offsets = append(offsets, *o)
		}
	}
	if len(offsets) > 0 {
		if err := m.opts.Store.PutOffsets(ctx, follower, offsets); err != nil {
			errs, again = append(errs, err), threads
		}
	}
	if len(again) > 0 {
		m.opts.Changes.Add(again)
	}
	return errors.Join(errs...)
}

// sync brings the file of a thread up to date. It returns the offset if it changed, and whether there are more rows.
func (m *Mirror) sync(ctx context.Context, t id.Thread, look bool) (changed *eventstore.Offset, more bool, err error) {
	was, created, err := m.opts.Store.Offset(ctx, follower, t)
	if err != nil {
		return nil, false, err
	}
	name := fileName(t)
	if created.IsZero() {
		if err := m.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
		if was != nil {
			changed = &eventstore.Offset{Thread: t}
		}
		return changed, false, nil
	}
	o := eventstore.Offset{Thread: t, Created: created}
	if was != nil && was.Created.Equal(created) { // else another thread of this id
		o = *was
	}
	size := int64(0)
	if info, err := m.root.Stat(name); err == nil {
		size = info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	rows, err := m.opts.Store.Events(ctx, t, o.Seq, batchRows)
	if err != nil || len(rows) == 0 && size == o.Position && (!look || size == 0) {
		return nil, false, err
	}
	f, err := m.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	repaired, err := repair(f, size, o)
	if err != nil {
		return nil, false, err
	}
	if repaired.Seq != o.Seq {
		m.log.WarnContext(ctx, "mirror file was modified externally; repaired", "thread_id", t, "seq", repaired.Seq, "noted", o.Seq)
		if rows, err = m.opts.Store.Events(ctx, t, repaired.Seq, batchRows); err != nil {
			return nil, false, err
		}
	}
	if repaired == o && len(rows) == 0 {
		return nil, false, nil
	}
	more, err = m.write(ctx, f, &repaired, rows)
	// Rows written before an error are in the file, so the offset is correct in any case.
	return &repaired, more, err
}

// write appends rows and their successors, batch by batch.
func (m *Mirror) write(ctx context.Context, f *os.File, o *eventstore.Offset, rows []*eventstore.Event) (more bool, err error) {
	var buf []byte
	for n := 1; len(rows) > 0; n++ {
		buf = buf[:0]
		for _, e := range rows {
			from := len(buf)
			buf = m.opts.Encode(buf, e)
			// JSON has line breaks only between values, where a blank is equivalent.
			for i := from; ; i++ {
				next := bytes.IndexByte(buf[i:], '\n')
				if next < 0 {
					break
				}
				i += next
				buf[i] = ' '
			}
			buf = append(buf, '\n')
		}
		if _, err := f.WriteAt(buf, o.Position); err != nil {
			return false, err
		}
		o.Position += int64(len(buf))
		o.Seq = rows[len(rows)-1].Seq
		if len(rows) < batchRows {
			return false, nil
		}
		if n == roundBatches {
			return true, nil
		}
		if rows, err = m.opts.Store.Events(ctx, o.Thread, o.Seq, batchRows); err != nil {
			return false, err
		}
	}
	return false, nil
}
