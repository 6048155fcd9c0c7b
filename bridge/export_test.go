package bridge

// Kept is how many bytes m holds for replay, as it counts them and as they are.
func Kept(m *Memory) (counted, held int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.topics {
		p.mu.Lock()
		for _, r := range p.kept {
			held += size(r)
		}
		p.mu.Unlock()
	}
	return m.kept.Load(), held
}

// Topics is the number of threads that m holds something for.
func Topics(m *Memory) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.topics)
}
