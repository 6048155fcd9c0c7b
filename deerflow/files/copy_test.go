package files

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy has the files of all folders, and nothing that a link leads to.
func TestCopy(t *testing.T) {
	t.Parallel()
	h := Home{Dir: t.TempDir()}
	require.NoError(t, h.Copy("ann", "none", "other"), "a thread without files")
	from := filepath.Join(h.ThreadDir("ann", "from"), "user-data")
	require.NoError(t, os.MkdirAll(filepath.Join(from, "outputs", "deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "outputs", "deep", "a.txt"), []byte("text"), 0o600))
	secret := filepath.Join(h.Dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(from, "outputs", "link")))
	require.NoError(t, os.Symlink(h.Dir, filepath.Join(from, "folder")))

	require.NoError(t, h.Copy("ann", "from", "to"))
	to := filepath.Join(h.ThreadDir("ann", "to"), "user-data")
	text, err := os.ReadFile(filepath.Join(to, "outputs", "deep", "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.NoFileExists(t, filepath.Join(to, "outputs", "link"))
	require.NoDirExists(t, filepath.Join(to, "folder"))
	require.Error(t, h.Copy("ann", "from", "to"), "what is there is not overwritten")
	require.Error(t, h.Copy("ann", "../from", "x"))
}
