package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The log begins anew again and again while writes go on without a pause.
func TestLogStaysShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(context.Background(), Options{Dir: dir, Synchronous: "normal"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	const writes, size = 6000, 40 << 10
	value := bytes.Repeat([]byte("x"), size)
	longest := int64(0)
	for n := range writes {
		require.NoError(t, s.write(context.Background(), func(tx *Tx) error {
			return tx.exec("INSERT INTO store_items (namespace, key, value, created_at, updated_at) VALUES ('n', ?, ?, 0, 0) ON CONFLICT DO UPDATE SET value = excluded.value",
				fmt.Sprint(n%50), value)
		}))
		if n%100 == 0 {
			info, err := os.Stat(filepath.Join(dir, fileName+"-wal"))
			require.NoError(t, err)
			longest = max(longest, info.Size())
		}
	}
	t.Logf("%d MiB were written, the log had %d at most", writes*size>>20, longest>>20)
	require.Less(t, longest, int64(writes*size/2))
}
