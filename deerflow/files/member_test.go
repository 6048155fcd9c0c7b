package files

import (
	"archive/zip"
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// skills makes a thread whose folder outputs has an archive a.skill with these files, and returns how to open one of them.
func skills(t *testing.T, contents map[string][]byte) func(inside string) (*Artifact, error) {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range contents {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	h := Home{Dir: t.TempDir()}
	th, err := h.Thread("ann", "t", true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, th.Close()) })
	require.NoError(t, os.WriteFile(filepath.Join(h.ThreadDir("ann", "t"), "user-data", Outputs, "a.skill"), b.Bytes(), 0o600))
	return func(inside string) (*Artifact, error) {
		return th.Artifact(Virtual + "/" + Outputs + "/a.skill/" + inside)
	}
}

// Any part of a member can be read, in any order.
func TestPartsOfMembers(t *testing.T) {
	t.Parallel()
	content := make([]byte, 100_000)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		content[i] = byte(random.IntN(4))
	}
	open := skills(t, map[string][]byte{"demo/data": content, "demo/empty": nil, "demo/SKILL.md": []byte("# text")})
	a, err := open("data")
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	require.EqualValues(t, len(content), a.Size)
	require.Equal(t, "application/octet-stream", a.Type)
	for range 50 {
		from := random.IntN(len(content) + 1)
		n := random.IntN(len(content) - from + 1)
		_, err := a.Seek(int64(from), io.SeekStart)
		require.NoError(t, err)
		got, err := io.ReadAll(io.LimitReader(a, int64(n)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content[from:from+n], got))
	}
	empty, err := open("empty")
	require.NoError(t, err)
	require.Zero(t, empty.Size)
	require.NoError(t, empty.Close())
	_, err = open("none")
	require.True(t, fault.Is(err, fault.NotFound))
}

// Members that are read slowly, and by many, are not kept in memory; those that unpack to too much are refused.
func TestManyReadersOfMembers(t *testing.T) { // measures what all goroutines keep, so nothing else may run
	open := skills(t, map[string][]byte{"large": make([]byte, maxMember), "larger": make([]byte, maxMember+1)})
	_, err := open("larger")
	require.True(t, fault.Is(err, fault.TooLarge))
	kept := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := kept()
	for range 20 {
		a, err := open("large")
		require.NoError(t, err)
		_, err = io.ReadFull(a, make([]byte, 1000))
		require.NoError(t, err)
		defer func() { require.NoError(t, a.Close()) }()
	}
	require.Less(t, kept(), before+maxMember)
}
