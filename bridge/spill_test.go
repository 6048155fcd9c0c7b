package bridge

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
)

// Every field of a record comes back from disk, also those that are added later; Frame follows from the others.
func TestSpilledRecordsAreWhole(t *testing.T) {
	t.Parallel()
	full := &Record{}
	v := reflect.ValueOf(full).Elem()
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() { //nolint:exhaustive // the default fails
		case reflect.String:
			v.SetString("text \x00\r\n\u2028")
		case reflect.Int64, reflect.Int:
			v.SetInt(-1 << 40)
		case reflect.Uint8:
			v.SetUint(uint64(Terminal))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			v.SetBytes([]byte("{}\n"))
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		default:
			t.Fatal(v.Kind())
		}
	}
	fill(v)
	full.Frame = nil
	empty := &Record{Data: []byte{}}
	var b []byte
	all := []*Record{full, {}, empty, full}
	for _, r := range all {
		b = appendRecord(b, r)
	}
	whole := b
	for _, want := range all {
		got, rest, err := readRecord(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
		b = rest
	}
	require.Empty(t, b)
	for n := range len(appendRecord(nil, full)) { // what is cut is noticed
		_, _, err := readRecord(whole[:n:n])
		require.Error(t, err)
	}
}

// A spill finds each record, over many files, and frees the disk space of records that were read.
func TestSpill(t *testing.T) {
	t.Parallel()
	dir, rnd := t.TempDir(), rand.New(rand.NewPCG(1, 1))
	var total atomic.Int64
	log := &spill{}
	var all []*Record
	var bytes int64
	for len(all) < 3000 {
		var batch []*Record
		first, before := int64(len(all)), bytes
		for range 1 + rnd.IntN(50) {
			r := &Record{Run: "r", Event: fmt.Sprint(len(all)), Data: make([]byte, rnd.IntN(20_000))}
			if rnd.IntN(500) == 0 {
				r.Data = make([]byte, 9<<20)
			}
			batch, all = append(batch, r), append(all, r)
			bytes += size(r)
		}
		_, _, err := log.write(dir, &total, batch, first, before) // given up: the next takes its place
		require.NoError(t, err)
		s, blocks, err := log.write(dir, &total, batch, first, before)
		require.NoError(t, err)
		log.add(s, blocks)
	}
	require.Greater(t, len(log.segments), 1)
	require.Equal(t, log.bytes(), total.Load())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "nothing is left when the process dies")
	for at := int64(0); at < int64(len(all)); {
		s, b := log.find(at)
		records, err := s.read(b)
		require.NoError(t, err)
		require.Equal(t, all[at].Event, records[at-b.first].Event)
		require.Equal(t, len(all[at].Data), len(records[at-b.first].Data))
		require.Equal(t, bytesUpTo(all, b.end), b.endBytes)
		if rnd.IntN(2) == 0 {
			at = b.end
		} else {
			at += 1 + rnd.Int64N(b.end-at)
		}
		log.release(at)
	}
	require.Len(t, log.segments, 1)
	require.Equal(t, log.bytes(), total.Load())
	log.close()
	require.Zero(t, total.Load())
}

func bytesUpTo(all []*Record, end int64) (n int64) {
	for _, r := range slices.Clip(all[:end]) {
		n += size(r)
	}
	return n
}

// Held is what the topic of a thread has in memory and on disk for readers that lag.
func Held(m *Memory, t id.Thread) (memory, disk int64) {
	p := m.locked(t)
	defer p.mu.Unlock()
	if p.spilled != nil {
		disk = p.spilled.bytes()
	}
	return p.liveBytes, disk
}
