package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/names"
)

func TestSome(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d"}
	for n, want := range []string{"", "a", "a, b", "a, b and 1 more", "a, b and 2 more"} {
		require.Equal(t, want, names.Some(all[:n], 2))
	}
}
