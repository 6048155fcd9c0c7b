//go:build !unix || openbsd

package memlimit

func addressSpace() int64 { return 0 }
