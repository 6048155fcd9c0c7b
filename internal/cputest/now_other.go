//go:build !linux

package cputest

import "time"

var start = time.Now()

func now() time.Duration { return time.Since(start) }
