package compact_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/compact"
)

// Items near an end of a list are read without the parts between; all are those that Restore returns.
func TestPick(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][]int{{200}, {3}, {3, 200}, {200, 3}, {1000, 3, 40, 200, 3}} {
		var all [][]byte
		for n := range 700 {
			all = append(all, text(n, sizes[n%len(sizes)]))
		}
		m := memory{}
		value, ok, err := compact.Encode(join(all), &m, nil)
		require.NoError(t, err)
		require.True(t, ok)
		v, err := compact.Parse(value)
		require.NoError(t, err)
		runs := runsOf(t, &m, &v)
		for n := -2; n < len(all)+2; n++ {
			var fetched int
			have := map[uint32]bool{}
			got, err := v.Pick(runs, []int{n}, func(runs []compact.Run) error {
				for _, r := range runs {
					fetched += int(r.Count)
					for i := range r.Count {
						have[r.First+i] = true
					}
				}
				return nil
			}, func(n uint32) []byte {
				if !have[n] {
					return nil
				}
				return m.part(n)
			})
			require.NoError(t, err)
			if n < 0 || n >= len(all) {
				require.Empty(t, got)
				continue
			}
			require.Equal(t, map[int][]byte{n: all[n]}, got, "item %d of sizes %v", n, sizes)
			require.LessOrEqual(t, fetched, min(n, len(all)-1-n)+1, "item %d of sizes %v", n, sizes)
		}
	}
}

func runsOf(t *testing.T, m *memory, v *compact.Value) (runs []compact.Run) {
	t.Helper()
	for _, r := range v.Chunks {
		for i := range r.Count {
			more, err := compact.ParseChunk(m.part(r.First + i))
			require.NoError(t, err, fmt.Sprint(r))
			runs = append(runs, more...)
		}
	}
	return append(runs, v.Parts...)
}
