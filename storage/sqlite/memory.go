package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"understudy/internal/flock"
)

const (
	memoryPrefix = "understudy-memory-"
	// memoryMark is a file in the folders that memoryDir creates: no other folder is ever removed.
	memoryMark = "volatile"
	// youngFolder is how long a folder may exist without a lock: its server is about to take it.
	youngFolder = time.Minute
)

// memoryDir creates a folder in memory, if the system has a place for it. It removes those of
// killed servers.
func memoryDir() (string, error) {
	for _, place := range []string{"/dev/shm", os.TempDir()} {
		sweepMemory(place)
		dir, err := os.MkdirTemp(place, memoryPrefix)
		if err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, memoryMark), nil, 0o600); err == nil {
			return dir, nil
		}
		_ = os.RemoveAll(dir) // nothing is in it yet
	}
	return os.MkdirTemp("", memoryPrefix) // returns the error of the last resort
}

// sweepMemory removes in-memory folders that no process holds. A killed server cannot remove its
// own, and they occupy memory.
func sweepMemory(place string) {
	marks, err := filepath.Glob(filepath.Join(place, memoryPrefix+"*", memoryMark))
	if err != nil {
		return
	}
	for _, mark := range marks {
		dir := filepath.Dir(mark)
		if abandonedMemory(dir) {
			_ = os.RemoveAll(dir) // what is left is tried again by the next server
		}
	}
}

// abandonedMemory reports whether no process holds a folder.
func abandonedMemory(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, os.ErrNotExist) {
		info, err := os.Stat(dir)
		return err == nil && time.Since(info.ModTime()) > youngFolder
	}
	if err != nil {
		return false
	}
	defer f.Close()
	return flock.Try(f, false) == nil
}
