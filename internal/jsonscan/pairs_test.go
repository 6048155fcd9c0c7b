package jsonscan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Split finds what Elements does, whatever came before.
func TestPairs(t *testing.T) {
	t.Parallel()
	metadata := []string{`{}`, `{"a":1}`, `{"a":1,"b":{"c":"]"}}`, `{",":1}`, `1`, `"x"`, `[{"a":1}]`, `{"b":{"c":"]"}}`}
	first := []string{`{"content":"w"}`, `"x,{\"a\":1}"`, `[1,{"a":1}]`, `1`, `{"k":"a","l":[{"a":1}]}`, `"x,{"`, `{}`, `{"a":1},{"a":1}`, `1,2`, ``, `[`, `{"a":1`}
	rnd := rand.New(rand.NewPCG(1, 1))
	var p Pairs
	before, repeated := "", 0
	for range 20_000 {
		array := fmt.Sprintf(`[%s,%s]`, first[rnd.IntN(len(first))], metadata[rnd.IntN(len(metadata))])
		switch rnd.IntN(20) {
		case 0:
			array = " " + array + " "
		case 1:
			array = array[:rnd.IntN(len(array))]
		}
		items, ok := Elements([]byte(array))
		a, b, again, split := p.Split([]byte(array))
		require.Equal(t, ok && len(items) == 2, split, array)
		if split {
			require.Equal(t, []string{string(items[0]), string(items[1])}, []string{string(a), string(b)}, array)
			require.Equal(t, string(b) == before, again, array)
			if before = string(b); again {
				repeated++
			}
		}
	}
	require.NotZero(t, repeated)
}

func BenchmarkPairs(b *testing.B) {
	array := fmt.Appendf(nil, `[{"content":" word","additional_kwargs":{},"type":"AIMessageChunk","id":"1"},{"langgraph_step":1,"more":%q}]`, make([]byte, 100))
	var p Pairs
	b.ReportAllocs()
	for b.Loop() {
		p.Split(array)
	}
}
