//go:build !linux

package sandbox

func canBind() bool { return false }

func (t *Thread) bound() []*mount { return nil }
