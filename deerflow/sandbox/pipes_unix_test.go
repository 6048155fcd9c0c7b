//go:build unix

package sandbox_test

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/deerflow/sandbox"
)

// A pipe at the name that a write uses in between, or in place of a file a moment later, holds up no write: those of other threads would wait too.
func TestWritesDoNotWaitForPipes(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	b.run(t, "mkfifo .understudy-a.txt.part; echo x > mine; ln mine .understudy-b.txt.part; ln -s mine .understudy-c.txt.part")
	for _, name := range []string{"/a.txt", "/b.txt", "/c.txt"} {
		require.NoError(t, b.Write(ws+name, "text", false))
		require.Equal(t, "text", b.text(t, ws+name))
	}
	require.Equal(t, "x\n", b.text(t, ws+"/mine"))
	host, err := b.Host(ws + "/swapped")
	require.NoError(t, err)
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				_ = os.Remove(host)
			}
			if n%2 == 0 {
				_ = syscall.Mkfifo(host, 0o600)
			} else {
				_ = os.WriteFile(host+".new", []byte("old"), 0o600)
				_ = os.Rename(host+".new", host)
			}
		}
	})
	for n := range 500 {
		if err := b.Write(ws+"/swapped", "x", n%2 == 0); err != nil {
			require.False(t, errors.Is(err, sandbox.ErrTraversal))
		}
		_ = b.Replace(ws+"/swapped", "o", "0", true)
		_, _ = b.Version(ws+"/swapped", true)
	}
	close(stop)
	swapping.Wait()
}
