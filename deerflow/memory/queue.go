package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"understudy/internal/flock"
	"understudy/internal/wholefile"
)

// Queue keeps the conversations that wait to be learned from, so that they survive a restart.
type Queue interface {
	// Put queues a text of a subject under a name, in place of what waits there.
	Put(ctx context.Context, subject, name string, text []byte) error
	// List returns what waits.
	List(ctx context.Context) ([]Entry, error)
	// Load returns what waits; nil: nothing any more.
	Load(ctx context.Context, e Entry) (*Document, error)
	// Swap puts a text in place of what was read, or deletes that if the text is nil. done is false if it has changed since.
	Swap(ctx context.Context, e Entry, was *Document, text []byte) (done bool, err error)
	// Hold lets one learner at a time work on the queue. held is nil while another one does; it ends when that is no longer certain. Call release afterwards.
	Hold(ctx context.Context) (held context.Context, release func(), err error)
}

// Entry is what waits under a name, since a time.
type Entry struct {
	Name string
	At   time.Time

	namespace []string // of those in the store
}

// Folder is a Queue in files.
type Folder struct {
	Dir string

	files sync.Mutex // while one that waits is replaced or deleted
}

const suffix = ".json"

func (f *Folder) path(name string) string { return filepath.Join(f.Dir, name+suffix) }

// Put implements Queue.
func (f *Folder) Put(_ context.Context, _, name string, text []byte) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	f.files.Lock()
	defer f.files.Unlock()
	return wholefile.Replace(f.path(name), text, 0o600)
}

// List implements Queue.
func (f *Folder) List(context.Context) (list []Entry, err error) {
	files, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range files {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if info, err := e.Info(); ok && err == nil { // else it is gone
			list = append(list, Entry{Name: name, At: info.ModTime()})
		}
	}
	return list, nil
}

// Load implements Queue.
func (f *Folder) Load(_ context.Context, e Entry) (*Document, error) {
	text, err := os.ReadFile(f.path(e.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &Document{Text: text}, nil
}

// Swap implements Queue.
func (f *Folder) Swap(_ context.Context, e Entry, was *Document, text []byte) (bool, error) {
	f.files.Lock()
	defer f.files.Unlock()
	switch now, err := os.ReadFile(f.path(e.Name)); {
	case err == nil && !bytes.Equal(now, was.Text), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case text == nil:
		return true, os.Remove(f.path(e.Name))
	}
	return true, wholefile.Replace(f.path(e.Name), text, 0o600)
}

// folders are those of this process, each with a place for one that works: while an agent is replaced by another one, both have the same folder.
var folders sync.Map // of chan struct{}

// Hold implements Queue, by a lock that ends with the process.
func (f *Folder) Hold(ctx context.Context) (held context.Context, release func(), err error) {
	place, _ := folders.LoadOrStore(f.Dir, make(chan struct{}, 1))
	taken := place.(chan struct{})
	select {
	case taken <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	leave := func() { <-taken }
	if _, err := os.Stat(f.Dir); errors.Is(err, fs.ErrNotExist) {
		return ctx, leave, nil // nothing ever waited
	}
	lock, err := os.OpenFile(filepath.Join(f.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		leave()
		return nil, nil, err
	}
	if err := flock.Try(lock, false); errors.Is(err, flock.ErrLocked) {
		_ = lock.Close()
		leave()
		return nil, nil, nil
	} // of a file system without locks: two servers may learn the same twice
	return ctx, func() { _ = lock.Close(); leave() }, nil
}

// moveTo moves what waits to the store, unless another process works on it.
func (f *Folder) moveTo(ctx context.Context, q *ItemQueue) (moved int, err error) {
	if list, err := f.List(ctx); err != nil || len(list) == 0 {
		return 0, err
	}
	held, release, err := f.Hold(ctx)
	if err != nil || held == nil {
		return 0, err
	}
	defer release()
	list, err := f.List(ctx)
	errs := []error{err}
	for _, e := range list { // one that cannot be moved keeps no other
		done, err := f.moveOne(ctx, q, e)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name, err))
		} else if done {
			moved++
		}
	}
	return moved, errors.Join(errs...)
}

// moveOne moves an entry, and reports whether it was there.
func (f *Folder) moveOne(ctx context.Context, q *ItemQueue, e Entry) (done bool, err error) {
	d, err := f.Load(ctx, e)
	if err != nil || d == nil {
		return false, err
	}
	var w waiting
	if err := json.Unmarshal(d.Text, &w); err != nil {
		return false, err
	}
	if w.User == "" {
		return false, errors.New("it does not say whose conversation it is")
	}
	if err := q.putNewer(ctx, &w, d.Text); err != nil {
		return false, err
	}
	_, err = f.Swap(ctx, e, d, nil)
	return err == nil, err
}
