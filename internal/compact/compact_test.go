package compact_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"understudy/internal/compact"
)

// memory keeps parts in memory.
type memory struct {
	known map[compact.Digest]uint32
	parts [][]byte // by number - 1
	bytes int
}

func (m *memory) Keep(d compact.Digest, part []byte) (uint32, error) {
	if n, ok := m.known[d]; ok {
		return n, nil
	}
	if m.known == nil {
		m.known = map[compact.Digest]uint32{}
	}
	m.parts = append(m.parts, bytes.Clone(part))
	m.known[d] = uint32(len(m.parts))
	m.bytes += len(part)
	return uint32(len(m.parts)), nil
}

func (m *memory) part(n uint32) []byte {
	if n < 1 || int(n) > len(m.parts) {
		return nil
	}
	return m.parts[n-1]
}

func (m *memory) restore(value []byte) ([][]byte, error) {
	v, err := compact.Parse(value)
	if err != nil {
		return nil, err
	}
	var runs []compact.Run
	for _, r := range v.Chunks {
		for n := r.First; n-r.First < r.Count; n++ {
			data := m.part(n)
			if data == nil {
				return nil, fmt.Errorf("chunk %d is missing", n)
			}
			more, err := compact.ParseChunk(data)
			if err != nil {
				return nil, err
			}
			runs = append(runs, more...)
		}
	}
	return v.Restore(append(runs, v.Parts...), m.part)
}

// array packs items as ormsgpack does.
func array(items ...[]byte) []byte { return join(items) }

func text(n, size int) []byte {
	return msgp.AppendString(nil, fmt.Sprintf("%d %s", n, strings.Repeat("x", size)))
}

func texts(from, to, size int) (items [][]byte) {
	for n := from; n < to; n++ {
		items = append(items, text(n, size))
	}
	return items
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		items [][]byte
	}{
		{"messages", texts(0, 400, 700)},
		{"more than an array of 16 bits", texts(0, 70_000, 20)},
		{"small items", texts(0, 1000, 10)},
		{"one large", texts(0, 1, 5000)},
		{"small among large", append(append(texts(0, 3, 1), texts(3, 5, 2000)...), texts(5, 9, 3)...)},
		{"the same again", append(texts(0, 50, 300), texts(0, 50, 300)...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := array(tt.items...)
			m := &memory{}
			value, ok, err := compact.Encode(data, m, nil)
			require.NoError(t, err)
			if len(data) < compact.LeastSize {
				require.False(t, ok)
				return
			}
			require.True(t, ok)
			items, err := m.restore(value)
			require.NoError(t, err)
			require.Equal(t, tt.items, items)
			require.Equal(t, data, join(items))
		})
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	long := texts(0, 10, 1000)
	body := bytes.Join(long, nil)
	for name, data := range map[string][]byte{
		"small":               array(texts(0, 2, 50)...),
		"no array":            text(0, 5000),
		"longer header":       append([]byte{0xdc, 0, 10}, body...),
		"longest header":      append([]byte{0xdd, 0, 0, 0, 10}, body...),
		"cut off":             array(long...)[:9000],
		"bytes after the end": append(array(long...), 0xc0),
		"reserved byte":       array(append(long, []byte{0xc1})...),
		"empty":               {},
	} {
		m := &memory{}
		_, ok, err := compact.Encode(data, m, nil)
		require.NoError(t, err, name)
		require.False(t, ok, name)
		require.Empty(t, m.parts, name)
	}
}

