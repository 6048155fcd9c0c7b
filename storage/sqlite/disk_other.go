//go:build !linux

package sqlite

import (
	"errors"
	"os"
)

func takeRoom(*os.File, int64) error { return errors.ErrUnsupported }

// onDisk is how many bytes a file takes of its disk.
func onDisk(info os.FileInfo) int64 { return info.Size() }
