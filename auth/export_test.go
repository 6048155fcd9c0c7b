package auth

// Waiting is how many requests wait for a question about their keys that was not asked yet.
func (s *Keys) Waiting() int {
	s.lookups.mu.Lock()
	defer s.lookups.mu.Unlock()
	return len(s.lookups.waiting)
}
