package pregel

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// lastTime is the time of the newest checkpoint id, in ticks of 100 ns since 1582: ids of a process always grow.
var lastTime atomic.Int64

// gregorian is the number of ticks between the epochs of UUIDs and of Unix.
const gregorian = 0x01B21DD213814000

// newCheckpointID makes an id as LangGraph's uuid6: it sorts by time, and clock_seq is the step.
func newCheckpointID(step int) string {
	for {
		last := lastTime.Load()
		t := max(time.Now().UnixNano()/100+gregorian, last+1)
		if !lastTime.CompareAndSwap(last, t) {
			continue
		}
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], uint64(t)>>12<<16|uint64(t)&0xfff)
		b[6] = b[6]&0x0f | 0x60
		binary.BigEndian.PutUint16(b[8:], uint16(step)&0x3fff|0x8000)
		r := rand.Uint64()
		for i := range 6 {
			b[10+i] = byte(r >> (8 * i))
		}
		return uuidText(b)
	}
}

// idsAfter makes new ids greater than an id that another process may have made with another clock.
func idsAfter(checkpoint string) {
	b, err := hex.DecodeString(strings.ReplaceAll(checkpoint, "-", ""))
	if err != nil || len(b) != 16 || b[6]>>4 != 6 {
		return
	}
	n := binary.BigEndian.Uint64(b)
	t := int64(n>>16<<12 | n&0xfff)
	const highest = 1 << 59 // an invalid id must not exhaust the range
	for last := lastTime.Load(); last < t && t < highest && !lastTime.CompareAndSwap(last, t); last = lastTime.Load() {
	}
}

func uuidText(b [16]byte) string {
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	out[8] = '-'
	hex.Encode(out[9:13], b[4:6])
	out[13] = '-'
	hex.Encode(out[14:18], b[6:8])
	out[18] = '-'
	hex.Encode(out[19:23], b[8:10])
	out[23] = '-'
	hex.Encode(out[24:], b[10:])
	return string(out[:])
}

// idBytes returns the bytes of a checkpoint's id, which enter the ids of its tasks.
func idBytes(id string) []byte {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil {
		return []byte(id) // not an id of LangGraph: any unique bytes will do
	}
	return raw
}

// taskID derives the id of a task from its parts, as LangGraph does for checkpoints of version 2 and later.
func taskID(checkpoint []byte, old bool, parts ...string) string {
	n := len(checkpoint)
	for _, p := range parts {
		n += len(p)
	}
	b := append(make([]byte, 0, n), checkpoint...)
	for _, p := range parts {
		b = append(b, p...)
	}
	if old {
		sum := sha1.Sum(b)
		return uuidText([16]byte(sum[:16]))
	}
	return uuidText(xxh3.Hash128(b).Bytes())
}

// interruptID returns the id of the next interrupt of a task after this many answers.
func interruptID(ns string, answered int) string {
	if answered > 0 {
		ns += "|" + strconv.Itoa(answered)
	}
	sum := xxh3.HashString128(ns).Bytes()
	return hex.EncodeToString(sum[:])
}

// isInterruptID reports whether a key of a resume value looks like the id of an interrupt.
func isInterruptID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// taskPath names a task within its step.
type taskPath struct {
	kind   string // pull or push
	node   string // pull
	index  int    // push: of the Send, or of the call
	parent *taskPath
}

// text returns the path in its stored form, by which tasks are sorted.
func (p taskPath) text() string {
	switch {
	case p.kind == pull:
		return "~" + pull + ", " + p.node
	case p.parent != nil:
		return "~" + push + ", " + p.parent.text() + ", " + padded(p.index) + ", " + padded(1)
	}
	return "~" + push + ", " + padded(p.index) + ", " + padded(0)
}

func padded(n int) string {
	s := strconv.Itoa(n)
	if len(s) >= 10 {
		return s
	}
	return "0000000000"[len(s):] + s
}

func (p taskPath) appendJSON(b []byte) []byte {
	switch {
	case p.kind == pull:
		b = append(b, `["`+pull+`",`...)
		return append(appendQuoted(b, p.node), ']')
	case p.parent != nil:
		b = append(b, `["`+push+`",`...)
		b = append(p.parent.appendJSON(b), ',')
		return append(strconv.AppendInt(b, int64(p.index), 10), ",true]"...)
	}
	b = append(b, `["`+push+`",`...)
	return append(strconv.AppendInt(b, int64(p.index), 10), ",false]"...)
}

// nextVersion returns a channel version above the highest so far: a number of 32 digits and a random part.
func nextVersion(highest string) string {
	const zeros = "00000000000000000000000000000000"
	var digits [20]byte
	n := strconv.AppendUint(digits[:0], uint64(versionNumber(highest))+1, 10)
	b := append(append(make([]byte, 0, 56), zeros[len(n):]...), n...)
	b = append(b, '.')
	var random [24]byte
	r := strconv.AppendFloat(random[:0], rand.Float64(), 'g', -1, 64)
	if len(r) < 16 {
		b = append(b, zeros[:16-len(r)]...)
	}
	return string(append(b, r...))
}

// versionNumber is the count in a version.
func versionNumber(v string) int64 {
	whole, _, _ := strings.Cut(v, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// newer reports whether version a is higher than b; "" is lower than all.
func newer(a, b string) bool {
	if len(a) >= 33 && len(b) >= 33 || a == "" || b == "" {
		return a > b
	}
	if x, y := versionNumber(a), versionNumber(b); x != y {
		return x > y
	}
	return a > b
}

// plainVersion reports whether a version is a plain number, as some savers write it.
func plainVersion(v string) bool { return len(v) < 33 && !strings.Contains(v, ".") }