// A growing list stores its new items and refers to the rest in a few bytes, also while other lists grow.
func TestGrowth(t *testing.T) {
	t.Parallel()
	const steps = 400
	for _, lists := range []int{1, 3} {
		m, last := &memory{}, make([]compact.Last, lists)
		values := 0
		for step := 1; step <= steps; step++ {
			for l := range lists {
				value, ok, err := compact.Encode(array(texts(l*10_000, l*10_000+step+20, 150)...), m, &last[l])
				require.NoError(t, err)
				require.True(t, ok)
				values += len(value)
			}
		}
		require.Less(t, values/(steps*lists), 300, "bytes of a value")
		require.Less(t, len(m.parts), lists*(steps+20)*3/2)
		require.Less(t, m.bytes, lists*(steps+20)*160+50_000)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	var s, other compact.Set
	s.Add([]compact.Run{{First: 1, Count: 63}, {First: 64, Count: 1}, {First: 100, Count: 200}, {First: 127, Count: 2}})
	require.Equal(t, []compact.Run{{First: 1, Count: 64}, {First: 100, Count: 200}}, s.Runs())
	other.Add([]compact.Run{{First: 10, Count: 5}, {First: 128, Count: 64}, {First: 1000, Count: 1}})
	s.Remove(other)
	require.Equal(t, []compact.Run{{First: 1, Count: 9}, {First: 15, Count: 50}, {First: 100, Count: 28}, {First: 192, Count: 108}}, s.Runs())
	require.True(t, s.Has(127))
	require.False(t, s.Has(128))
	require.False(t, s.Has(1<<20))
}

// Cutting up and joining is the identity, whatever the value.
func FuzzJoin(f *testing.F) {
	f.Add(array(texts(0, 40, 100)...))
	f.Add(array(texts(0, 300, 5)...))
	f.Add(append([]byte{0xdc, 0, 3}, bytes.Join(texts(0, 3, 1000), nil)...))
	f.Add(array(append(texts(0, 4, 300), texts(0, 4, 300)...)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &memory{}
		for range 2 { // again: everything is known now
			value, ok, err := compact.Encode(data, m, nil)
			require.NoError(t, err)
			if !ok {
				require.Empty(t, m.parts)
				return
			}
			items, err := m.restore(value)
			require.NoError(t, err)
			require.Equal(t, data, join(items))
		}
	})
}

// What is remembered of other values changes nothing.
func FuzzLast(f *testing.F) {
	f.Add(uint8(40), uint8(41), uint8(20), uint8(150))
	f.Add(uint8(200), uint8(10), uint8(201), uint8(30))
	f.Fuzz(func(t *testing.T, a, b, c, size uint8) {
		var last compact.Last
		m := &memory{}
		for _, items := range [][][]byte{
			texts(0, int(a), int(size)), texts(0, int(b), int(size)), texts(int(c), int(a), int(size)), texts(int(c)/2, int(b), int(size)),
			texts(0, int(c), 200), append(texts(0, int(b), int(size)), texts(0, int(c), 3)...), texts(0, int(a), int(size)),
		} {
			data := array(items...)
			value, ok, err := compact.Encode(data, m, &last)
			require.NoError(t, err)
			if !ok {
				continue
			}
			got, err := m.restore(value)
			require.NoError(t, err)
			require.Equal(t, data, join(got))
			again, _, err := compact.Encode(data, m, nil)
			require.NoError(t, err)
			require.Equal(t, again, value)
		}
	})
}

// Arbitrary bytes result in errors, never in a panic or in memory beyond the data.
func FuzzParse(f *testing.F) {
	m := &memory{}
	for _, items := range [][][]byte{texts(0, 400, 200), texts(0, 300, 5), texts(100, 140, 90)} {
		value, ok, err := compact.Encode(array(items...), m, nil)
		require.NoError(f, err)
		require.True(f, ok)
		f.Add(value)
	}
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0, 1, 2, 0xff, 0xff, 3})
	f.Fuzz(func(t *testing.T, value []byte) {
		items, err := m.restore(value)
		if err == nil {
			v, err := compact.Parse(value)
			require.NoError(t, err)
			require.Len(t, join(items), v.Size)
		}
		_, _ = compact.ParseChunk(value)
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{100, 400, 1000} {
		b.Run(fmt.Sprintf("%d messages", n), func(b *testing.B) {
			data := array(texts(0, n, 700)...)
			for name, last := range map[string]*compact.Last{"alike": {}, "digests": nil} {
				b.Run(name, func(b *testing.B) {
					m := &memory{}
					b.SetBytes(int64(len(data)))
					b.ReportAllocs()
					for b.Loop() {
						if _, ok, err := compact.Encode(data, m, last); !ok || err != nil {
							b.Fatal(ok, err)
						}
					}
				})
			}
		})
	}
}

// join returns a list of items as the msgpack array they were cut from.
func join(items [][]byte) []byte {
	dst := msgp.AppendArrayHeader(nil, uint32(len(items)))
	for _, item := range items {
		dst = append(dst, item...)
	}
	return dst
}
