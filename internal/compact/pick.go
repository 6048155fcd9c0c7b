package compact

import (
	"fmt"

	"understudy/internal/jsonplus"
)

// Pick returns items of a value by their positions, without those that it does not have. runs are as for Restore; fetch is called with the parts that are needed,
// once, and then part returns their data. A part has at least one item, so an item near an end of the list needs few of them.
func (v *Value) Pick(runs []Run, wanted []int, fetch func([]Run) error, part func(number uint32) []byte) (map[int][]byte, error) {
	tail, err := jsonplus.AppendItems(nil, v.Tail)
	if err != nil {
		return nil, fmt.Errorf("%w: tail: %w", ErrCorrupt, err)
	}
	parts := 0
	for _, r := range runs {
		parts += int(r.Count)
	}
	first, last := 0, 0 // how many parts are needed from each end
	for _, n := range wanted {
		switch behind := v.Items - n; { // items from this one on
		case n < 0 || behind <= 0:
		case n < behind:
			first = max(first, min(n+1, parts))
		default:
			last = max(last, min(behind-len(tail), parts))
		}
	}
	head, end := cut(runs, 0, first), cut(runs, parts-last, parts)
	if err := fetch(append(head, end...)); err != nil {
		return nil, err
	}
	before, err := itemsOf(head, part)
	if err != nil {
		return nil, err
	}
	if first == parts {
		before = append(before, tail...)
	}
	after, err := itemsOf(end, part)
	if err != nil {
		return nil, err
	}
	after = append(after, tail...)
	found := make(map[int][]byte, len(wanted))
	for _, n := range wanted {
		behind := v.Items - n
		switch {
		case n < 0 || behind <= 0:
		case n < behind && n < len(before):
			found[n] = before[n]
		case n >= behind && behind <= len(after):
			found[n] = after[len(after)-behind]
		default:
			return nil, fmt.Errorf("%w: item %d of %d is missing", ErrCorrupt, n, v.Items)
		}
	}
	return found, nil
}

// cut returns the parts from one to before another, by their places in runs.
func cut(runs []Run, from, to int) (out []Run) {
	at := 0
	for _, r := range runs {
		start, end := max(from, at), min(to, at+int(r.Count))
		if start < end {
			out = append(out, Run{First: r.First + uint32(start-at), Count: uint32(end - start)})
		}
		at += int(r.Count)
	}
	return out
}

func itemsOf(runs []Run, part func(number uint32) []byte) (items [][]byte, err error) {
	for _, r := range runs {
		for n := r.First; n-r.First < r.Count; n++ {
			data := part(n)
			if data == nil {
				return nil, fmt.Errorf("%w: part %d is missing", ErrMissing, n)
			}
			if items, err = jsonplus.AppendItems(items, data); err != nil {
				return nil, fmt.Errorf("%w: part %d: %w", ErrCorrupt, n, err)
			}
		}
	}
	return items, nil
}
