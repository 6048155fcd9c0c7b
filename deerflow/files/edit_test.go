package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of simultaneous edits based on the same text one succeeds, and the others learn that the text has changed. The file always has one of the texts, whole.
func TestEditsAtOnce(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	outputs := filepath.Join(h.ThreadDir("ann", "t"), "user-data", "outputs")
	require.NoError(t, os.MkdirAll(filepath.Join(outputs, "in"), 0o755))
	require.NoError(t, os.Symlink("in", filepath.Join(outputs, "link")))
	require.NoError(t, os.WriteFile(filepath.Join(outputs, "in", "a.txt"), []byte("old"), 0o600))
	seen := sum([]byte("old"))
	for round := range 20 {
		var done, changed atomic.Int32
		var winner atomic.Pointer[string]
		var other atomic.Pointer[error]
		var editing sync.WaitGroup
		start := make(chan struct{})
		for n := range 6 {
			content := strings.Repeat(string(rune('a'+n)), 100_000+round)
			editing.Go(func() {
				th, err := h.Thread("ann", "t", false) // each request opens it
				if err == nil {
					defer th.Close()
					<-start
					_, err = th.Edit(Virtual+"/outputs/"+[]string{"in", "link"}[n%2]+"/a.txt", content, seen)
				}
				switch {
				case err == nil:
					done.Add(1)
					winner.Store(&content)
				case errors.Is(err, ErrChanged):
					changed.Add(1)
				default:
					other.Store(&err)
				}
			})
		}
		close(start)
		editing.Wait()
		if err := other.Load(); err != nil {
			require.NoError(t, *err)
		}
		require.EqualValues(t, 1, done.Load())
		require.EqualValues(t, 5, changed.Load())
		got, err := os.ReadFile(filepath.Join(outputs, "in", "a.txt"))
		require.NoError(t, err)
		require.Equal(t, sum([]byte(*winner.Load())), sum(got))
		seen = sum(got)
	}
	left, err := os.ReadDir(filepath.Join(outputs, "in"))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
