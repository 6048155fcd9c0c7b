package bridge

// Topics is the number of threads that m holds something for.
func Topics(m *Memory) int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.topics)
}
