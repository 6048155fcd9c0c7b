package lead

// Waiting is how many runs wait for the build of the agent.
func Waiting(g *Graph) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.building == nil {
		return 0
	}
	return g.building.waiting
}
