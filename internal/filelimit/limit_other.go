//go:build !unix

package filelimit

func limit() uint64 { return 0 }
