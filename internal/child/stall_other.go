//go:build !linux

package child

// Look does nothing here.
func (s *Stall) Look() {}

// Ask does nothing here: what holds the process up stays unknown.
func (s *Stall) Ask() {}
