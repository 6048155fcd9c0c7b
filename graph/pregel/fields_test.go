package pregel

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list of fields keeps each name once, where it was first set, with what was set last: like a map that remembers the order, however long it is.
func TestFieldSet(t *testing.T) {
	for range 200 {
		var set fieldSet
		var order []string
		last := map[string]*value{}
		names := 1 + rand.IntN(4*fewFields)
		for i := range rand.IntN(6 * fewFields) {
			name, v := strconv.Itoa(rand.IntN(names)), fromString(strconv.Itoa(i))
			if last[name] == nil {
				require.Equal(t, -1, set.find(name))
				order = append(order, name)
			}
			set.set(name, v)
			last[name] = v
		}
		require.Len(t, set.list, len(order))
		for i, name := range order {
			require.Equal(t, i, set.find(name))
			require.Equal(t, name, set.list[i].name)
			require.Same(t, last[name], set.list[i].v)
		}
	}
}
