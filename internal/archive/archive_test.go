package archive

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func zipped(t *testing.T, name string, files int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for n := range files {
		f, err := w.Create(strconv.Itoa(n) + name)
		require.NoError(t, err)
		_, err = io.WriteString(f, "text")
		require.NoError(t, err)
	}
	require.NoError(t, w.SetComment(strings.Repeat("c", 0xffff)))
	require.NoError(t, w.Close())
	return b.Bytes()
}

// An archive opens with as many files as are allowed, and not with one more, also when their names are long.
func TestFiles(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 508) // with a number, 512
	for _, n := range []int{0, 1, 100, 5000} {
		b := zipped(t, name, n)
		z, err := Open(bytes.NewReader(b), int64(len(b)), n)
		require.NoError(t, err, n)
		require.Len(t, z.File, n)
		for _, f := range z.File {
			r, err := f.Open()
			require.NoError(t, err)
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, "text", string(text))
		}
		if n > 0 {
			_, err = Open(bytes.NewReader(b), int64(len(b)), n-1)
			require.ErrorIs(t, err, ErrTooMany)
		}
	}
	for _, b := range []string{"", "PK", "no archive", strings.Repeat("x", 1<<20)} {
		_, err := Open(strings.NewReader(b), int64(len(b)), 10)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// The memory that a table takes does not grow with the archive: twice the entries need no more, whatever count their end claims.
func TestTableOfMillions(t *testing.T) { // measures what all goroutines allocate, so nothing else may run
	const limit = 5000
	entry := make([]byte, 47)
	copy(entry, "PK\x01\x02")
	binary.LittleEndian.PutUint16(entry[28:], 1)
	entry[46] = 'x'
	cost := func(n int, claimed uint16) uint64 {
		b := bytes.Repeat(entry, n)
		end := append([]byte("PK\x05\x06"), make([]byte, 18)...)
		binary.LittleEndian.PutUint16(end[8:], claimed)
		binary.LittleEndian.PutUint16(end[10:], claimed)
		binary.LittleEndian.PutUint32(end[12:], uint32(len(b)))
		b = append(b, end...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(bytes.NewReader(b), int64(len(b)), limit)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrTooMany)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, claimed := range []uint16{1, 0xfffe} {
		small, large := cost(200_000, claimed), cost(400_000, claimed)
		require.Less(t, large, uint64(64<<20))
		require.InDelta(t, small, large, float64(8<<20))
	}
}

// What is encrypted is refused, since it would be unpacked as it is.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	b := zipped(t, "a", 3)
	at := bytes.LastIndex(b, []byte("PK\x01\x02"))
	b[at+8] |= 1
	_, err := Open(bytes.NewReader(b), int64(len(b)), 3)
	require.ErrorIs(t, err, ErrEncrypted)
}
