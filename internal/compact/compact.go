package compact

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"

	"understudy/internal/jsonplus"
)

const (
	// LeastSize is the size from which on a list is cut up. Below it a value takes no more than the row of the checkpoint it
	// belongs to, so that a thread grows with its length all the same, and short threads need no further rows.
	LeastSize = 1024
	// leastPart is the size above which an item has a part of its own. A row costs about 30 bytes in addition to its data.
	leastPart = 128
	// chunkParts is how many parts a chunk names.
	chunkParts = 128
	// leastChunked is how many bytes of ranges a value may hold before chunks are made of them.
	leastChunked = 256
	// MaxParts bounds how many parts a value has. Values of that many parts would be larger than what databases hold.
	MaxParts = 1 << 24
)

// chunkMark begins the bytes over which the digest of a chunk is made. No msgpack value begins with it: a chunk and an item
// never have the same digest, whatever an item holds.
const chunkMark = 0xc1

// Digest names a part among those of its owner: half a SHA-256. Owners share nothing, so a collision, which takes 2^64
// attempts, damages only the attacker's own thread.
type Digest [16]byte

// DigestOf returns the digest of one or more items.
func DigestOf(items []byte) Digest {
	sum := sha256.Sum256(items)
	return Digest(sum[:16])
}

func digestOfChunk(chunk []byte) Digest {
	return DigestOf(append([]byte{chunkMark}, chunk...))
}

// Keeper stores the parts of one owner. Keep returns the number of the part with that digest. A part that was not stored
// before gets the next number. Numbers begin with 1.
//
// It would also allow workers to send digests only: if a worker learned before the commit which parts of a list are missing,
// it could send just those.
type Keeper interface {
	Keep(d Digest, part []byte) (number uint32, err error)
}

// Last remembers the parts of a value, for the next one that begins with the same. They are found by comparing, which is ten times as
// fast as making digests, and most steps of a thread only add to the end of a list. The zero value is ready for use. It must be
// forgotten with the parts it names.
type Last struct {
	items   []byte
	ends    []int // of the parts in items
	numbers []uint32
}

// Size is how many bytes are remembered.
func (l *Last) Size() int { return cap(l.items) + 12*cap(l.ends) }

// find returns the numbers of the parts that come first in the value before as well.
func (l *Last) find(parts [][]byte) []uint32 {
	at := 0
	for i, part := range parts {
		if i == len(l.ends) || !bytes.Equal(part, l.items[at:l.ends[i]]) {
			return l.numbers[:i]
		}
		at = l.ends[i]
	}
	return l.numbers[:len(parts)]
}

// remember stores a value whose first parts are known to be equal, and copies the others. A value without common parts replaces the
// last one only if it is larger: a thread may have other lists in addition to the growing one.
func (l *Last) remember(parts [][]byte, numbers []uint32, same int) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if same == 0 && size < len(l.items) {
		return
	}
	at := 0
	if same > 0 {
		at = l.ends[same-1]
	}
	l.items, l.ends = l.items[:at], l.ends[:same]
	for _, part := range parts[same:] {
		l.items = append(l.items, part...)
		l.ends = append(l.ends, len(l.items))
	}
	l.numbers = append(l.numbers[:same], numbers[same:]...)
}

// Encode stores a msgpack value. ok is false when it must be stored unchanged, because it is not an array, is too small, or has
// a header that Join would not restore. No part was stored then. After an error some parts may have been. last may be nil.
func Encode(data []byte, k Keeper, last *Last) (value []byte, ok bool, err error) {
	parts, tail, items, ok := split(data)
	if !ok {
		return nil, false, nil
	}
	numbers, same := make([]uint32, len(parts)), 0
	if last != nil {
		same = copy(numbers, last.find(parts))
	}
	for i := same; i < len(parts); i++ {
		if numbers[i], err = k.Keep(DigestOf(parts[i]), parts[i]); err != nil {
			return nil, false, err
		}
	}
	if last != nil {
		last.remember(parts, numbers, same)
	}
	value = append(value, format)
	value = binary.AppendUvarint(value, uint64(items))
	value = binary.AppendUvarint(value, uint64(len(data)))
	whole := appendRuns(nil, runsOf(numbers))
	if len(whole) <= leastChunked {
		value = append(appendRuns(value, nil), whole...)
		return append(value, tail...), true, nil
	}
	var chunks []uint32
	for ; len(numbers) >= chunkParts; numbers = numbers[chunkParts:] {
		chunk := appendRuns(nil, runsOf(numbers[:chunkParts]))
		n, err := k.Keep(digestOfChunk(chunk), chunk)
		if err != nil {
			return nil, false, err
		}
		chunks = append(chunks, n)
	}
	value = appendRuns(value, runsOf(chunks))
	value = appendRuns(value, runsOf(numbers))
	return append(value, tail...), true, nil
}

// split cuts a value into parts, and what is left at its end and too small for one.
func split(data []byte) (parts [][]byte, tail []byte, items int, ok bool) {
	if len(data) < LeastSize {
		return nil, nil, 0, false
	}
	all, err := jsonplus.SplitArray(data)
	if err != nil || len(all) == 0 {
		return nil, nil, 0, false
	}
	at := len(data)
	for _, item := range all {
		at -= len(item)
	}
	if !bytes.Equal(data[:at], appendHeader(nil, len(all))) {
		return nil, nil, 0, false
	}
	start := at
	for _, item := range all {
		if start < at && len(item) >= leastPart { // a large item is found again wherever it stands
			parts = append(parts, data[start:at])
			start = at
		}
		at += len(item)
		if at-start >= leastPart {
			parts = append(parts, data[start:at])
			start = at
		}
	}
	return parts, data[start:], len(all), len(parts) <= MaxParts
}

func appendHeader(dst []byte, items int) []byte { return msgp.AppendArrayHeader(dst, uint32(items)) }

// Join appends a list of items as the msgpack array they were cut from.
func Join(dst []byte, items [][]byte) []byte {
	dst = appendHeader(dst, len(items))
	for _, item := range items {
		dst = append(dst, item...)
	}
	return dst
}
