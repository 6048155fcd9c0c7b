package settings

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"time"

	"understudy/internal/regular"
)

// maxFile bounds what is read of a configuration file.
const maxFile = 8 << 20

// File is a configuration file that is read again when it has changed. It is safe for concurrent use.
type File[T any] struct {
	Path  string
	Parse func(text []byte) (T, error)
	// Changed is called after the file was read anew, with the error that callers get from then on. nil: no calls.
	Changed func(T, error)

	mu    sync.Mutex
	stamp stamp
	sum   [sha256.Size]byte
	value T
	err   error
	last  T // value as it could be read last
	read  bool
	begun bool
}

// stamp distinguishes versions of a file without reading it.
type stamp struct {
	modified time.Time
	size     int64
	fresh    bool // so young that a later write may leave the same time
}

// fresh is how long the time of a file is no proof that it was not written again.
const fresh = 2 * time.Second

// Current returns the contents of the file as they are now. The error says why it cannot be read, until the file is corrected.
func (f *File[T]) Current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.Path)
	if err != nil {
		return f.set(stamp{}, [sha256.Size]byte{}, f.value, fmt.Errorf("read the configuration: %w", err))
	}
	now := stamp{info.ModTime(), info.Size(), time.Since(info.ModTime()) < fresh}
	if f.begun && now == f.stamp && !now.fresh {
		return f.value, f.err
	}
	text, err := read(f.Path)
	if err != nil {
		return f.set(stamp{}, [sha256.Size]byte{}, f.value, err)
	}
	sum := sha256.Sum256(text)
	if f.begun && sum == f.sum {
		f.stamp = now
		return f.value, f.err
	}
	value, err := f.Parse(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", f.Path, err)
	}
	return f.set(now, sum, value, err)
}

// Last returns the contents of the file as they could be read last, for what must not stop while it is being edited. The error is that of Current if it never
// could be read.
func (f *File[T]) Last() (T, error) {
	value, err := f.Current()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.read {
		return f.last, nil
	}
	return value, err
}

// set keeps a version. An error that is the same as before is not reported again.
func (f *File[T]) set(s stamp, sum [sha256.Size]byte, value T, err error) (T, error) {
	news := !f.begun || sum != f.sum || fmt.Sprint(err) != fmt.Sprint(f.err)
	f.stamp, f.sum, f.value, f.err, f.begun = s, sum, value, err, true
	if err == nil {
		f.last, f.read = value, true
	}
	if news && f.Changed != nil {
		f.Changed(value, err)
	}
	return value, err
}

func read(path string) ([]byte, error) {
	text, err := regular.Read(path, maxFile+1)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	} else if len(text) > maxFile {
		return nil, fmt.Errorf("read the configuration: %s is larger than %d MiB", path, maxFile>>20)
	}
	return text, nil
}
