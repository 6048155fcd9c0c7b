//go:build !linux

package sandbox

func canBind() bool { return false }

func (t *Thread) unbound() []pair { return t.paths }
