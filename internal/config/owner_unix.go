//go:build unix

package config

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// writable reports whether this process may make files in a folder.
func writable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

// OwnerOf returns the user id of the owner of a file.
func OwnerOf(info fs.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
