package vectors

import (
	"cmp"
	"strings"
)

// Candidate is an item with the score of its best text.
type Candidate struct {
	Score          float32
	Updated        int64 // when the item was written, in microseconds
	Namespace, Key string
}

// before reports whether a is listed before b: the best score first, then the last update, then by name.
func before(a, b *Candidate) bool {
	switch {
	case a.Score != b.Score:
		return a.Score > b.Score
	case a.Updated != b.Updated:
		return a.Updated > b.Updated
	}
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Key, b.Key)) < 0
}

// Ranking returns candidates in order. Mostly only the first few are read, so it is a heap.
type Ranking struct{ heap []Candidate }

// NewRanking orders a list, which it keeps.
func NewRanking(list []Candidate) *Ranking {
	r := &Ranking{list}
	for i := len(list)/2 - 1; i >= 0; i-- {
		r.down(i)
	}
	return r
}

// Next returns the next candidate; false after the last.
func (r *Ranking) Next() (Candidate, bool) {
	if len(r.heap) == 0 {
		return Candidate{}, false
	}
	c, last := r.heap[0], len(r.heap)-1
	r.heap[0] = r.heap[last]
	r.heap[last] = Candidate{}
	r.heap = r.heap[:last]
	r.down(0)
	return c, true
}

func (r *Ranking) down(i int) {
	h := r.heap
	for {
		best := 2*i + 1
		if best >= len(h) {
			return
		}
		if right := best + 1; right < len(h) && before(&h[right], &h[best]) {
			best = right
		}
		if !before(&h[best], &h[i]) {
			return
		}
		h[i], h[best] = h[best], h[i]
		i = best
	}
}
