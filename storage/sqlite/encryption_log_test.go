package sqlite

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// A first start with a key advises to run the command; the command does not.
func TestOnlyServersAdviseToEncrypt(t *testing.T) {
	t.Parallel()
	const advice = "run understudy encrypt"
	for _, byCommand := range []bool{false, true} {
		dir := t.TempDir()
		s, err := Open(t.Context(), Options{Dir: dir})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		var log bytes.Buffer
		opts := Options{Dir: dir, Keys: [][]byte{keyOne}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if byCommand {
			_, err = Encrypt(t.Context(), opts)
			require.NoError(t, err)
			require.NotContains(t, log.String(), advice)
			continue
		}
		s, err = Open(t.Context(), opts)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Contains(t, log.String(), advice)
	}
}
