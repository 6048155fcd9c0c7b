package vectors_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/storage/internal/vectors"
)

func TestDot(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		a, b := make([]float32, n), make([]float32, n)
		want := float32(0)
		for i := range n {
			a[i], b[i] = float32(r.IntN(9)-4), float32(r.IntN(9)-4)
			want += a[i] * b[i]
		}
		require.Equal(t, want, vectors.Dot(a, b), "%d dimensions", n)
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	v, got := []float32{1, -0.5, 3e-9}, make([]float32, 3)
	require.True(t, vectors.Decode(got, vectors.AppendBytes(nil, v)))
	require.Equal(t, v, got)
	require.False(t, vectors.Decode(got, make([]byte, 11)))
	require.False(t, vectors.DecodeArray(got, make([]byte, 44)))
	require.False(t, vectors.DecodeArray(got, nil))
}

// Replaced items need no memory, however often they are replaced, and searches that began before still see them.
func TestReplacedItemsAreForgotten(t *testing.T) {
	t.Parallel()
	s := vectors.NewSet("m", 1)
	put := func(n int) {
		var changes []vectors.Change
		for i := range 3000 {
			changes = append(changes, vectors.Change{Namespace: "n", Key: fmt.Sprint(i), Updated: int64(n), Model: "m", Vectors: [][]float32{{1}, {0}}})
		}
		s.Apply(changes)
	}
	put(0)
	once := s.Bytes()
	for n := range 30 {
		put(n)
		require.LessOrEqual(t, s.Bytes(), 3*once)
	}
	ranking, err := s.Rank(context.Background(), "n", []float32{1})
	require.NoError(t, err)
	count := 0
	for c, ok := ranking.Next(); ok; c, ok = ranking.Next() {
		require.EqualValues(t, 29, c.Updated)
		count++
	}
	require.Equal(t, 3000, count)
	for i := range 3000 {
		s.Apply([]vectors.Change{{Namespace: "n", Key: fmt.Sprint(i)}})
	}
	require.Zero(t, s.Bytes())
}

func TestRankStops(t *testing.T) {
	t.Parallel()
	s := vectors.NewSet("m", 1)
	s.Apply([]vectors.Change{{Namespace: "n", Key: "k", Model: "m", Vectors: [][]float32{{1}}}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Rank(ctx, "", []float32{1})
	require.ErrorIs(t, err, context.Canceled)
}
