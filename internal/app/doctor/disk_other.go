//go:build !linux

package doctor

// diskOf is not known here.
func diskOf(string) (free int64, kind string) { return -1, "" }
