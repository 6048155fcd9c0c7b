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
	"time"

	"understudy/internal/fault"
	"understudy/internal/flock"
	"understudy/internal/loop"
	"understudy/internal/wholefile"
)

// FileName is what DeerFlow calls the file of a memory.
const FileName = "memory.json"

// Files keeps memories in files: Path returns that of a subject.
type Files struct{ Path func(subject string) string }

// Load implements Documents.
func (f Files) Load(_ context.Context, subject string) (*Document, error) {
	text, err := whole(f.Path(subject))
	if err != nil || text == nil {
		return nil, err
	}
	return &Document{Text: text}, nil
}

// whole reads the file of a memory; nil: there is none.
func whole(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if info.Size() > maxText {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxText>>20)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Save implements Documents.
func (f Files) Save(ctx context.Context, subject string, was *Document, text []byte) (done bool, err error) {
	path := f.Path(subject)
	err = locked(ctx, path, func() error {
		now, err := f.Load(ctx, subject)
		if done = err == nil && same(now, was); !done {
			return err
		}
		return writeIndented(path, text)
	})
	return done && err == nil, err
}

// writeIndented replaces a file of JSON, which people read.
func writeIndented(path string, text []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	return wholefile.Replace(path, b.Bytes(), 0o600)
}

func same(a, b *Document) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Text, b.Text)
}

// lockName is the file that DeerFlow locks while it changes the memory in a folder.
const lockName = ".memory.lock"

// maxLocked is how long others may have a memory locked.
const maxLocked = 10 * time.Second

// locked calls fn while no other process changes the memory of a file. Its folder is made.
func locked(ctx context.Context, path string, fn func() error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(path), lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	until, wait := time.Now().Add(maxLocked), loop.NewBackoff(firstWait, lastWait)
	for {
		err := flock.Try(lock, false)
		if err == nil || !errors.Is(err, flock.ErrLocked) { // a file system without locks
			return fn()
		}
		if time.Now().After(until) {
			return fault.New(fault.Unavailable, "The memory is being changed by others; try again")
		}
		if !wait.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}
