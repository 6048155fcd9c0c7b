//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

// OwnerOf returns the user id of the owner of a file.
func OwnerOf(info fs.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
