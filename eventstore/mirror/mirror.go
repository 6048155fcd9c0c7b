package mirror

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"understudy/eventstore"
	"understudy/eventstore/follow"
	"understudy/id"
)

// Store is the storage of a Mirror, including its offsets.
type Store interface {
	follow.Store
	// Followed returns threads above one, in order of id: those that exist, and those of which the follower has an offset.
	Followed(ctx context.Context, follower string, after id.Thread, limit int) ([]id.Thread, error)
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

const (
	roundBatches = 10 // of one thread, before others have their turn
	batchRows    = 100
)

// follower is the name of the mirror in the table of offsets.
const follower = "jsonl"

// Mirror keeps the files of one folder. Only its Run touches them.
type Mirror struct {
	opts Options
	log  *slog.Logger
	root *os.Root
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
	l := follow.Loop{
		Name: follower, Store: m.opts.Store, Changes: m.opts.Changes, Log: m.log, Sync: m.sync, Last: true,
		All: func(ctx context.Context, after id.Thread, limit int) ([]id.Thread, error) {
			return m.opts.Store.Followed(ctx, follower, after, limit)
		},
	}
	return l.Run(ctx)
}

// open opens the folder.
func (m *Mirror) open() (err error) {
	if m.root != nil {
		return nil
	}
	if err := os.MkdirAll(m.opts.Dir, 0o700); err != nil {
		return err
	}
	m.root, err = os.OpenRoot(m.opts.Dir)
	return err
}

// sync brings the file of a thread up to date. With look it also checks a file that seems unchanged.
func (m *Mirror) sync(ctx context.Context, t id.Thread, was *eventstore.Offset, created time.Time, look bool) (changed *eventstore.Offset, more bool, err error) {
	if err := m.open(); err != nil {
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
