package lead

import "time"

// Waiting is how many runs wait for the build of the agent.
func Waiting(g *Graph) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.building == nil {
		return 0
	}
	return g.building.waiting
}

// RetryNow ends the pause after a build without some tools in Python.
func RetryNow(g *Graph) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.retry = time.Time{}
}
