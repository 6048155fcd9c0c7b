package sqlite

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/internal/encryption"
	"understudy/storage/internal/seal"
)

const rotateDir = "UNDERSTUDY_ROTATE_DIR"

var keyOne, keyTwo, keyThree = []byte("0123456789abcdef"), []byte("fedcba9876543210"), []byte("0000000000000000")

// TestRotateChild is the process that TestKilledWhileRotating kills.
func TestRotateChild(t *testing.T) {
	dir := os.Getenv(rotateDir)
	if dir == "" {
		t.Skip("runs as the child of TestKilledWhileRotating")
	}
	_, err := Encrypt(t.Context(), Options{Dir: dir, Keys: [][]byte{keyTwo, keyOne}})
	require.NoError(t, err)
}

// A rotation that is killed at any moment loses nothing, and the same command completes it. Until then the database does not open without the key from before, whose
// values nobody could read, and says so; with a wrong key it never does. Afterwards no value is encrypted with the old key.
func TestKilledWhileRotating(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const threads = 60
	s, err := Open(t.Context(), Options{Dir: dir, Keys: [][]byte{keyOne}})
	require.NoError(t, err)
	for i := range threads {
		require.NoError(t, fullThread(t.Context(), s, id.Thread(fmt.Sprint("thread ", i)), 64<<10))
	}
	require.NoError(t, s.Close())
	whole := func(keys ...[]byte) {
		t.Helper()
		s, err := Open(t.Context(), Options{Dir: dir, Keys: keys})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		for i := range threads {
			events, err := s.Events(t.Context(), id.Thread(fmt.Sprint("thread ", i)), 0, 10)
			require.NoError(t, err)
			require.Len(t, events, 1)
			require.Len(t, events[0].Content, 64<<10+len(`{"content":""}`))
		}
	}
	refused := func(want string, keys ...[]byte) {
		t.Helper()
		_, err := Open(t.Context(), Options{Dir: dir, Keys: keys})
		require.ErrorContains(t, err, want)
		in, err := Inspect(t.Context(), dir, encryption.Configured{Keys: keys})
		require.NoError(t, err)
		require.ErrorContains(t, in.Locked, want, "doctor says so before")
	}
	whole(keyTwo, keyOne) // as servers that were restarted with both
	refused("may still be encrypted with key ", keyTwo)
	killed := 0
	for n := 1; ; n++ {
		cmd := osexec.Command(os.Args[0], "-test.run=^TestRotateChild$")
		cmd.Env = append(os.Environ(), rotateDir+"="+dir)
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(n*n)*8*time.Millisecond, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		killed++
		refused("LANGGRAPH_AES_KEY", keyThree)
		refused("LANGGRAPH_AES_KEY", keyOne)
		refused("no encryption key")
		whole(keyTwo, keyOne)
	}
	require.Positive(t, killed)
	whole(keyTwo)
	refused("LANGGRAPH_AES_KEY", keyOne)
	file, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	ring, err := seal.NewRing([][]byte{keyOne})
	require.NoError(t, err)
	raw, err := hex.DecodeString(ring.ID())
	require.NoError(t, err)
	head, _, found := bytes.Cut(ring.Seal([]byte("x")), raw)
	require.True(t, found)
	require.False(t, bytes.Contains(file, append(head, raw...)), "values with the key from before")

	// Two changes of the key, none of which was completed.
	whole(keyThree, keyTwo)
	whole(keyOne, keyThree, keyTwo)
	refused("may still be encrypted", keyOne, keyThree)
	refused("may still be encrypted", keyOne, keyTwo)
	_, err = Encrypt(t.Context(), Options{Dir: dir, Keys: [][]byte{keyOne, keyThree, keyTwo}})
	require.NoError(t, err)
	whole(keyOne)
}
