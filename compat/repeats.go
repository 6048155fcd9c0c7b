package compat

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"

	"understudy/internal/jsonscan"
)

// Keys that an object has twice would be read differently by different parsers: by Python, JavaScript and databases the last one counts, by others
// the first. Bodies are therefore rewritten at the edge, as Python reads them: the last value, in the place of the first.

var keySeed = maphash.MakeSeed()

// keyHash hashes a quoted key by what it stands for.
func keyHash(quoted []byte) uint64 {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		return maphash.String(keySeed, text(quoted))
	}
	return maphash.Bytes(keySeed, quoted[1:len(quoted)-1])
}

// fewKeys is how many keys are compared one by one.
const fewKeys = 16

// repeats reports whether an object in compact, valid JSON has a key twice. It takes linear time, except for sorting, and 8 bytes per key.
func repeats(b []byte) bool {
	var open []int    // number of keys before each array and object that is open; -1: an array
	var keys []uint64 // of the objects that are open
	atKey := false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			open, atKey = append(open, len(keys)), true
		case '[':
			open, atKey = append(open, -1), false
		case '}', ']':
			from := open[len(open)-1]
			if open = open[:len(open)-1]; from < 0 {
				continue
			}
			own := keys[from:]
			if len(own) > fewKeys {
				slices.Sort(own)
				if len(slices.Compact(own)) < len(own) {
					return true
				}
			}
			keys, atKey = keys[:from], false
		case ',':
			atKey = open[len(open)-1] >= 0
		case '"':
			end := jsonscan.Skip(b, i)
			if atKey {
				atKey = false
				h := keyHash(b[i:end])
				if own := keys[open[len(open)-1]:]; len(own) < fewKeys && slices.Contains(own, h) {
					return true
				}
				keys = append(keys, h)
			}
			i = end - 1
		}
	}
	return false
}

// place is a member of an object: key and value at b[key:end], the value from value on.
type place struct {
	hash            uint64
	key, value, end int
}

// edit leaves out b[start:end], or puts b[from:to] in its place.
type edit struct{ start, end, from, to int }

// unrepeated returns compact, valid JSON with the last of equal keys, in the place of the first.
func unrepeated(b []byte) []byte {
	if !repeats(b) {
		return b
	}
	var open []int
	var members []place
	var edits []edit
	atKey := false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			open, atKey = append(open, len(members)), true
		case '[':
			open, atKey = append(open, -1), false
		case '}', ']', ',':
			from := open[len(open)-1]
			if from >= 0 && len(members) > from {
				members[len(members)-1].end = i
			}
			if b[i] == ',' {
				atKey = from >= 0
				continue
			}
			if open = open[:len(open)-1]; from >= 0 {
				edits = edited(edits, members[from:])
				members, atKey = members[:from], false
			}
		case '"':
			end := jsonscan.Skip(b, i)
			if atKey {
				atKey = false
				members = append(members, place{keyHash(b[i:end]), i, end + 1, 0})
			}
			i = end - 1
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	return apply(make([]byte, 0, len(b)), b, edits, 0, len(b))
}

// edited adds the edits of an object, whose members it sorts.
func edited(edits []edit, members []place) []edit {
	slices.SortFunc(members, func(a, b place) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.key, b.key)) })
	for n := 0; n < len(members); {
		first := members[n]
		last := first
		for n++; n < len(members) && members[n].hash == first.hash; n++ {
			last = members[n]
			edits = append(edits, edit{start: last.key - 1, end: last.end}) // with the comma before it
		}
		if last.key != first.key {
			edits = append(edits, edit{first.value, first.end, last.value, last.end})
		}
	}
	return edits
}

// apply appends b[from:to] with its edits. An edit within what another one replaces is none.
func apply(dst, b []byte, edits []edit, from, to int) []byte {
	n, _ := slices.BinarySearchFunc(edits, from, func(e edit, at int) int { return cmp.Compare(e.start, at) })
	for ; n < len(edits) && edits[n].start < to; n++ {
		e := edits[n]
		if e.start < from {
			continue
		}
		dst = apply(append(dst, b[from:e.start]...), b, edits, e.from, e.to)
		from = e.end
	}
	return append(dst, b[from:to]...)
}
