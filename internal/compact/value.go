package compact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"understudy/internal/jsonplus"
)

// format begins every value. Other formats are from newer versions.
const format = 1

// ErrCorrupt: bytes or parts of a value are not those that were stored.
var ErrCorrupt = errors.New("compact: corrupt value")

// ErrMissing is the ErrCorrupt of a value of which parts are not there any more.
var ErrMissing = fmt.Errorf("%w", ErrCorrupt)

// Run is a range of numbers.
type Run struct{ First, Count uint32 }

// Value is a stored list, with its parts by number.
type Value struct {
	Items  int    // number of items in the array
	Size   int    // bytes of the array, header included
	Chunks []Run  // parts that list parts; these come first
	Parts  []Run  // the following parts
	Tail   []byte // items at the end
}

// Parse reads a stored value. It is safe on any bytes, and its result is never larger than MaxParts allows.
func Parse(value []byte) (v Value, err error) {
	if len(value) == 0 || value[0] != format {
		return v, fmt.Errorf("%w: unknown format", ErrCorrupt)
	}
	items, b, ok := uvarint(value[1:])
	size, b, ok2 := uvarint(b)
	if !ok || !ok2 || items > size || size > 1<<40 {
		return v, ErrCorrupt
	}
	v.Items, v.Size = int(items), int(size)
	if v.Chunks, b, err = parseRuns(b); err != nil {
		return v, err
	}
	v.Parts, v.Tail, err = parseRuns(b)
	return v, err
}

// ParseChunk reads the data of a part that is a chunk.
func ParseChunk(data []byte) ([]Run, error) {
	runs, rest, err := parseRuns(data)
	if err == nil && len(rest) > 0 {
		err = ErrCorrupt
	}
	return runs, err
}

// Restore returns the items of a value. part returns the data of a part, nil when there is none; runs are those of its chunks
// and then its own. The items share memory with the results of part and with the tail.
func (v *Value) Restore(runs []Run, part func(number uint32) []byte) (items [][]byte, err error) {
	items = make([][]byte, 0, min(v.Items, 1<<16)) // a corrupt count must not reserve memory
	size := 0
	for _, r := range runs {
		for n := r.First; n-r.First < r.Count; n++ {
			data := part(n)
			if data == nil {
				return nil, fmt.Errorf("%w: part %d is missing", ErrMissing, n)
			}
			if size += len(data); size > v.Size {
				return nil, ErrCorrupt
			}
			if items, err = jsonplus.AppendItems(items, data); err != nil {
				return nil, fmt.Errorf("%w: part %d: %w", ErrCorrupt, n, err)
			}
		}
	}
	if items, err = jsonplus.AppendItems(items, v.Tail); err != nil {
		return nil, fmt.Errorf("%w: tail: %w", ErrCorrupt, err)
	}
	if len(items) != v.Items || len(appendHeader(nil, len(items)))+size+len(v.Tail) != v.Size {
		return nil, fmt.Errorf("%w: %d items of %d", ErrCorrupt, len(items), v.Items)
	}
	return items, nil
}

// runsOf returns numbers as ranges, in order.
func runsOf(numbers []uint32) (runs []Run) {
	for _, n := range numbers {
		if last := len(runs) - 1; last >= 0 && runs[last].First+runs[last].Count == n {
			runs[last].Count++
		} else {
			runs = append(runs, Run{n, 1})
		}
	}
	return runs
}

// appendRuns appends the number of ranges, and for each its distance from the end of the previous one, and its length.
func appendRuns(dst []byte, runs []Run) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(runs)))
	end := int64(0)
	for _, r := range runs {
		dst = binary.AppendVarint(dst, int64(r.First)-end)
		dst = binary.AppendUvarint(dst, uint64(r.Count))
		end = int64(r.First) + int64(r.Count)
	}
	return dst
}

func parseRuns(b []byte) (runs []Run, rest []byte, err error) {
	n, b, ok := uvarint(b)
	if !ok || n > uint64(len(b)/2) {
		return nil, nil, ErrCorrupt
	}
	if n > 0 {
		runs = make([]Run, 0, n)
	}
	end, total := int64(0), uint64(0)
	for range n {
		gap, used := binary.Varint(b)
		if used <= 0 || gap > 1<<32 || gap < -1<<32 {
			return nil, nil, ErrCorrupt
		}
		count, after, ok := uvarint(b[used:])
		first := end + gap
		if !ok || count == 0 || count > MaxParts || first < 1 || first+int64(count) > 1<<31 {
			return nil, nil, ErrCorrupt
		}
		if total += count; total > MaxParts {
			return nil, nil, ErrCorrupt
		}
		b, end = after, first+int64(count)
		runs = append(runs, Run{uint32(first), uint32(count)})
	}
	return runs, b, nil
}

func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, used := binary.Uvarint(b)
	if used <= 0 {
		return 0, nil, false
	}
	return v, b[used:], true
}

// Set is a set of part numbers. The zero value is empty.
type Set []uint64

// Add adds ranges.
func (s *Set) Add(runs []Run) {
	for _, r := range runs {
		last := r.First + r.Count - 1
		if need := int(last/64) + 1; need > len(*s) {
			*s = append(*s, make([]uint64, need-len(*s))...)
		}
		for word := r.First / 64; word <= last/64; word++ {
			mask := ^uint64(0)
			if word == r.First/64 {
				mask &= ^uint64(0) << (r.First % 64)
			}
			if word == last/64 {
				mask &= ^uint64(0) >> (63 - last%64)
			}
			(*s)[word] |= mask
		}
	}
}

// Remove removes what another set has.
func (s Set) Remove(other Set) {
	for i := range s[:min(len(s), len(other))] {
		s[i] &^= other[i]
	}
}

// Has reports whether a number is in the set.
func (s Set) Has(n uint32) bool { return int(n/64) < len(s) && s[n/64]>>(n%64)&1 == 1 }

// Runs returns the set as ranges, smallest numbers first.
func (s Set) Runs() []Run {
	var numbers []uint32
	for word, bits := range s {
		for n := uint32(word * 64); bits != 0; bits, n = bits>>1, n+1 {
			if bits&1 == 1 {
				numbers = append(numbers, n)
			}
		}
	}
	return slices.Clip(runsOf(numbers))
}
