// Package flock locks files between processes. The kernel releases a lock when its process ends in any way.
package flock

import "errors"

// ErrLocked: another open file holds the lock.
var ErrLocked = errors.New("the file is locked")
