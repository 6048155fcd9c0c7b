//go:build !linux

package sqlite

import (
	"errors"
	"os"
)

func takeRoom(*os.File, int64) error { return errors.ErrUnsupported }

// onDisk is how many bytes a file takes of its disk.
func onDisk(info os.FileInfo) int64 { return info.Size() }

// freeBytes is not known.
func freeBytes(string) (bytes int64, disk uint64, known bool) { return 0, 0, false }
