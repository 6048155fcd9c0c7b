//go:build !linux || (!amd64 && !arm64)

package sandbox

// filters returns false: there is no filter of system calls for this machine.
func filters() bool { return false }

func restrictCalls() error { return nil }
