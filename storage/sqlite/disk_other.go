//go:build !linux

package sqlite

import "os"

// takeRoom makes an empty file take so many bytes of its disk.
func takeRoom(f *os.File, size int64) error { return fill(f, size) }
