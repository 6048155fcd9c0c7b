package transfer

import "understudy/id"

// parentsFirst orders checkpoints so that each comes after its parent, else as they are given.
func parentsFirst(links []Link) []Link {
	type place struct {
		ns string
		id id.Checkpoint
	}
	at := make(map[place]int, len(links))
	for i, l := range links {
		at[place{l.NS, l.ID}] = i
	}
	out := make([]Link, 0, len(links))
	met := make([]bool, len(links))
	var path []int
	for i := range links {
		// Up to the oldest ancestor that is not placed, and down again. A cycle of parents, which no
		// graph writes, ends where it closes.
		path = path[:0]
		for ok := true; ok && !met[i]; i, ok = at[place{links[i].NS, links[i].Parent}] {
			met[i] = true
			path = append(path, i)
		}
		for n := len(path) - 1; n >= 0; n-- {
			out = append(out, links[path[n]])
		}
	}
	return out
}
