package judge

import "slices"

// Order returns the transcript after the step. now has the messages of s.Next: Was, its revision, or a new one. marker stands for the
// condensed messages; zero: there are none. The slices of the step are not modified.
func (s *Step[T]) Order(v *Verdict[T], now []T, marker T) []T {
	return s.insertNew(s.insertMarker(s.stayed(v, now, marker), v, now, marker), now)
}

// stayed returns the old transcript without removed messages, and with revisions in place.
func (s *Step[T]) stayed(v *Verdict[T], now []T, marker T) []T {
	revised := map[int64]T{}
	for i := range s.Next {
		if s.Next[i].Revised && now[i] != marker {
			revised[s.Next[i].Was.Key()] = now[i]
		}
	}
	if len(revised) == 0 && len(v.Removed) == 0 {
		return s.Shown
	}
	shown := make([]T, 0, len(s.Shown))
	for _, m := range s.Shown {
		if _, removed := v.Removed[m.Key()]; removed {
			continue
		}
		if r, ok := revised[m.Key()]; ok {
			m = r
		}
		shown = append(shown, m)
	}
	return shown
}

// insertMarker puts the marker before the first kept message after the last condensed one.
func (s *Step[T]) insertMarker(shown []T, v *Verdict[T], now []T, marker T) []T {
	var none T
	if marker == none {
		return shown
	}
	condensed, kept := keysOf(v.Condensed), keysOf(s.List[:s.Prefix], now)
	at := 0
	for i, m := range shown {
		if condensed[m.Key()] {
			at = i + 1
		}
	}
	for at < len(shown) && (shown[at].IsSummary() || !kept[shown[at].Key()]) {
		at++
	}
	return slices.Insert(slices.Clip(shown), at, marker)
}

// Before returns the last entry of the old transcript before a marker of this step; zero: there is none.
func (s *Step[T]) Before(v *Verdict[T]) (before T) {
	condensed, kept := keysOf(v.Condensed), s.listed()
	last := -1
	for i, m := range s.Shown {
		if condensed[m.Key()] {
			last = i
		}
	}
	for i, m := range s.Shown {
		if i > last && !m.IsSummary() && kept[m.Key()] {
			break
		}
		if _, removed := v.Removed[m.Key()]; !removed {
			before = m
		}
	}
	return before
}

func keysOf[T Message](lists ...[]T) map[int64]bool {
	keys := map[int64]bool{}
	for _, list := range lists {
		for _, m := range list {
			keys[m.Key()] = true
		}
	}
	return keys
}

// insertNew puts each new message after the furthest of its predecessors in the list, or at the end if no known message follows it
// there: condensed messages come before new ones.
func (s *Step[T]) insertNew(shown, now []T) []T {
	isNew := func(i int) bool { return s.Next[i].isNew() && !now[i].IsSummary() }
	last := len(s.Next) // messages from here on are new
	for last > 0 && isNew(last-1) {
		last--
	}
	between := false
	for i := range last {
		between = between || isNew(i)
	}
	if between {
		shown = s.insertBetween(shown, now[:last], isNew)
	}
	return append(slices.Clip(shown), now[last:]...)
}

func (s *Step[T]) insertBetween(shown, now []T, isNew func(int) bool) []T {
	where := make(map[int64]int, len(shown))
	for i, m := range shown {
		where[m.Key()] = i
	}
	furthest := -1
	reach := func(m T) {
		if i, ok := where[m.Key()]; ok {
			furthest = max(furthest, i)
		}
	}
	for _, m := range s.List[:s.Prefix] {
		reach(m)
	}
	after := map[int][]T{}
	for i, m := range now {
		if isNew(i) {
			after[furthest] = append(after[furthest], m)
		} else {
			reach(m)
		}
	}
	out := append(make([]T, 0, len(shown)+len(now)), after[-1]...)
	for i, m := range shown {
		out = append(append(out, m), after[i]...)
	}
	return out
}
