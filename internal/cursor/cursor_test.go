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

// No other text than the sealed one is that place: each character counts, and so do those that a decoder may pass over.
func TestOnlyTheSealedTextOpens(t *testing.T) {
	t.Parallel()
	s := sealer(t, 1)
	for _, place := range []string{"a", "ab", "abc", "abcd"} { // of all lengths that encode differently at the end
		sealed := s.Seal(place)
		for i := range sealed {
			for _, other := range "AB1-_ \n\r=" {
				if changed := sealed[:i] + string(other) + sealed[i+1:]; changed != sealed {
					_, ok := s.Unseal(changed)
					require.False(t, ok, "%q for %q", changed, sealed)
				}
				_, ok := s.Unseal(sealed[:i] + string(other) + sealed[i:])
				require.False(t, ok, "%q at %d of %q", other, i, sealed)
			}
		}
	}
}
