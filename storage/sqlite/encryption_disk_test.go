//go:build linux

package sqlite

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/fault"
	"understudy/storage/internal/seal"
)

// On a disk with little room the key changes as far as there is room. The error says how much is needed and where; nothing is lost, and the same command completes it
// once there is room.
func TestRotatingOnAFullDisk(t *testing.T) {
	t.Parallel()
	one, two := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	dir := ownDisk(t, "size=24m")
	s, err := Open(t.Context(), Options{Dir: dir, Keys: [][]byte{one}})
	require.NoError(t, err)
	for i := range 60 {
		require.NoError(t, fullThread(t.Context(), s, id.Thread(fmt.Sprint("thread ", i)), 64<<10))
	}
	require.NoError(t, s.Close())
	filler := filepath.Join(dir, "filler")
	// leave fills the disk until so many bytes are free.
	leave := func(bytes int64) {
		t.Helper()
		require.NoError(t, os.RemoveAll(filler))
		free, _, known := freeBytes(dir)
		require.True(t, known)
		require.NoError(t, os.WriteFile(filler, make([]byte, free-bytes), 0o600))
	}
	rotate := func() (int, error) { return Encrypt(t.Context(), Options{Dir: dir, Keys: [][]byte{two, one}}) }
	whole := func() {
		t.Helper()
		s, err := Open(t.Context(), Options{Dir: dir, Keys: [][]byte{two, one}})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		for i := range 60 {
			events, err := s.Events(t.Context(), id.Thread(fmt.Sprint("thread ", i)), 0, 10)
			require.NoError(t, err)
			require.Len(t, events, 1)
			require.Len(t, events[0].Content, 64<<10+len(`{"content":""}`))
		}
	}

	leave(1 << 20) // not enough for the values
	changed, err := rotate()
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.ErrorContains(t, err, fmt.Sprintf("%d values were encrypted so far, and nothing is lost: it needs up to ", changed))
	require.ErrorContains(t, err, "MB on the disk of "+dir)
	whole()

	leave(4<<20 + 600<<10) // enough for the values, and not for the file
	changed, err = rotate()
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	require.ErrorContains(t, err, "all content is encrypted with the current key")
	require.ErrorContains(t, err, "MB on the disk of "+dir+", which has ")
	require.Positive(t, changed)
	whole()

	require.NoError(t, os.Remove(filler))
	changed, err = rotate()
	require.NoError(t, err)
	require.Zero(t, changed, "all had the key")
	whole()
	s, err = Open(t.Context(), Options{Dir: dir, Keys: [][]byte{two}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	file, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	for _, k := range []struct {
		key  []byte
		left bool
	}{{one, false}, {two, true}} {
		ring, err := seal.NewRing([][]byte{k.key})
		require.NoError(t, err)
		id, err := hex.DecodeString(ring.ID())
		require.NoError(t, err)
		head, _, found := bytes.Cut(ring.Seal([]byte("x")), id)
		require.True(t, found)
		require.Equal(t, k.left, bytes.Contains(file, append(head, id...)), "values with this key")
	}
}

func TestShortOf(t *testing.T) {
	t.Parallel()
	disks := map[string]struct {
		free int64
		disk uint64
	}{"/data": {10e6, 1}, "/data/tmp": {10e6, 1}, "/tmp": {3e6, 2}, "/large": {1e9, 3}}
	free := func(dir string) (int64, uint64, bool) {
		d, known := disks[dir]
		return d.free, d.disk, known
	}
	for _, c := range []struct {
		dir, temp string
		need      int64
		want      string
	}{
		{"/data", "/data/tmp", 5e6, ""},
		{"/data", "/data/tmp", 6e6, "that needs 12.0 MB on the disk of /data, which has 10.0 MB"},
		{"/data", "/large", 10e6, ""},
		{"/data", "/large", 11e6, "that needs 11.0 MB on the disk of /data, which has 10.0 MB"},
		{"/large", "/tmp", 4e6, "that needs 4.0 MB for temporary files on the disk of /tmp, which has 3.0 MB"},
		{"/unknown", "/large", 5e9, "that needs 5000.0 MB for temporary files on the disk of /large, which has 1000.0 MB"},
		{"/unknown", "/neither", 5e12, ""},
	} {
		require.Equal(t, c.want, shortOf(c.dir, c.temp, c.need, free), "%+v", c)
	}
}
