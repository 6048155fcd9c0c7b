package eventstore

// align matches messages without ids with those that the parent's list had, by content and in order. Most of all a list grows at its
// end or loses its oldest, with at most a system message and a summary put before: then its beginning is the end of the old one.
// Otherwise what is alike at both ends is the same, and between them what comes in the same order.
func align(old []*item, slots []*slot) {
	best, at := 0, 0
	for j := 0; j <= 2 && j < len(slots); j++ {
		if m := overlap(old, slots[j:]); m > best {
			best, at = m, j
		}
	}
	head := 0
	for head < len(old) && head < len(slots) && old[head].digest == slots[head].digest {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(slots)-head && old[len(old)-1-tail].digest == slots[len(slots)-1-tail].digest {
		tail++
	}
	if best >= head+tail {
		for i := range best {
			slots[at+i].was = old[len(old)-best+i]
		}
		return
	}
	for i := range head {
		slots[i].was = old[i]
	}
	for i := range tail {
		slots[len(slots)-1-i].was = old[len(old)-1-i]
	}
	where := map[[16]byte][]int{}
	for i := head; i < len(old)-tail; i++ {
		where[old[i].digest] = append(where[old[i].digest], i)
	}
	next := head
	for _, sl := range slots[head : len(slots)-tail] {
		left := where[sl.digest]
		for len(left) > 0 && left[0] < next {
			left = left[1:]
		}
		if len(left) > 0 {
			sl.was, next = old[left[0]], left[0]+1
			left = left[1:]
		}
		where[sl.digest] = left
	}
}

// overlap gives the length of the longest end of old that slots begin with, by the method of Knuth, Morris and Pratt.
func overlap(old []*item, slots []*slot) int {
	back := make([]int, len(slots)) // of the first i+1 slots: how many at their end are also their beginning
	for i, k := 1, 0; i < len(slots); i++ {
		for k > 0 && slots[i].digest != slots[k].digest {
			k = back[k-1]
		}
		if slots[i].digest == slots[k].digest {
			k++
		}
		back[i] = k
	}
	k := 0
	for _, it := range old {
		if k == len(slots) {
			k = back[k-1]
		}
		for k > 0 && it.digest != slots[k].digest {
			k = back[k-1]
		}
		if it.digest == slots[k].digest {
			k++
		}
	}
	return k
}
