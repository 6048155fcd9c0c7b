package service

import "understudy/eventstore/overlay"

// SetOverlay changes Options.Overlay of a Service that nothing uses yet: tests make theirs of the storage that the service was made with.
func (s *Service) SetOverlay(o *overlay.Overlay) {
	s.settler.overlay, s.followers.overlay, s.followers.forms.overlay, s.executor.overlay = o, o, o, o
}
