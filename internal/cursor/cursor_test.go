package cursor_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"understudy/internal/cursor"
)

func sealer(t *testing.T, with byte) *cursor.Sealer {
	t.Helper()
	s, err := cursor.New(bytes.Repeat([]byte{with}, cursor.Size))
	require.NoError(t, err)
	return s
}

func TestSealed(t *testing.T) {
	t.Parallel()
	one, same, other := sealer(t, 1), sealer(t, 1), sealer(t, 2)
	require.NoError(t, quick.Check(func(place string) bool {
		if place == "" {
			return one.Seal(place) == ""
		}
		sealed := one.Seal(place)
		return same.Open(sealed) == place && same.Seal(place) == sealed && other.Open(sealed) == sealed && (len(place) < 4 || !strings.Contains(sealed, place)) &&
			one.Open(place) == place && one.Open(sealed[:len(sealed)-1]) != place
	}, nil))
	var none *cursor.Sealer
	require.Equal(t, "a", none.Seal("a"))
	require.Equal(t, "c.a", none.Open("c.a"))
	for _, text := range []string{"", "c.", "c.AAAA", "c.!", one.Seal("a") + "A"} {
		require.Equal(t, text, one.Open(text))
	}
	_, err := cursor.New(nil)
	require.Error(t, err)
}
