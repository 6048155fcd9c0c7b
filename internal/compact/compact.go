package compact

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"

	"understudy/internal/jsonplus"
)

const (
	// LeastSize is the size above which a list is cut into parts. A smaller value takes no more than the row of its
	// checkpoint, so that a thread still grows with its length, and short threads need no further rows.
	LeastSize = 1024
	// leastPart is the size above which an item has a part of its own. A row costs about 30 bytes in addition to its data.
	leastPart = 128
	// chunkParts is the number of parts in a chunk.
	chunkParts = 128
	// leastChunked is the size of a value's ranges, in bytes, above which they are put into chunks.
	leastChunked = 256
	// MaxParts is the maximum number of parts of a value. A larger value would exceed the limits of databases.
	MaxParts = 1 << 24
)

// chunkMark is the first byte of the input of a chunk's digest. No msgpack value begins with it, so that a chunk and an
// item never have the same digest.
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

// Last caches the parts of a value for the next one that begins with the same parts. They are found by comparing, which is ten times
// as fast as computing digests, and most steps of a thread only append to a list. The zero value is ready to use. Drop it when its
// parts are deleted.
type Last struct {
	items   []byte
	ends    []int // of the parts in items
	numbers []uint32
}

// Size returns the number of cached bytes.
func (l *Last) Size() int { return cap(l.items) + 12*cap(l.ends) }

// find returns the numbers of the leading parts that the previous value has too.
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

// split cuts a value into parts, and a tail that is too small for one.
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
		if start < at && len(item) >= leastPart { // a large item is found again at any position
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
