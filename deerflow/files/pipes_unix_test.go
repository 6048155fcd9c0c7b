//go:build unix

package files

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// A pipe in the folder of a thread is refused at once: opening it could block until something opens the other end.
func TestPipes(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	outputs := filepath.Join(h.ThreadDir("ann", "t"), "user-data", "outputs")
	require.NoError(t, os.MkdirAll(outputs, 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(outputs, "a.txt"), 0o600))
	th, err := h.Thread("ann", "t", false)
	require.NoError(t, err)
	defer th.Close()
	_, _, err = th.Open("outputs/a.txt", "a.txt")
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	require.NoError(t, h.Copy("ann", "t", "copy"))
}
