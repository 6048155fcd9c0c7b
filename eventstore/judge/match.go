package judge

import "slices"

// Item is a message of the list after a step, before it is matched.
type Item struct {
	ID     string // "" when it has none
	Digest Digest // of its content, as ContentDigest; only for items without id
}

// Match is the result of matching an Item.
type Match[T Message] struct {
	Was   T    // zero: it is new
	Again bool // repeats an id of the list; only the first counts
}

// Beginning returns how many messages of list form its unchanged beginning when the first n are equal. Equal text may still be another
// message, so messages without id are matched as a whole.
func Beginning[T Message](list []T, n int) int {
	if n == len(list) {
		return n
	}
	if i := slices.IndexFunc(list[:n], T.IsAnonymous); i >= 0 {
		return i
	}
	return n
}

// Find finds items in list, whose first prefix messages are the beginning of the new list. byID returns the known message with an id, in
// list or in the transcript. gone are the messages of list that were not found.
func Find[T Message](list []T, prefix int, items []Item, byID func(string) T) (found []Match[T], gone []T) {
	var none T
	rest := list[prefix:]
	matched := make(map[int64]bool, len(rest)) // messages of rest; true once found
	for _, m := range rest {
		matched[m.Key()] = false
	}
	var before map[string]bool // ids of the prefix, made when they are needed
	seen := map[string]bool{}
	found = make([]Match[T], len(items))
	var nameless []int
	for i, item := range items {
		if item.ID == "" {
			nameless = append(nameless, i)
			continue
		}
		if seen[item.ID] {
			found[i].Again = true
			continue
		}
		seen[item.ID] = true
		was := byID(item.ID)
		if was == none {
			continue
		}
		if _, ok := matched[was.Key()]; ok {
			matched[was.Key()] = true
		} else if prefix > 0 {
			if before == nil {
				before = make(map[string]bool, prefix)
				for _, m := range list[:prefix] {
					before[m.MessageID()] = true
				}
			}
			if found[i].Again = before[item.ID]; found[i].Again {
				continue
			}
		}
		found[i].Was = was
	}
	if len(nameless) > 0 {
		matchNameless(rest, matched, items, nameless, found)
	}
	for _, m := range rest {
		if !matched[m.Key()] {
			gone = append(gone, m)
		}
	}
	return found, gone
}

// matchNameless matches the items without id, which are at the indexes nameless.
func matchNameless[T Message](rest []T, matched map[int64]bool, items []Item, nameless []int, found []Match[T]) {
	var candidates []T
	var old, now []Digest
	for _, m := range rest {
		if m.IsAnonymous() && !matched[m.Key()] {
			candidates, old = append(candidates, m), append(old, m.ContentDigest())
		}
	}
	for _, i := range nameless {
		now = append(now, items[i].Digest)
	}
	for i, at := range align(old, now) {
		if at >= 0 {
			found[nameless[i]].Was = candidates[at]
			matched[candidates[at].Key()] = true
		}
	}
}

// align matches messages without ids by content and in order. It returns, for each of now, the index in old, or -1. It first handles the
// usual case, a list that grows at its end.
func align(old, now []Digest) []int {
	was := make([]int, len(now))
	for i := range was {
		was[i] = -1
	}
	best, at := 0, 0
	for j := 0; j <= 2 && j < len(now); j++ {
		if m := overlap(old, now[j:]); m > best {
			best, at = m, j
		}
	}
	head := 0
	for head < len(old) && head < len(now) && old[head] == now[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	if best >= head+tail {
		for i := range best {
			was[at+i] = len(old) - best + i
		}
		return was
	}
	for i := range head {
		was[i] = i
	}
	for i := range tail {
		was[len(now)-1-i] = len(old) - 1 - i
	}
	where := map[Digest][]int{}
	for i := head; i < len(old)-tail; i++ {
		where[old[i]] = append(where[old[i]], i)
	}
	next := head
	for i := head; i < len(now)-tail; i++ {
		left := where[now[i]]
		for len(left) > 0 && left[0] < next {
			left = left[1:]
		}
		if len(left) > 0 {
			was[i], next = left[0], left[0]+1
			left = left[1:]
		}
		where[now[i]] = left
	}
	return was
}

// overlap returns the length of the longest suffix of old that is a prefix of now (Knuth, Morris and Pratt).
func overlap(old, now []Digest) int {
	back := make([]int, len(now)) // for the first i+1: length of the longest proper prefix that is also a suffix
	for i, k := 1, 0; i < len(now); i++ {
		for k > 0 && now[i] != now[k] {
			k = back[k-1]
		}
		if now[i] == now[k] {
			k++
		}
		back[i] = k
	}
	k := 0
	for _, d := range old {
		if k == len(now) {
			k = back[k-1]
		}
		for k > 0 && d != now[k] {
			k = back[k-1]
		}
		if d == now[k] {
			k++
		}
	}
	return k
}
