//go:build unix

package sandbox_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"understudy/deerflow/sandbox"
	"understudy/internal/regular/regulartest"
)

// A pipe that takes the place of a file holds up no write: those of other threads would wait too.
func TestWritesDoNotWaitForPipes(t *testing.T) {
	t.Parallel()
	b := setup(t, sandbox.Options{})
	host, err := b.Host(ws + "/swapped")
	require.NoError(t, err)
	regulartest.WhileSwapping(t, host, "old", func() {
		for n := range 500 {
			if err := b.Write(ws+"/swapped", "x", n%2 == 0); err != nil {
				assert.NotErrorIs(t, err, sandbox.ErrTraversal)
			}
			_ = b.Replace(ws+"/swapped", "o", "0", true)
			_, _ = b.Version(ws+"/swapped", true)
		}
	})
}
